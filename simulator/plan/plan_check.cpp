#include "simulator/plan/plan_check.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

using Fail = std::function<void(const std::string&)>;

bool ascend(const auto& list) { return std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end(); }

/// Checks signs; `requireSummable` checks the sizes.
void checkCosts(const CostTable& costs, const Fail& fail) {
  const auto check = [&](auto number) {
    if (number < 0) fail("a time or size is negative");
  };
  for (const double factor : costs.microbatchScale) {
    if (!(factor >= 0)) fail("a microbatch scale is negative");
  }
  check(costs.reduceTime);
  for (const Ns time : costs.overlap) check(time);
  for (const StageCost& c : costs.stages) {
    for (const Ns time : {c.forward, c.backward, c.backwardInput, c.backwardWeight, c.optimizer, c.reduce}) check(time);
    for (const Bytes bytes : {c.parameterBytes, c.gradientBytes, c.optimizerBytes, c.updatedBytes, c.fixedBytes, c.dataBytes}) check(bytes);
    for (const Bytes bytes : {c.activationBytes, c.addedByInput, c.forwardPeak, c.backwardPeak, c.inputPeak, c.weightPeak}) check(bytes);
    check(c.sharedForWeight);
    if (c.updatedBytes > c.parameterBytes) fail("a stage updates more than its parameters");
    if (c.freedByInput < 0 || c.freedByInput > c.activationBytes) fail("a stage frees more than it holds");
    if (c.sharedForWeight - (c.activationBytes - c.freedByInput) > c.addedByInput) fail("a stage's W shares more than it holds");
  }
  for (const MessageCost& m : costs.messages) {
    check(m.bytes);
    check(m.latency);
    check(m.transfer);
  }
}

void checkPartition(const Partition& partition, const Fail& fail) {
  const auto stages = static_cast<std::int32_t>(partition.stages.size());
  const auto isStage = [&](Stage s) { return s.value >= 0 && s.value < stages; };
  if (stages == 0) fail("it has no stages");
  NodeId end(0);
  for (const StageSpec& stage : partition.stages) {
    if (stage.begin != end || stage.end <= stage.begin) fail("its stages do not follow one another");
    const auto& again = stage.recomputed;
    if (!ascend(again) || (!again.empty() && (again.front() < NodeId(0) || again.back() >= stage.begin)))
      fail("a stage recomputes nodes that are not before it");
    if (std::any_of(stage.modelInputs.begin(), stage.modelInputs.end(), [](ValueId v) { return v.value < 0; }))
      fail("a stage reads a value that does not exist");
    NodeId after = stage.begin;
    for (const NodeRange& range : stage.checkpoints) {
      if (range.begin < after || range.end <= range.begin || range.end > stage.end)
        fail("a stage's checkpoints are not ranges of its nodes, one after the other");
      after = range.end;
    }
    end = stage.end;
  }
  for (const Transfer& t : partition.transfers) {
    if (!isStage(t.from) || !isStage(t.to) || t.from >= t.to) fail("a transfer names stages that do not exist");
    if (t.value.value < 0 || t.bytes < 0) fail("a transfer has a negative value or size");
  }
  for (const SharedParameter& r : partition.shared) {
    if (r.stages.size() < 2 || !ascend(r.stages) || !isStage(r.stages.front()) || !isStage(r.stages.back()))
      fail("a shared parameter names stages that do not exist");
    if (r.bytes < 0) fail("a shared parameter has a negative size");
  }
}

/// Costs of a cut that goes with the plan's schedule and profile.
void checkCut(const Plan& plan, const Partition& partition, const std::vector<std::string>& splitNames, const CostTable& costs,
              const Fail& fail) {
  checkPartition(partition, fail);
  if (plan.schedule.placement.rankOfStage.size() != partition.stages.size())
    fail("schedule and partition differ in their number of stages");
  if (!plan.profile.nodes.empty() && NodeId(plan.profile.nodes.size()) != partition.stages.back().end)
    fail("its profile is of another model");
  if (splitNames.size() + 1 != partition.stages.size()) fail("it does not name where each stage begins");
  try {
    requireFitting(plan.schedule, costs);
    requireSummable(costs, shapeOf(plan.schedule));
  } catch (const Error& e) {
    fail(e.what());
  }
  checkCosts(costs, fail);
}

void checkCuts(const Plan& plan, const ReplicaCuts& cuts, const Fail& fail) {
  const std::size_t count = cuts.replicas.size();
  if (count != static_cast<std::size_t>(plan.replicas)) fail("it does not say how each replica is cut");
  if (plan.schedule.placement.bidirectional()) fail("its replicas are cut differently and have each stage on two ranks");
  for (const ReplicaCut& cut : cuts.replicas) {
    checkCut(plan, cut.partition, cut.splitNames, cut.costs, fail);
    if (cut.partition.shared != cuts.replicas.front().partition.shared) fail("its replicas differ in what stages share");
  }
  if (cuts.shown < 0 || cuts.shown >= plan.replicas || cuts.replicas[static_cast<std::size_t>(cuts.shown)].partition != plan.partition)
    fail("its partition is not that of the slowest replica");
  const auto stages = static_cast<std::int32_t>(plan.partition.stages.size());
  for (const SummedParameters& together : cuts.summed) {
    if (together.stages.size() != count || together.bytes < 0) fail("it does not say where parameters are that replicas sum together");
    for (const Stage stage : together.stages) {
      if (stage.value < 0 || stage.value >= stages) fail("replicas sum parameters of a stage that does not exist");
    }
  }
}

}  // namespace

void requireConsistent(const Plan& plan, const std::function<void(const std::string& what)>& fail) {
  if (plan.replicas < 1 || plan.replicas > kMaxReplicas)
    fail(fmt::format("it has {} replicas; there are 1 to {}", plan.replicas, kMaxReplicas));
  if (plan.microbatchSize < 1 || plan.batch < std::int64_t{plan.replicas} * plan.schedule.microbatches)
    fail("the batch is smaller than its number of microbatches");
  checkCut(plan, plan.partition, plan.splitNames, plan.costs, fail);
  if (plan.cuts) checkCuts(plan, *plan.cuts, fail);
}

}  // namespace pw
