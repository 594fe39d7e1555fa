#include "engine/autograd/context.h"

#include <fmt/format.h>

#include "engine/autograd/pass_part.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// What a context held.
struct Contents {
  decltype(AutogradContext::sends) sends, receives;
  decltype(AutogradContext::gradients) gradients;
  decltype(AutogradContext::passes) passes;
};

/// Takes what it holds, also where somebody still has the context itself.
std::shared_ptr<Contents> emptied(AutogradContext& context) {
  auto contents = std::make_shared<Contents>();
  const std::lock_guard lock(context.mutex);
  context.released = true;
  contents->sends.swap(context.sends), contents->receives.swap(context.receives);
  contents->gradients.swap(context.gradients), contents->passes.swap(context.passes);
  return contents;
}

}  // namespace

ContextId Contexts::open() {
  const ContextId id = ids_.next();
  const std::lock_guard lock(mutex_);
  contexts_.emplace(id, std::make_shared<AutogradContext>(id));
  return id;
}

std::shared_ptr<AutogradContext> Contexts::find(ContextId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? nullptr : found->second;
}

std::shared_ptr<AutogradContext> Contexts::require(ContextId id) const {
  if (auto context = find(id)) return context;
  throw UsageError(fmt::format("The autograd context {} is not open on this worker.", id.value));
}

std::shared_ptr<AutogradContext> Contexts::take(ContextId id) {
  const std::lock_guard lock(mutex_);
  auto found = contexts_.extract(id);
  return found.empty() ? nullptr : std::move(found.mapped());
}

void Contexts::release(ContextId id) {
  if (id.maker() != self_)
    throw UsageError(fmt::format("The autograd context {} was made by another worker, which has to end it.", id.value));
  const auto context = take(id);
  if (context == nullptr) throw UsageError(fmt::format("The autograd context {} is not open on this worker.", id.value));
  std::set<JobRank> workers;
  {
    const std::lock_guard lock(context->mutex);
    workers = context->workers;
  }
  emptied(*context).reset();
  for (const JobRank worker : workers) messages_.release(worker, id);
}

void Contexts::called(ContextId id, JobRank from) {
  std::shared_ptr<AutogradContext> context;
  bool isNew = false;
  {
    const std::lock_guard lock(mutex_);
    auto& entry = contexts_[id];
    if (entry == nullptr && id.maker() == self_) {  // ended here before; a call was still on its way
      contexts_.erase(id);
      return;
    }
    isNew = entry == nullptr;
    if (isNew) entry = std::make_shared<AutogradContext>(id);
    context = entry;
  }
  {
    const std::lock_guard lock(context->mutex);
    if (from != self_) context->workers.insert(from);
  }
  if (isNew && messages_.isLost(id.maker())) return released(id);  // nobody else would end it
  if (isNew && from != id.maker()) messages_.joined(id.maker(), id);
}

void Contexts::calling(ContextId id, JobRank to) {
  const auto context = find(id);
  if (context == nullptr || to == self_) return;
  const std::lock_guard lock(context->mutex);
  context->workers.insert(to);
}

void Contexts::late(ContextId id, JobRank to) {
  if (id.maker() == self_ && to != self_) messages_.release(to, id);  // the one before may have overtaken the call
}

void Contexts::joined(ContextId id, JobRank from) {
  const auto context = find(id);
  if (context == nullptr) return messages_.release(from, id);
  const std::lock_guard lock(context->mutex);
  context->workers.insert(from);
}

void Contexts::released(ContextId id) {
  if (const auto context = take(id)) messages_.letGo(emptied(*context));
}

void Contexts::lost(JobRank worker) {
  for (const auto& context : all()) {
    if (context->id.maker() == worker) released(context->id);
  }
}

std::vector<std::shared_ptr<AutogradContext>> Contexts::all() const {
  std::vector<std::shared_ptr<AutogradContext>> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, context] : contexts_) found.push_back(context);
  return found;
}

}  // namespace pw
