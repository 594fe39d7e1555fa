#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace pw {

/// Threads for calls that may wait for other calls. At most `running` of them work at a time; a task that waits for a remote result
/// (`Blocked`) gives its place to a queued one, on a thread of its own if none is idle. So calls that nest, over any circle of workers,
/// always find a place, and no more tasks run at once than there are places and tasks that came back from waiting.
class CallThreads {
 public:
  /// `most`: threads in all, which bounds how many calls can wait at a time.
  CallThreads(int running, int most);
  ~CallThreads();  ///< waits for the tasks that run and drops the others
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  /// Queues a task. Where all threads wait, so that nobody would ever run it, `refuse` is called instead, by whoever finds that out.
  /// Neither must throw.
  void post(std::function<void()> task, std::function<void()> refuse);
  /// Waits for the tasks that run and drops the others; later ones are dropped, too.
  void stop();
  /// Whether this thread is one of such threads, and they are to end: what it waits for may never come.
  [[nodiscard]] static bool areEnding();

  /// While it lives, this thread waits and does not hold a place. Does nothing on other threads than these.
  class Blocked {
   public:
    Blocked();
    ~Blocked();
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

   private:
    CallThreads* threads_;
  };

 private:
  struct Task {
    std::function<void()> run, refuse;
  };
  void work();
  /// If a task could run and no thread is free for it; locked. False where the system gives no thread and all that there are wait, so that
  /// the tasks are to be refused.
  [[nodiscard]] bool startThread();

  int places_, most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::vector<std::thread> threads_;
  int running_ = 0, idle_ = 0, blocked_ = 0;
  bool stopped_ = false;
};

}  // namespace pw
