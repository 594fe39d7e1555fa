#include "engine/remote/current_context.h"

#include <utility>

namespace pw {
namespace {

thread_local ContextId ofThisThread;

}  // namespace

ContextId currentContext() { return ofThisThread; }

WithContext::WithContext(ContextId context) : before_(std::exchange(ofThisThread, context)) {}
WithContext::~WithContext() { ofThisThread = before_; }

}  // namespace pw
