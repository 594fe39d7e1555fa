#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/messages/transport.h"
#include "backends/store/run_columns.h"
#include "schedules/named_values.h"
#include "simulator/costs/profile.h"
#include "simulator/plan/plan.h"
#include "simulator/trace/trace.h"

namespace pw {

/// One training step of a run.
struct StepRecord {
  int step = 0;
  double loss = 0;
  Trace measured;
  std::optional<double> gradientNorm{};  ///< of the whole model, where it was computed

  bool operator==(const StepRecord&) const = default;
};

/// Whether a run has ended, and how.
enum class RunState : std::uint8_t {
  Unfinished,  ///< it is running, or was killed before it could say how it ended
  Completed,
  Failed,
};
/// As the store and JSON name it.
constexpr std::string_view nameOf(RunState state) {
  switch (state) {
    case RunState::Unfinished: return "unfinished";
    case RunState::Completed: return "completed";
    case RunState::Failed: return "failed";
  }
  return {};
}

/// `failure` of a run that is unfinished.
inline constexpr std::string_view kUnfinishedRun = "Unfinished: it is still running, or was killed before it could say how it ended";

/// A run. It may have many steps: they are written with it or appended, and read separately.
struct RunRecord {
  RunId id;                              ///< given by the store
  std::string startedAt;                 ///< UTC, ISO 8601
  std::optional<Transport> transport{};  ///< nothing: one that is unknown here
  RunFacts facts{};                      ///< how it was computed
  RunState state = RunState::Completed;
  std::string failure;  ///< why it failed, a sentence, or kUnfinishedRun; empty exactly when it completed
  std::uint64_t seed = 0;
  Machine machine;
  Plan plan;  ///< with the profile it was made from
  Trace predicted;
  std::vector<StepRecord> steps;  ///< to be written; empty when it was read

  bool operator==(const RunRecord&) const = default;
};

/// The position of the duration that represents all: the median of all but the first, which warms up (of two in the middle the shorter, of
/// equal ones the earlier); the first if it is the only one. There must be at least one.
[[nodiscard]] std::size_t medianPosition(std::span<const Ns> durations);

/// A run as `runs` lists it, without plan and traces.
struct RunSummary {
  RunId id;
  std::string startedAt, model, schedule, failure;
  std::optional<Transport> transport{};  ///< nothing: one that is unknown here
  int ranks = 0, microbatches = 0, steps = 0;
  Ns predictedStep = 0;
  Ns medianMeasuredStep = 0;  ///< of the step at `medianPosition`
  RunFacts facts{};
  RunState state = RunState::Completed;
  std::string cluster{};  ///< that the times it was predicted from are of, as `Profile::cluster`

  bool operator==(const RunSummary&) const = default;
};

/// How a run was computed, in a few words: `ucx`, `nccl, bf16, tf32`, `gloo, synthetic`; `unknown` for a transport that is unknown here.
[[nodiscard]] std::string howComputed(const RunRecord& run);
[[nodiscard]] std::string howComputed(const RunSummary& run);

/// Runs in one SQLite file. One writer at a time, any number of readers (WAL; on network homes, where WAL fails, the rollback journal).
/// Spans are stored as one blob per step, not row by row. Every operation throws Error in one sentence when the file is
/// locked, read-only, no run store, or the disk is full; what the store holds stays as it was.
///
/// A store of an older version is brought to ours when it is opened, and a copy is kept beside it (migrations.h); where it cannot be
/// written, a reader sees a migrated copy of its own. A store of a newer version can be read, as far as its columns are known here
/// (`note` says so), and refuses to be written.
class RunStore {
 public:
  enum class Mode : std::uint8_t { ReadOnly, ReadWrite };
  /// Opens; ReadWrite creates a missing file. `lockWait` bounds the wait for another writer.
  RunStore(const std::string& path, Mode mode, std::chrono::milliseconds lockWait = std::chrono::seconds(2));
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  /// Empty, or a sentence that the user of this store should read: it is of a newer version.
  [[nodiscard]] const std::string& note() const;

  /// Stores the run in one transaction and returns its id (1, 2, …).
  RunId add(const RunRecord& run);
  /// Appends steps to those the run has, in one transaction. Throws UsageError where there is no such run.
  void append(RunId run, std::span<const StepRecord> steps);
  /// Writes how an unfinished run ended: with this failure (a sentence), or completed where it is empty. Leaves other runs as they are.
  void end(RunId run, const std::string& failure);
  [[nodiscard]] std::vector<RunSummary> list() const;  ///< oldest first
  /// Throws UsageError when there is no such run (naming those that are); without id the newest.
  [[nodiscard]] RunRecord load(std::optional<RunId> id) const;  ///< without its steps
  [[nodiscard]] int stepCount(RunId run) const;
  /// The training's numbers of the run's steps, in order; if there are more than `most`, of every second step, or every third, and so on.
  [[nodiscard]] std::vector<int> stepNumbers(RunId run, int most) const;
  /// At most `most` steps from position `first` on, which counts from 0.
  [[nodiscard]] std::vector<StepRecord> loadSteps(RunId run, int first, int most) const;
  /// The run's step with this number; without a number, the one at `medianPosition`. Throws UsageError where there is none.
  [[nodiscard]] StepRecord loadStep(const RunRecord& run, std::optional<int> step) const;

 private:
  struct Database;
  std::unique_ptr<Database> database_;
};

}  // namespace pw
