#include "engine/remote/current_context.h"

#include <utility>

namespace pw {
namespace {

thread_local ContextId contextOfThread;
thread_local std::optional<std::chrono::steady_clock::time_point> callDeadline;

}  // namespace

ContextId currentContext() { return contextOfThread; }

WithContext::WithContext(ContextId context) : before_(std::exchange(contextOfThread, context)) {}
WithContext::~WithContext() { contextOfThread = before_; }

std::optional<std::chrono::steady_clock::time_point> currentCallDeadline() { return callDeadline; }

WithCallDeadline::WithCallDeadline(std::optional<std::chrono::steady_clock::time_point> until)
    : before_(std::exchange(callDeadline, until)) {}
WithCallDeadline::~WithCallDeadline() { callDeadline = before_; }

}  // namespace pw
