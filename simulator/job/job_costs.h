#pragma once

#include <span>
#include <utility>
#include <vector>

#include "simulator/costs/layer_table.h"
#include "simulator/job/job.h"
#include "simulator/report/lower_bound.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/program.h"

namespace pw {

/// An action and how long it usually takes, with what its host takes before.
using ActionTime = std::pair<Action, Ns>;

/// The job's usual times by stage: actions are means over microbatches, with the host's wait before them; a message's latency is its usual
/// time; all operations but those that run beside the first action count as the optimizer, also those before the row, in equal parts of
/// the stages of their rank. Where the job only has B, half of it is for the inputs; where it only has I and W, B is their sum. Where the
/// traces show memory (`Job::memory`), the least of a step is the stages' parameters, and the rest of the peak the activations of the
/// microbatches that are alive then. Cost: as `typicalTimes`.
[[nodiscard]] CostTable costsOf(const Job& job);

/// The usual times of the job's actions one by one, with what their message usually takes beyond its link's latency in `costsOf`. Cost: as
/// `typicalTimes`.
[[nodiscard]] std::vector<ActionTime> actionTimes(const Job& job);
/// By rank: how much of these times its host was late with actions that could have begun.
[[nodiscard]] std::vector<Ns> hostWaits(const Job& job);

/// The costs with the shortest of these times of a stage and kind, where there is one: for bounds that hold for all of them.
[[nodiscard]] CostTable leastCosts(CostTable costs, const std::vector<ActionTime>& times);
/// `lowerBounds` where actions may have their own times: of `leastCosts`, and no less than a rank works in all, in any order. `ranks`: of
/// the prediction.
[[nodiscard]] LowerBounds lowerBoundsOf(const Schedule& rows, const CostTable& costs, const std::vector<ActionTime>& times,
                                        const std::vector<RankMetrics>& ranks, std::span<const int> liveLimits,
                                        std::span<const Bytes> bytes);

/// Sets the durations of these actions' steps in a program of these rows; a slot's is set where both are there, to their sum.
void setActionTimes(const Schedule& rows, const std::vector<ActionTime>& times, Program& program);

/// A job's costs where stages end at these shares of the model, ascending between 0 and 1: a stage's work is spread evenly over its part of
/// the model, and a message takes as long as at the nearest cut of the job.
[[nodiscard]] CostTable costsCutAt(const CostTable& own, const std::vector<double>& cuts);

/// What a job says of the times of a schedule.
struct JobStepTimes {
  CostTable costs;
  std::vector<ActionTime> actions;  ///< of single ones, where they are known: they stand before the costs
};
/// The job's `costsOf`, with other stages cut evenly, and its `actionTimes` where the schedule does the same microbatches on the same
/// ranks: all stretched alike so that the job's own schedule takes as long as its usual step. A simulation of medians is shorter than the
/// median step where times vary, as a step waits for the slowest of several ranks. Cost: as `typicalTimes` and a simulation.
[[nodiscard]] JobStepTimes timesFor(const Job& job, const Schedule& schedule);
/// By what they are stretched, 1 where either step is nothing: how far a simulation of the medians misses the job's own step, and may miss
/// others.
[[nodiscard]] double stretchOf(const Job& job);
/// The step of a schedule with these times, with what comes after its last action.
[[nodiscard]] Ns stepWith(const Schedule& schedule, const JobStepTimes& times);

/// Throws UsageError where the job's steps are forwards alone, which say nothing of how long backwards take.
void requireBackwards(const Job& job);

/// The times for the job's own schedule (`timesFor`) as a layer table, each stage in `kPartsOfStage` equal layers, `stage2.part5`: for
/// plans and searches with other cuts. Bytes are 0 where the traces do not show memory.
inline constexpr int kPartsOfStage = 12;
[[nodiscard]] LayerTable layersOf(const Job& job);
/// Whether it is such a table, whose layers are no layers of the model.
[[nodiscard]] bool isOfJob(const LayerTable& table);

}  // namespace pw
