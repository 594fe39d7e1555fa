#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/store/run_store.h"
#include "engine/run/recorder.h"
#include "engine/run/result.h"
#include "engine/run/settings.h"
#include "simulator/plan/plan.h"

namespace pw {

/// The record of this call's run in the store of `--store`; without that option its operations do nothing. Where our launcher began the
/// record (`RunRequest::recordedAs`), rank 0 continues it.
class StoredRun {
 public:
  /// Notes when the run began. Both must outlive this.
  StoredRun(const RunSettings& settings, const Plan& plan);

  /// The run as it is known before its first step. Simulates the plan once.
  [[nodiscard]] const RunRecord& record();
  [[nodiscard]] std::optional<RunId> id() const { return id_; }

  /// Stores it as unfinished, unless that was done. Throws as RunStore.
  void begin();
  /// Adds steps, and writes how it ended, as RunStore does; after `begin`.
  void append(std::span<const StepRecord> steps);
  void end(const std::string& failure);
  /// Writes that it failed, with a record of its own where none was begun. Throws nothing: what ended the run matters more than its record.
  void fail(const std::string& failure) noexcept;

 private:
  RunStore& store();

  const RunSettings& settings_;
  const Plan& plan_;
  std::string startedAt_;
  std::optional<RunRecord> record_;
  std::optional<RunId> id_;
  std::unique_ptr<RunStore> store_;
};

/// What becomes of a training's steps on rank 0 while it trains: each is stored soon after its end, and its figures are kept for the
/// report. Memory does not grow with the steps.
class TrainingRecord {
 public:
  /// Begins the stored run. All must outlive this. `warn` gets a sentence, also on the recorder's thread.
  TrainingRecord(const RunSettings& settings, const Plan& plan, int firstStep, StoredRun& stored,
                 std::function<void(const std::string&)> warn);

  /// A step that has ended: what each rank saw of it. One whose numbers are not finite fails the run, unless such steps are skipped, and is
  /// not kept.
  void add(int step, std::vector<StepLog> ranks);
  /// When training is over: stores how the run ended.
  [[nodiscard]] RunResult finish(const std::vector<RankLog>& ranks);

 private:
  void keep(std::span<const StepRecord> steps);

  const RunSettings& settings_;
  StoredRun& stored_;
  std::function<void(const std::string&)> warn_;
  RunResult result_;
  std::string notStored_;  // why steps are no longer stored
  RunRecorder recorder_;   // last: its thread uses the others
};

}  // namespace pw
