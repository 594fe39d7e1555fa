#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backends/store/run_store.h"
#include "engine/step_log.h"

namespace pw {

/// Takes the steps of a training as they end, on rank 0, and hands them on from a thread of its own, joined to traces: so that training
/// need not wait for a disk. Several steps that came meanwhile are handed on at once; each within milliseconds of its end. Memory is
/// bounded: when more waits than `kMostWaiting`, `add` waits too.
class RunRecorder {
 public:
  static constexpr std::size_t kMostWaiting = 1 << 20;  ///< bytes of spans and samples

  /// Takes steps in their order, one or more, on the recorder's thread. What it throws ends the recording, not the training.
  using Keep = std::function<void(std::span<const StepRecord>)>;

  /// `ranksOfPipeline`: see `joinTraces`. `tell` gets a sentence, on the recorder's thread, when steps can no longer be kept.
  RunRecorder(std::size_t ranksOfPipeline, Keep keep, std::function<void(const std::string&)> tell);
  /// Hands on what waits.
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  /// A step that has ended: what each rank saw of it (index = rank), on one clock.
  void add(int step, std::vector<StepLog> ranks);

  /// Hands on what waits; then nothing may be added. Throws what ended the recording, if something did.
  void finish();

 private:
  struct Waiting {
    int step = 0;
    std::vector<StepLog> ranks;
    std::size_t bytes = 0;
  };

  void run();
  void keepBatch(const std::vector<Waiting>& batch);
  void close();

  const std::size_t ranksOfPipeline_;
  const Keep keep_;
  const std::function<void(const std::string&)> tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiting> waiting_;
  std::size_t waitingBytes_ = 0;
  bool closed_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace pw
