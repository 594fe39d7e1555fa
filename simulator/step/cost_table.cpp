#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/units.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw {
namespace {

std::vector<Ns> perStage(const std::vector<Ns>& list, std::string_view what, std::size_t stages) {
  for (const Ns time : list) {
    if (time < 0) throw UsageError(fmt::format("a {} time is negative ({} ns); times are 0 or more", what, time.value));
  }
  if (list.empty() || list.size() == stages) return list;
  if (list.size() == 1) return std::vector<Ns>(stages, list.front());
  throw UsageError(fmt::format("{} {} times were given for {} stages; give one time, or one per stage", list.size(), what, stages));
}

void requireStage(Stage stage, std::size_t stages, std::string_view where) {
  if (stage.value < 0 || stage.index() >= stages) {
    throw Error(fmt::format("{} names stage {}, but there are stages 0 to {}", where, stage.value, stages - 1));
  }
}

void requireMessages(const CostTable& costs) {
  for (const MessageCost& message : costs.messages) {
    requireStage(message.from, costs.stages.size(), "a message of the cost table");
    requireStage(message.to, costs.stages.size(), "a message of the cost table");
    if (message.backward ? message.to >= message.from : message.to <= message.from) {
      throw Error(fmt::format(
          "the cost table has a {} message from stage {} to stage {}; forward messages go to later stages, gradients to earlier ones",
          message.backward ? "backward" : "forward", message.from.value, message.to.value));
    }
  }
}

/// Returns how many actions of the row compute.
std::size_t requireRow(const Schedule& schedule, std::size_t rank) {
  std::size_t count = 0;
  for (const Action& action : schedule.rows[rank]) {
    if (!isCompute(action.kind)) continue;
    ++count;
    const auto where = [&] { return fmt::format("schedule `{}`, rank {}, action {}", schedule.name, rank, toString(action)); };
    if (action.stage.value < 0 || action.stage.index() >= schedule.placement.stages())
      requireStage(action.stage, schedule.placement.stages(), where());
    if (action.microbatch.value < 0 || action.microbatch.value >= schedule.microbatches) {
      throw Error(fmt::format("{} is out of range: there are {} microbatches", where(), schedule.microbatches));
    }
    const Rank home = schedule.placement.rankOf(action.stage, action.microbatch);
    if (home.index() != rank) {
      throw Error(fmt::format("{} is on the wrong rank: the stage is placed on rank {}", where(), home.value));
    }
  }
  return count;
}

}  // namespace

void addTimeOfSends(CostTable& costs, const Placement& placement, Ns each) {
  for (const MessageCost& message : costs.messages) {
    if (placement.rankOfStage.at(message.from.index()) == placement.rankOfStage.at(message.to.index())) continue;
    StageCost& sender = costs.stages.at(message.from.index());
    if (message.backward) {
      sender.backward += each;
      sender.backwardInput += each;
    } else {
      sender.forward += each;
    }
  }
}

CostTable syntheticTable(const SyntheticCosts& costs, int stages) {
  if (stages < 1) throw UsageError(fmt::format("{} stages were requested; use at least 1", stages));
  const auto count = static_cast<std::size_t>(stages);
  const std::vector<Ns> forward = perStage(costs.forward, "forward", count);
  const std::vector<Ns> backward = perStage(costs.backward, "backward", count);
  const std::vector<Ns> input = perStage(costs.backwardInput, "backward-input", count);
  const std::vector<Ns> weight = perStage(costs.backwardWeight, "backward-weight", count);
  if (costs.latency < 0 || costs.transfer < 0) throw UsageError("the latency or transfer time is negative; times are 0 or more");
  const auto at = [](const std::vector<Ns>& list, std::size_t s) { return list.empty() ? 0 : list[s]; };

  CostTable table;
  table.overlap = perStage(costs.overlap, "overlapped", count);
  table.stages.resize(count);
  for (std::size_t s = 0; s < count; ++s) {
    StageCost& stage = table.stages[s];
    stage.forward = at(forward, s);
    stage.backwardInput = at(input, s);
    stage.backwardWeight = at(weight, s);
    stage.backward = backward.empty() ? stage.backwardInput + stage.backwardWeight : backward[s];
    if (input.empty() && weight.empty()) stage.backwardInput = stage.backward / 2;
    if (input.empty() && !weight.empty()) stage.backwardInput = std::max<Ns>(0, stage.backward - stage.backwardWeight);
    if (weight.empty()) stage.backwardWeight = std::max<Ns>(0, stage.backward - stage.backwardInput);
    if (s == 0) continue;
    table.messages.push_back({Stage(s - 1), Stage(s), false, 0, costs.latency, costs.transfer});
    table.messages.push_back({Stage(s), Stage(s - 1), true, 0, costs.latency, costs.transfer});
  }
  return table;
}

