#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace pw {

/// Tasks for one thread, in the order in which others posted them: the compute lane of a rank whose work arrives by remote calls.
class Lane {
 public:
  using Task = std::function<void()>;

  /// Any thread. A task that throws ends `work`.
  void post(Task task);
  /// Any thread but the lane's: blocks until the lane has run the task, and rethrows what it throws. Throws Error where the lane was closed
  /// before that, or has not begun the task within the deadline; then it never will.
  void call(const Task& task, std::chrono::milliseconds deadline);
  /// Runs the tasks posted so far and those that follow, until `isDone`. Throws what a task or `meanwhile` (called often while there is
  /// none) throws, and Error where none is posted within the deadline.
  void work(const std::function<bool()>& isDone, std::chrono::milliseconds deadline, const std::function<void()>& meanwhile);
  /// Drops the tasks that wait, and all posted later.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool closed_ = false;
};

}  // namespace pw
