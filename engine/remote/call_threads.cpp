#include "engine/remote/call_threads.h"

#include <algorithm>
#include <utility>

namespace pw {
namespace {

thread_local CallThreads* ofThisThread = nullptr;  // whose place a waiting thread gives up

}  // namespace

CallThreads::CallThreads(int running, int most) : places_(std::max(1, running)), most_(std::max(places_ + 1, most)) {}

CallThreads::~CallThreads() { stop(); }

bool CallThreads::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (blocked_ >= most_) return false;
  if (stopped_) return true;
  tasks_.push_back(std::move(task));
  startThread();
  return true;
}

void CallThreads::startThread() {
  if (tasks_.empty() || stopped_ || running_ >= places_) return;
  if (idle_ > 0) {
    changed_.notify_one();
  } else if (static_cast<int>(threads_.size()) < most_) {
    threads_.emplace_back([this] { work(); });
  }
}

void CallThreads::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  const std::lock_guard lock(mutex_);
  tasks_.clear();
}

void CallThreads::work() {
  ofThisThread = this;
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [&] { return stopped_ || (!tasks_.empty() && running_ < places_); });
    --idle_;
    if (stopped_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    startThread();
    lock.unlock();
    task();
    task = nullptr;  // what it held may post tasks when it goes
    lock.lock();
    --running_;
    startThread();
  }
}

CallThreads::Blocked::Blocked() : threads_(ofThisThread) {
  if (threads_ == nullptr) return;
  const std::lock_guard lock(threads_->mutex_);
  --threads_->running_;
  ++threads_->blocked_;
  threads_->startThread();
}

CallThreads::Blocked::~Blocked() {
  if (threads_ == nullptr) return;
  const std::lock_guard lock(threads_->mutex_);
  ++threads_->running_;
  --threads_->blocked_;
}

}  // namespace pw