CostTable defaultCosts(int stages) {
  SyntheticCosts costs;
  costs.forward = {kDefaultForward};
  costs.backward = {kDefaultBackwardRatio * kDefaultForward};
  return syntheticTable(costs, stages);
}

void requireSummable(const CostTable& costs, const Shape& shape) {
  constexpr auto kMost = static_cast<double>(kMostSum);
  double once = 0, each = 0;
  for (const StageCost& c : costs.stages) {
    for (const Ns time : {c.forward, c.backward, c.backwardInput, c.backwardWeight}) each += static_cast<double>(time);
    for (const Bytes bytes : {c.activationBytes, c.addedByInput, c.dataBytes}) each += static_cast<double>(bytes);
    for (const Bytes peak : {c.forwardPeak, c.backwardPeak, c.inputPeak, c.weightPeak}) each += static_cast<double>(peak);
    for (const Ns time : {c.optimizer, c.reduce}) once += static_cast<double>(time);
    for (const Bytes bytes : {c.parameterBytes, c.gradientBytes, c.optimizerBytes, c.updatedBytes, c.fixedBytes})
      once += static_cast<double>(bytes);
  }
  for (const Ns time : costs.overlap) each += static_cast<double>(time);
  for (const MessageCost& m : costs.messages)
    each += static_cast<double>(m.bytes) + static_cast<double>(m.latency) + static_cast<double>(m.transfer);
  each += static_cast<double>(costs.load) + static_cast<double>(costs.store);
  double scale = 1;
  for (const double factor : costs.microbatchScale) scale = std::max(scale, factor);
  if ((once + static_cast<double>(costs.reduceTime) + each * scale * shape.microbatches) * shape.ranks > kMost) {
    throw UsageError(fmt::format("these times or sizes are too large to add up over {} ranks and {} microbatches; use smaller ones",
                                 shape.ranks, shape.microbatches));
  }
}

void requireFitting(const Schedule& schedule, const CostTable& costs) {
  const std::size_t stages = schedule.placement.rankOfStage.size();
  const auto microbatches = static_cast<std::size_t>(std::max(0, schedule.microbatches));
  if (costs.stages.size() != stages) {
    throw Error(fmt::format("the costs are for {} stages, schedule `{}` has {}; make both for the same partition", costs.stages.size(),
                            schedule.name, stages));
  }
  if (!costs.microbatchScale.empty() && costs.microbatchScale.size() != microbatches) {
    throw Error(fmt::format("the costs scale {} microbatches, schedule `{}` has {}; make both for the same batch",
                            costs.microbatchScale.size(), schedule.name, microbatches));
  }
  if (!costs.overlap.empty() && costs.overlap.size() != stages) {
    throw Error(fmt::format("the costs have overlapped times of {} stages, schedule `{}` has {}; give one for each", costs.overlap.size(),
                            schedule.name, stages));
  }
  if (schedule.placement.bidirectional() && schedule.placement.mirrorOfStage.size() != stages) {
    throw Error(fmt::format("schedule `{}` has {} stages and {} second replicas; give one for each", schedule.name, stages,
                            schedule.placement.mirrorOfStage.size()));
  }
  for (std::size_t s = 0; s < stages; ++s) {
    for (const Rank rank : {schedule.placement.rankOfStage[s], schedule.placement.rankOf(Stage(s), schedule.placement.firstMirrored)}) {
      if (rank.value >= 0 && rank.index() < schedule.rows.size()) continue;
      throw Error(fmt::format("schedule `{}` places stage {} on rank {}, but there are {} ranks", schedule.name, s, rank.value,
                              schedule.rows.size()));
    }
  }
  requireMessages(costs);
  std::size_t actions = 0;
  for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) actions += requireRow(schedule, rank);
  // Also prevents a hostile file with one huge id from allocating arrays that it could never fill.
  if (microbatches != 0 && actions / microbatches < stages) {
    throw Error(
        fmt::format("schedule `{}` is incomplete: {} actions for {} stages and {} microbatches; `pipewright check` lists what is missing",
                    schedule.name, actions, stages, microbatches));
  }
  if (schedule.lockstep) requireCycles(schedule);
}

}  // namespace pw
