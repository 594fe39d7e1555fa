#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace pw {

/// What one thread is to do, in the order in which others brought it: the compute lane of a rank whose work comes by remote calls.
class Lane {
 public:
  using Task = std::function<void()>;

  /// Any thread. A task that throws ends `work`.
  void post(Task task);
  /// Any thread but the lane's: blocks until the lane has done it, and rethrows what it throws. Throws Error where the lane was closed
  /// before.
  void call(const Task& task);
  /// Does what was brought, and what comes, until `isDone`. Throws what a task or `meanwhile` (called often while nothing comes) throws,
  /// and Error where nothing comes for so long.
  void work(const std::function<bool()>& isDone, std::chrono::milliseconds deadline, const std::function<void()>& meanwhile);
  /// Drops what waits, and all that comes later.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool closed_ = false;
};

}  // namespace pw
