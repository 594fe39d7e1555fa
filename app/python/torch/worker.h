#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/remote/call_threads.h"
#include "engine/workers/remote_worker.h"

namespace pw::python {

// The functions that Python's workers call on each other. Calls are pickles with what was taken out (`sentValue`).
inline constexpr const char* kCall = "python.call";    ///< call → its result
inline constexpr const char* kKeep = "python.keep";    ///< call → its result, which stays
inline constexpr const char* kFetch = "python.fetch";  ///< reference → its value

/// What Python does with values of calls, as objects kept by C++ (`held`).
struct ValueFunctions {
  std::shared_ptr<void> call;      ///< runs a pickled call; gives its result, pickled
  std::shared_ptr<void> evaluate;  ///< runs a pickled call; gives its result, which stays
  std::shared_ptr<void> pickle;    ///< pickles a value that stayed here
  std::shared_ptr<void> describe;  ///< type, text and worker of an exception
};

/// This process as a worker, for Python.
class Worker {
 public:
  /// Blocks, as RemoteWorker does.
  Worker(const RankEnvironment& environment, const RemoteWorkerSettings& settings, const ValueFunctions& functions);
  ~Worker();  ///< as `leave`
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// As the RemoteWorker's. `leave` on another thread ends it with an error.
  void shutdown(std::chrono::milliseconds deadline);
  /// As the RemoteWorker's, and waits for the tasks. Not within a call or a task.
  void leave();

  [[nodiscard]] Remote& remote() { return worker_->remote(); }
  [[nodiscard]] DistributedAutograd& autograd() { return worker_->autograd(); }
  /// For waits of the main thread, and what is to happen after a result. After `leave` they are dropped.
  [[nodiscard]] const std::shared_ptr<CallThreads>& tasks() const { return tasks_; }

 private:
  std::unique_ptr<RemoteWorker> worker_;
  std::shared_ptr<CallThreads> tasks_;
};

}  // namespace pw::python
