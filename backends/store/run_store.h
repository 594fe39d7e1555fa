#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/costs/profile.h"
#include "simulator/plan/plan.h"
#include "simulator/trace/trace.h"

namespace pw {

/// One training step of a run.
struct StepRecord {
  int step = 0;
  double loss = 0;
  Trace measured;

  bool operator==(const StepRecord&) const = default;
};

/// A finished (or failed) run.
struct RunRecord {
  RunId id;               ///< given by the store
  std::string startedAt;  ///< UTC, ISO 8601
  std::string backend;    ///< gloo, ucx, nccl; behind it `, bf16`, `, tf32` where it computed so, and kSyntheticRun
  std::string failure;    ///< empty when it completed
  std::uint64_t seed = 0;
  Machine machine;
  Plan plan;  ///< with the profile it was made from
  Trace predicted;
  std::vector<StepRecord> steps;

  bool operator==(const RunRecord&) const = default;
};

/// The step that stands for a run: the median by duration (of two in the middle the shorter, of equal ones the earlier) of those after the
/// first, which warms up; the first where it is alone. Throws UsageError for a run without steps.
[[nodiscard]] const StepRecord& medianStep(const RunRecord& run);

/// Ends the backend's name of a run whose stages computed nothing: it says nothing about its model's times.
inline constexpr std::string_view kSyntheticRun = ", synthetic";

/// A run as `runs` lists it, without plan and traces.
struct RunSummary {
  RunId id;
  std::string startedAt, model, schedule, backend, failure;
  int ranks = 0, microbatches = 0, steps = 0;
  Ns predictedStep = 0;
  Ns medianMeasuredStep = 0;  ///< duration of `medianStep`

  bool operator==(const RunSummary&) const = default;
};

/// Runs in one SQLite file. One writer at a time, any number of readers (WAL; on network homes, where WAL fails, the rollback journal).
/// Spans are stored as one blob per step, not row by row. Every operation throws Error in one sentence when the file is
/// locked, read-only, no run store, of a newer version, or the disk is full; what the store holds stays as it was.
class RunStore {
 public:
  enum class Mode : std::uint8_t { ReadOnly, ReadWrite };
  /// Opens; ReadWrite creates a missing file. `lockWait` bounds the wait for another writer.
  RunStore(const std::string& path, Mode mode, int lockWaitMs = 2000);
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  /// Stores the run in one transaction and returns its id (1, 2, …).
  RunId add(const RunRecord& run);
  [[nodiscard]] std::vector<RunSummary> list() const;  ///< oldest first
  /// Throws UsageError when there is no such run (naming those that are); without id the newest.
  [[nodiscard]] RunRecord load(std::optional<RunId> id) const;

 private:
  struct Database;
  std::unique_ptr<Database> database_;
};

}  // namespace pw
