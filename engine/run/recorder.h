#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backends/store/run_store.h"
#include "engine/step_log.h"

namespace pw {

/// Where steps go.
struct RecordTarget {
  std::string name = "The record";  ///< for a sentence
  /// For keeping the steps that wait. Longer than a store waits for another writer, and than a network's file system takes to find another
  /// server.
  std::chrono::milliseconds deadline{60'000};
};

/// Takes the steps of a training as they end, on rank 0, and hands them on from a thread of its own, joined to traces: so that training
/// need not wait for a disk. Several steps that came meanwhile are handed on at once; each within milliseconds of its end. Memory is
/// bounded: when more waits than `kMostWaiting`, `add` waits too, up to a deadline: then the recording ends, and the thread is left to its
/// hung disk, with all that it uses.
class RunRecorder {
 public:
  static constexpr std::size_t kMostWaiting = 1 << 20;  ///< bytes of spans and samples

  /// Takes steps in their order, one or more, on the recorder's thread. What it throws ends the recording, not the training. As it may
  /// hang, it owns what it uses.
  using Keep = std::function<void(std::span<const StepRecord>)>;

  /// `ranksOfPipeline`: see `joinTraces`. `tell` gets a sentence when steps can no longer be kept, on the recorder's thread, or on that
  /// which waited in vain.
  RunRecorder(std::size_t ranksOfPipeline, Keep keep, std::function<void(const std::string&)> tell, RecordTarget target = {});
  /// Hands on what waits, up to the deadline.
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  /// A step that has ended: what each rank saw of it (index = rank), on one clock.
  void add(int step, std::vector<StepLog> ranks);

  /// Hands on what waits; then nothing may be added. Throws what ended the recording, if something did: Error naming the last step that was
  /// kept, where `keep` did not return within the deadline.
  void finish();

  /// The same without throwing; a second call does nothing.
  void close();

  /// Whether `keep` did not come back in time, and may still be using what it uses.
  [[nodiscard]] bool hangs() const;

 private:
  struct State;

  std::shared_ptr<State> state_;  ///< also the thread's
  std::thread thread_;
};

}  // namespace pw
