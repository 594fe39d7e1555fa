#include "engine/remote/deadlines.h"

namespace pw {

Deadlines::~Deadlines() { stop(); }

Deadlines::Entry Deadlines::add(Clock::time_point when, std::function<void()> late) {
  std::unique_lock lock(mutex_);
  const Entry entry(when, ++count_);
  if (stopped_) {  // nobody would call it later
    lock.unlock();
    late();
    return entry;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { wait(); });
  const bool isNext = entries_.empty() || entry < entries_.begin()->first;
  entries_.emplace(entry, std::move(late));
  if (isNext) changed_.notify_all();
  return entry;
}

void Deadlines::remove(const Entry& entry) {
  std::function<void()> dropped;  // goes without the lock
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(entry); found != entries_.end()) {
    dropped = std::move(found->second);
    entries_.erase(found);
  }
}

std::size_t Deadlines::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void Deadlines::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  std::map<Entry, std::function<void()>> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(entries_);
}

void Deadlines::wait() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (entries_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point when = entries_.begin()->first.first;
    if (Clock::now() < when) {
      changed_.wait_until(lock, when);
      continue;
    }
    std::function<void()> late = std::move(entries_.begin()->second);
    entries_.erase(entries_.begin());
    lock.unlock();
    late();
    late = nullptr;
    lock.lock();
  }
}

}  // namespace pw
