#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/meeting.h"
#include "engine/checkpoint.h"
#include "engine/processes/rank_environment.h"
#include "engine/run/settings.h"
#include "simulator/plan/optimizer.h"
#include "simulator/report/metrics.h"

namespace pw {

/// A process that is one rank of a job which others started (torchrun, Slurm), or alone, and has met the other ranks before anybody knows
/// what will be trained.
struct JobPlace {
  RankEnvironment environment;
  std::optional<Meeting> meeting;  ///< of a job of several ranks
};

/// Meets the job of this process's environment. `deadline`: of this and of what rank 0 does before it calls `tellRanks`. Throws Error
/// naming who did not come.
[[nodiscard]] JobPlace joinJob(std::chrono::milliseconds deadline);

/// The same place for the job's next training, of which all ranks give the same number.
[[nodiscard]] JobPlace forTraining(const JobPlace& place, int number);

/// On rank 0, once: tells all other ranks a text.
void tellRanks(const JobPlace& place, const std::string& text);
/// In its place: tells them why there is none. `unusable`: they throw UsageError, else Error.
void refuseRanks(const JobPlace& place, const std::string& sentence, bool unusable);
/// On the others: that text. Throws what rank 0 refused with, and Error where it is gone or says nothing within the deadline.
[[nodiscard]] std::string hearRankZero(const JobPlace& place);

/// A step as this rank knows it.
struct SessionStep {
  int number = 0;
  double loss = 0;  ///< of the whole batch, before the update; the same on all ranks
  std::optional<double> gradientNorm;
  bool skipped = false;  ///< no parameter changed
};

/// The figures of a step, on rank 0.
using StepWatcher = std::function<void(int step, const Trace& measured, const Metrics& metrics)>;

/// A training whose steps and batches come from outside: this process is one rank of it. All ranks make the same calls. After an Error the
/// other ranks are told, and nothing but `close` is possible.
class TrainingSession {
 public:
  /// Reads the plan of `request`, agrees with the other ranks, connects to them and makes this rank's stages. `request.feed` gives the
  /// batches. `warn` gets sentences for the user, on any thread. Throws Error and UsageError.
  TrainingSession(const RunRequest& request, const JobPlace& place, std::function<void(const std::string&)> warn);
  ~TrainingSession();  ///< as `close(false)`
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] int nextStep() const;
  /// Names of the tensors that a batch has: the model's inputs in their order.
  [[nodiscard]] std::vector<std::string> inputs() const;

  /// One step with the feed's batch and these numbers of the optimizer. `watch`: see there; may be empty. Throws UsageError on all ranks
  /// for a batch that does not fit, after which another may be tried; else Error: what failed, or the step's numbers are not finite.
  [[nodiscard]] SessionStep step(const OptimizerSpec& optimizer, const StepWatcher& watch);
  /// All parameters and buffers under the model's names, and tied ones under each of theirs: on every rank.
  [[nodiscard]] std::vector<StateTensorCopy> weights();
  /// Writes a checkpoint, with the optimizer's state, which `RunRequest::resume` continues from. Rank 0 writes.
  void save(const std::string& path);
  /// Resumes from a checkpoint that all ranks see; or, with `onlyWeights`, from its weights, with a new optimizer and at step 0.
  void load(const std::string& path, bool onlyWeights);
  /// Ends the training and its record. `inOrder`: when all ranks do so; else the other ranks learn that this one is gone. A second call
  /// does nothing. Throws nothing: what was trained is already known.
  void close(bool inOrder) noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace pw
