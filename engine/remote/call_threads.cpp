#include "engine/remote/call_threads.h"

#include <algorithm>
#include <utility>

namespace pw {
namespace {

thread_local CallThreads* threadsOfThread = nullptr;  // whose place a waiting thread gives up

}  // namespace

CallThreads::CallThreads(int running, int most) : places_(std::max(1, running)), most_(std::max(places_ + 1, most)) {}

CallThreads::~CallThreads() { stop(); }

void CallThreads::post(std::function<void()> task, std::function<void()> refuse) {
  std::deque<Task> refused;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    tasks_.push_back({std::move(task), std::move(refuse)});
    if (!startThread() || blocked_ >= most_) refused.swap(tasks_);
  }
  for (const Task& each : refused) each.refuse();
}

bool CallThreads::startThread() {
  if (tasks_.empty() || stopped_ || running_ >= places_) return true;
  if (idle_ > 0) {
    changed_.notify_one();
  } else if (static_cast<int>(threads_.size()) < most_) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::exception&) {  // the others continue with what is queued
      return blocked_ < static_cast<int>(threads_.size());
    }
  }
  return true;
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
  std::deque<Task> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(tasks_);
}

bool CallThreads::areEnding() {
  if (threadsOfThread == nullptr) return false;
  const std::lock_guard lock(threadsOfThread->mutex_);
  return threadsOfThread->stopped_;
}

void CallThreads::work() {
  threadsOfThread = this;
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [&] { return stopped_ || (!tasks_.empty() && running_ < places_); });
    --idle_;
    if (stopped_) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    (void)startThread();
    lock.unlock();
    task.run();
    task = {};  // what it held may post tasks when it goes
    lock.lock();
    --running_;
    (void)startThread();
  }
}

CallThreads::Blocked::Blocked() : threads_(threadsOfThread) {
  if (threads_ == nullptr) return;
  std::deque<Task> refused;
  {
    const std::lock_guard lock(threads_->mutex_);
    --threads_->running_;
    ++threads_->blocked_;
    if (!threads_->startThread() || threads_->blocked_ >= threads_->most_) refused.swap(threads_->tasks_);
  }
  for (const Task& task : refused) task.refuse();
}

CallThreads::Blocked::~Blocked() {
  if (threads_ == nullptr) return;
  const std::lock_guard lock(threads_->mutex_);
  ++threads_->running_;
  --threads_->blocked_;
}

}  // namespace pw
