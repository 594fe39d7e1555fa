#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/job/replay_job.h"
#include "simulator/job/replay_path.h"
#include "simulator/job/slowdown.h"
#include "simulator/report/explain.h"
#include "simulator/report/metrics.h"

namespace pw {

/// A step that took longer than others, and what took longer in it than it usually does.
struct WorstStep {
  std::size_t step = 0;
  double slowdown = 1;                             ///< replayed, against the ideal step
  double aboveUsual = 0;                           ///< as measured, against the median step: signed fraction
  std::optional<std::size_t> kind, rank, replica;  ///< of `Slowdowns`: whose share grew most; nothing: by less than a hundredth
  std::vector<Stall> stalls;                       ///< of this step that are worth saying, longest first

  bool operator==(const WorstStep&) const = default;
};

/// Where the step of a job goes.
struct JobExplanation {
  Slowdowns slowdowns;
  TypicalTimes typical;
  JobReplay usual;                                ///< of typical times
  ReplayPath path;                                ///< its critical path
  Metrics metrics;                                ///< of the pipeline of a usual step; waits for hosts are idle time
  std::vector<Ns> hostWaits;                      ///< by rank, of it
  Explanation causes;                             ///< of its bubbles
  std::vector<std::optional<Action>> idleBefore;  ///< by group of `causes`: what its longest idle time is before; nothing: the row is done
  std::vector<ReplayError> replay;
  std::vector<Stall> stalls;
  std::vector<WorstStep> worst;  ///< at most 5, the longest first; none of fewer than 3 steps
};

/// Explains the job: stragglers by replay, the critical path and bubbles of a usual step. Cost: as `slowdownsOf` and `explain`.
[[nodiscard]] JobExplanation explainJob(const JobShape& shape, const Job& job);
/// The same; nothing where `shouldContinue`, which is called often, returned false.
[[nodiscard]] std::optional<JobExplanation> explainJob(const JobShape& shape, const Job& job, const std::function<bool()>& shouldContinue);

/// Whether a stall takes a hundredth of its step at least.
[[nodiscard]] bool isWorthSaying(const Job& job, const Stall& stall);

/// What most of the worst steps have in common, a sentence; empty where it is nothing.
[[nodiscard]] std::string commonText(const JobExplanation& explanation);
/// The stragglers in a sentence: how much they cost, and who they are.
[[nodiscard]] std::string stragglerText(const JobExplanation& explanation);
/// `worker 5 lost 1.08 s in step 3 before 1F0, waiting for its message`.
[[nodiscard]] std::string toString(const JobShape& shape, const Job& job, const Stall& stall);

}  // namespace pw
