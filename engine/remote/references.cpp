#include "engine/remote/references.h"

#include <utility>

namespace pw {

struct Reference::Held {
  Held(std::weak_ptr<References> of, ReferenceId name, JobRank at, Share part)
      : references(std::move(of)), id(name), owner(at), share(part) {}
  ~Held() {
    try {
      if (const auto all = references.lock()) all->drop(owner, id, share);
    } catch (const std::exception&) {
      return;  // a broken peer gave more back than there was, or nothing can be sent any more: the value goes with its owner
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::weak_ptr<References> references;
  ReferenceId id;
  JobRank owner;
  std::mutex mutex;
  Share share;
};

SentShares::~SentShares() {
  for (const auto& [references, sent] : sent_) {
    try {
      references->giveBack(sent);
    } catch (const std::exception&) {
      continue;  // the value goes with its owner
    }
  }
}

void SentShares::add(References& of, const SentReference& sent) { sent_.emplace_back(&of, sent); }

JobRank Reference::owner() const {
  if (held_ == nullptr) throw UsageError("An empty reference has no owner.");
  return held_->owner;
}

ReferenceId Reference::id() const { return held_ == nullptr ? ReferenceId() : held_->id; }

Reference References::make(JobRank owner) { return receive({ids_.next(), owner, Share{0}}); }

Reference References::receive(const SentReference& sent) {
  if (sent.owner.index() >= workers_) throw Error("a reference is to a worker that this job does not have");
  Reference reference;
  reference.held_ = std::make_shared<Reference::Held>(weak_from_this(), sent.id, sent.owner, sent.share);
  const std::lock_guard lock(mutex_);
  ++held_;
  return reference;
}

SentReference References::send(const Reference& reference) {
  if (!reference) throw UsageError("An empty reference cannot be sent.");
  const std::lock_guard lock(reference.held_->mutex);
  return {reference.held_->id, reference.held_->owner, halveShare(reference.held_->share)};
}

void References::settle(ReferenceId id, RemoteFuture value) {
  std::optional<RemoteFuture> waited;
  {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    Owned& owned = owned_[id];
    waited = owned.value;
    owned.settled = true;
  }
  const auto forward = [waited = *waited](const RemoteFuture& result) {
    try {
      waited.set(result.wait());
    } catch (...) {
      waited.fail(std::current_exception());  // kept for whoever fetches the value
    }
  };
  value.whenDone(forward);
  std::unique_lock lock(mutex_);
  dropIfUnused(lock, id);
}

RemoteFuture References::value(ReferenceId id) {
  const std::lock_guard lock(mutex_);
  return closed_ ? RemoteFuture() : owned_[id].value;
}

void References::takeBack(ReferenceId id, Share share) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  owned_[id].back.add(share);
  dropIfUnused(lock, id);
}

void References::dropIfUnused(std::unique_lock<std::mutex>& lock, ReferenceId id) {
  const auto found = owned_.find(id);
  if (found == owned_.end() || !found->second.settled || !found->second.back.isWhole()) return;
  auto dropped = std::make_shared<decltype(owned_)::node_type>(owned_.extract(found));
  lock.unlock();  // the value may hold references
  letGo_(std::move(dropped));
}

void References::drop(JobRank owner, ReferenceId id, Share share) {
  {
    const std::lock_guard lock(mutex_);
    --held_;
    if (closed_) return;
  }
  giveBack({id, owner, share});
}

void References::giveBack(const SentReference& sent) {
  if (sent.owner == self_) return takeBack(sent.id, sent.share);
  giveBack_(sent.owner, sent.id, sent.share);
}

void References::clear() {
  std::unordered_map<ReferenceId, Owned> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(owned_);
}

std::size_t References::owned() const {
  const std::lock_guard lock(mutex_);
  return owned_.size();
}

std::size_t References::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

}  // namespace pw
