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
  /// Adds steps, and writes how it ended, as RunStore does; after `begin`. What `writer` returns has all that it uses, as it may hang.
  [[nodiscard]] std::function<void(std::span<const StepRecord>)> writer() const;
  void end(const std::string& failure);
  /// A writer hangs: nothing else is written, so that nobody waits for it. The run stays unfinished, with the steps that it has.
  void giveUp() { access_ = nullptr; }
  /// Writes that it failed, with a record of its own where none was begun. Throws nothing: what ended the run matters more than its record.
  void fail(const std::string& failure) noexcept;

 private:
  /// The store while it is used, shared with writers.
  struct Access {
    std::string path;
    std::unique_ptr<RunStore> store{};
    [[nodiscard]] RunStore& open();
  };

  const RunSettings& settings_;
  const Plan& plan_;
  std::string startedAt_;
  std::optional<RunRecord> record_;
  std::optional<RunId> id_;
  std::shared_ptr<Access> access_;  ///< null: without a store, or given up
};

/// What becomes of a training's steps on rank 0 while it trains: each is stored soon after its end, and its figures are kept for the
/// report. Memory does not grow with the steps.
class TrainingRecord {
 public:
  /// Begins the stored run. All must outlive this. `warn` gets a sentence, also on the recorder's thread.
  TrainingRecord(const RunSettings& settings, const Plan& plan, int firstStep, StoredRun& stored,
                 std::function<void(const std::string&)> warn);
  ~TrainingRecord();
  TrainingRecord(const TrainingRecord&) = delete;
  TrainingRecord& operator=(const TrainingRecord&) = delete;

  /// A step that has ended: what each rank saw of it. One whose numbers are not finite fails the run, unless such steps are skipped, and is
  /// not kept.
  void add(int step, std::vector<StepLog> ranks);
  /// When training is over: stores how the run ended. Throws Error where the store hangs (`RunRecorder::finish`).
  [[nodiscard]] RunResult finish(const std::vector<RankLog>& ranks);

 private:
  struct Kept;

  const RunSettings& settings_;
  StoredRun& stored_;
  RunResult result_;
  std::shared_ptr<Kept> kept_;  ///< what the recorder's thread uses
  RunRecorder recorder_;
};

}  // namespace pw
