#include "simulator/job/job_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/job/replay_job.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/text/median.h"

namespace pw {
namespace {

constexpr std::array<Ns StageCost::*, 5> kStageTimes{&StageCost::forward, &StageCost::backward, &StageCost::backwardInput,
                                                     &StageCost::backwardWeight, &StageCost::optimizer};

/// Sums of a stage, of which the means are its costs.
struct Sum {
  std::array<Ns, 4> time{};  ///< by compute kind
  std::array<std::int64_t, 4> count{};

  [[nodiscard]] Ns mean(ActionKind kind) const {
    const auto k = static_cast<std::size_t>(kind);
    return count[k] > 0 ? time[k] / count[k] : Ns{0};
  }
};

void setBackward(const Sum& sum, StageCost& cost) {
  cost.forward = sum.mean(ActionKind::Forward);
  cost.backward = sum.mean(ActionKind::Backward);
  cost.backwardInput = sum.mean(ActionKind::BackwardInput);
  cost.backwardWeight = sum.mean(ActionKind::BackwardWeight);
  if (cost.backward == 0) cost.backward = cost.backwardInput + cost.backwardWeight;
  if (cost.backwardInput + cost.backwardWeight == 0) {
    cost.backwardInput = cost.backward / 2;
    cost.backwardWeight = cost.backward - cost.backwardInput;
  }
}

/// The stage that receives a message, and whether it is a gradient.
using End = std::pair<Stage, bool>;
End endOf(const JobShape::Slot& slot) { return {slot.action.stage, slot.action.kind != ActionKind::Forward}; }

/// The usual times of the copy that the others wait for: as all of them would be simulated.
struct CopyTimes {
  TypicalTimes typical;
  std::size_t first = 0;  ///< slot of the copy

  CopyTimes(const JobShape& shape, const Job& job)
      : typical(typicalTimes(shape, job)), first(slowestCopy(shape, job, typical.times) * shape.slotsOfCopy()) {}
  [[nodiscard]] Ns wait(std::size_t slot) const { return typical.times.waits[first + slot]; }
  [[nodiscard]] Ns action(std::size_t slot) const { return typical.times.actions[first + slot] + wait(slot); }
};

/// The usual time of messages: the median over microbatches.
std::map<End, Ns> linkTimes(const JobShape& shape, const TypicalTimes& typical) {
  std::map<End, std::vector<Ns>> times;
  for (std::size_t s = 0; s < shape.copySlots.size(); ++s) {
    if (shape.copySlots[s].crosses) times[endOf(shape.copySlots[s])].push_back(typical.times.messages[s]);
  }
  std::map<End, Ns> links;
  for (const auto& [end, all] : times) links[end] = *medianOf(all);
  return links;
}

/// Integral of a quantity that is spread evenly within each stage, up to a fraction of the model.
template <class Number>
double upTo(const std::vector<StageCost>& stages, Number StageCost::*time, double fraction) {
  const double at = fraction * static_cast<double>(stages.size());
  double sum = 0;
  for (std::size_t s = 0; s < stages.size(); ++s)
    sum += std::clamp(at - static_cast<double>(s), 0.0, 1.0) * static_cast<double>(stages[s].*time);
  return sum;
}

/// The costs of the stages that the rank holds, in either replica.
std::vector<StageCost*> stagesOf(Rank rank, const Placement& placement, CostTable& costs) {
  std::vector<StageCost*> held;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    if (placement.holds(rank, Stage(s))) held.push_back(&costs.stages[s]);
  }
  return held;
}

/// Gives each stage of the rank an equal part of its operations' time. Of two ranks that hold a stage the longer one counts.
void giveToStages(Ns time, Rank rank, const Placement& placement, CostTable& costs) {
  const std::vector<StageCost*> held = stagesOf(rank, placement, costs);
  const auto stages = std::ssize(held);
  std::int64_t given = 0;
  for (StageCost* stage : held) {
    stage->optimizer = std::max(stage->optimizer, time * (given + 1) / stages - time * given / stages);
    ++given;
  }
}

/// What a trace shows of a rank's memory, as its stages need it: the least of a step stays, and what is above it at most belongs to the
/// microbatches that are alive then. Stages of a rank have equal parts; of two ranks that hold a stage the larger one counts.
void addMemory(const Job& job, CostTable& costs) {
  for (std::size_t r = 0; r < job.memory.size(); ++r) {
    std::map<std::pair<Stage, Microbatch>, ActionKind> last;
    for (const Action& action : job.schedule.rows[r]) last[{action.stage, action.microbatch}] = action.kind;
    std::int64_t alive = 0, most = 0;
    for (const Action& action : job.schedule.rows[r]) {
      if (action.kind == ActionKind::Forward) most = std::max(most, ++alive);
      // The weights' part is the end of a split backward.
      const bool ends = action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight;
      if (ends && last[{action.stage, action.microbatch}] == action.kind) --alive;
    }
    const auto [base, peak] = job.memory[r];
    const std::vector<StageCost*> held = stagesOf(Rank(r), job.schedule.placement, costs);
    for (StageCost* stage : held) {
      stage->parameterBytes = std::max(stage->parameterBytes, base / std::ssize(held));
      stage->activationBytes = std::max(stage->activationBytes, (peak - base) / std::max<std::int64_t>(1, most));
    }
  }
}

/// `stretchOf` with the job's own costs and times of actions.
double stretchWith(const Job& job, const JobStepTimes& times) {
  std::vector<Ns> steps;
  for (const std::size_t k : usualSteps(job)) steps.push_back(job.steps[k].step);
  const Ns usual = *medianOf(std::move(steps)), simulated = stepWith(job.schedule, times);
  return usual > 0 && simulated > 0 ? static_cast<double>(usual) / static_cast<double>(simulated) : 1;
}

void stretch(Ns& time, double factor) { time = Ns(std::llround(static_cast<double>(time) * factor)); }

/// The job's own costs and times of actions, with which its schedule takes as long as its usual step.
JobStepTimes stretchedTimes(const Job& job) {
  JobStepTimes times{costsOf(job), actionTimes(job)};
  const double factor = stretchWith(job, times);
  for (StageCost& stage : times.costs.stages) {
    for (Ns StageCost::*time : kStageTimes) stretch(stage.*time, factor);
  }
  for (MessageCost& message : times.costs.messages) stretch(message.latency, factor);
  for (auto& [action, time] : times.actions) stretch(time, factor);
  return times;
}

std::string partName(std::size_t stage, int part) { return fmt::format("stage{}.part{}", stage, part); }

template <class Number>
Number parts(Number whole, int part) {
  return whole / kPartsOfStage + (part < (whole % kPartsOfStage).value ? Number{1} : Number{0});
}

}  // namespace

CostTable costsOf(const Job& job) {
  const JobShape shape(job);
  const CopyTimes copy(shape, job);
  const TypicalTimes& typical = copy.typical;
  const std::size_t stages = job.schedule.placement.stages();
  CostTable costs;
  costs.stages.resize(stages);
  std::vector<Sum> sums(stages);
  std::vector<Ns> forward(stages), backward(stages);  // messages to each stage
  for (std::size_t s = 0; s < shape.copySlots.size(); ++s) {
    const JobShape::Slot& slot = shape.copySlots[s];
    Sum& sum = sums[slot.action.stage.index()];
    sum.time[static_cast<std::size_t>(slot.action.kind)] += copy.action(s);
    ++sum.count[static_cast<std::size_t>(slot.action.kind)];
  }
  const std::map<End, Ns> links = linkTimes(shape, typical);
  for (const auto& [end, time] : links) (end.second ? backward : forward)[end.first.index()] = time;
  for (std::size_t s = 0; s < stages; ++s) setBackward(sums[s], costs.stages[s]);
  for (std::size_t r = 0; r < shape.ranks; ++r) {
    Ns optimizer = 0;
    for (std::size_t o = 0; o < shape.operations; ++o) {
      const std::size_t at = r * shape.operations + o;
      const JobOperation& operation = job.operations[o];
      if (operation.after[r] > 0 || turnOf(job, operation, r) == OperationTurn::Before)
        optimizer += std::max<Ns>(0, typical.times.operations[at]) + typical.times.operationWaits[at];
    }
    giveToStages(optimizer, Rank(r), job.schedule.placement, costs);
  }
  for (std::size_t s = 1; s < stages; ++s) {
    costs.messages.push_back({Stage(s - 1), Stage(s), false, 0, forward[s], 0});
    costs.messages.push_back({Stage(s), Stage(s - 1), true, 0, backward[s - 1], 0});
  }
  addMemory(job, costs);
  return costs;
}

std::vector<ActionTime> actionTimes(const Job& job) {
  const JobShape shape(job);
  const CopyTimes copy(shape, job);
  const TypicalTimes& typical = copy.typical;
  std::vector<ActionTime> times;
  const std::map<End, Ns> links = linkTimes(shape, typical);
  for (std::size_t s = 0; s < shape.copySlots.size(); ++s) {
    const JobShape::Slot& slot = shape.copySlots[s];
    // A link has one latency: what a message usually takes beyond it delays its action.
    const Ns late = slot.crosses ? std::max<Ns>(0, typical.times.messages[s] - links.at(endOf(slot))) : 0;
    times.emplace_back(slot.action, copy.action(s) + late);
  }
  return times;
}

std::vector<Ns> hostWaits(const Job& job) {
  const JobShape shape(job);
  const CopyTimes copy(shape, job);
  std::vector<Ns> waits(shape.ranks);
  for (std::size_t s = 0; s < shape.copySlots.size(); ++s) waits[shape.copySlots[s].rank.index()] += copy.wait(s);
  return waits;
}

CostTable leastCosts(CostTable costs, const std::vector<ActionTime>& times) {
  constexpr std::array<Ns StageCost::*, 4> kTimes{&StageCost::forward, &StageCost::backward, &StageCost::backwardInput,
                                                  &StageCost::backwardWeight};
  for (const auto& [action, time] : times) {
    Ns& least = costs.stages[action.stage.index()].*kTimes[static_cast<std::size_t>(action.kind)];
    least = std::min(least, time);
  }
  return costs;
}

LowerBounds lowerBoundsOf(const Schedule& rows, const CostTable& costs, const std::vector<ActionTime>& times,
                          const std::vector<RankMetrics>& ranks, std::span<const int> liveLimits, std::span<const Bytes> bytes) {
  LowerBounds bounds = lowerBounds(rows, leastCosts(costs, times), liveLimits, bytes);
  for (const RankMetrics& rank : ranks) {
    if (times.empty()) break;
    bounds.flush = std::max(bounds.flush, rank.busy);
    bounds.window = std::max(bounds.window, rank.busy);
  }
  return bounds;
}

void setActionTimes(const Schedule& rows, const std::vector<ActionTime>& times, Program& program) {
  if (times.empty()) return;
  std::map<Action, Ns> known;
  for (auto [action, time] : times) {
    action.overlapsNext = false;
    known[action] = time;
  }
  const auto timeOf = [&](Action action) {
    action.overlapsNext = false;
    const auto found = known.find(action);
    return found == known.end() ? kUnknownTime : found->second;
  };
  for (std::int32_t lane = 0; lane < program.ranks; ++lane) {
    const auto& row = rows.rows[static_cast<std::size_t>(lane)];
    for (const std::int32_t step : program.stepsOf(lane)) {
      const std::int32_t at = program.origin[static_cast<std::size_t>(step)].index;
      if (at < 0 || !isCompute(row[static_cast<std::size_t>(at)].kind)) continue;
      const auto position = static_cast<std::size_t>(at);
      Ns time = timeOf(row[position]);
      if (beginsSlot(row, position)) {
        const Ns partner = timeOf(row[position + 1]);
        time = time < 0 || partner < 0 ? kUnknownTime : time + partner;
      }
      if (time >= 0) program.duration[static_cast<std::size_t>(step)] = time;
    }
  }
}

CostTable costsCutAt(const CostTable& own, const std::vector<double>& cuts) {
  CostTable costs;
  costs.stages.resize(cuts.size() + 1);
  const auto spread = [&]<class Number>(Number StageCost::*number) {
    Number before = 0;  // rounded, so that all stages together have as much as they had
    for (std::size_t s = 0; s < costs.stages.size(); ++s) {
      const auto until = static_cast<Number>(std::llround(upTo(own.stages, number, s < cuts.size() ? cuts[s] : 1.0)));
      costs.stages[s].*number = until - before;
      before = until;
    }
  };
  for (Ns StageCost::*time : kStageTimes) spread(time);
  spread(&StageCost::parameterBytes);
  spread(&StageCost::activationBytes);
  for (std::size_t s = 1; s < costs.stages.size(); ++s) {
    Ns forward = 0, backward = 0;
    if (own.stages.size() > 1) {
      const double at = cuts[s - 1] * static_cast<double>(own.stages.size());
      const auto cut = static_cast<std::size_t>(std::clamp(std::llround(at), 1LL, static_cast<long long>(own.stages.size()) - 1));
      forward = own.messages[2 * (cut - 1)].latency;
      backward = own.messages[2 * (cut - 1) + 1].latency;
    }
    costs.messages.push_back({Stage(s - 1), Stage(s), false, 0, forward, 0});
    costs.messages.push_back({Stage(s), Stage(s - 1), true, 0, backward, 0});
  }
  return costs;
}

void requireBackwards(const Job& job) {
  if (trains(job.schedule)) return;
  throw UsageError(fmt::format(
      "the steps of {} are forwards alone, and say nothing of how long backwards take; simulate --schedule forward-only of them, "
      "or give a trace of training steps",
      job.name));
}

double stretchOf(const Job& job) { return stretchWith(job, {costsOf(job), actionTimes(job)}); }

JobStepTimes timesFor(const Job& job, const Schedule& schedule) {
  if (trains(schedule)) requireBackwards(job);
  JobStepTimes times = stretchedTimes(job);
  const std::size_t stages = schedule.placement.stages();
  if (stages != job.schedule.placement.stages()) {
    std::vector<double> cuts;
    for (std::size_t s = 1; s < stages; ++s) cuts.push_back(static_cast<double>(s) / static_cast<double>(stages));
    times.costs = costsCutAt(times.costs, cuts);
  }
  // Microbatches differ, and their times are known where they do the same on the same ranks.
  if (schedule.placement != job.schedule.placement || schedule.microbatches != job.schedule.microbatches) times.actions.clear();
  return times;
}

Ns stepWith(const Schedule& schedule, const JobStepTimes& times) {
  const Schedule rows = rowsOf(schedule, Sending::Overlapped);
  Program program = compile(rows, times.costs, Sending::Overlapped);
  setActionTimes(rows, times.actions, program);
  Times at;
  execute(program, at);
  return stepOf(rows, times.costs, program, at);
}

bool isOfJob(const LayerTable& table) {
  for (std::size_t i = 0; i < table.layers.size(); ++i) {
    if (table.layers[i].name != partName(i / kPartsOfStage, static_cast<int>(i % kPartsOfStage))) return false;
  }
  return !table.layers.empty() && table.layers.size() % kPartsOfStage == 0;
}

LayerTable layersOf(const Job& job) {
  const CostTable costs = stretchedTimes(job).costs;
  if (costs.stages.size() * static_cast<std::size_t>(kPartsOfStage) > kMostLayers)
    throw UsageError(fmt::format("{} has {} stages, too many for a layer table", job.name, costs.stages.size()));
  std::vector<Ns> links;
  for (const MessageCost& message : costs.messages) links.push_back(message.latency);
  const Ns usual = medianOf(links).value_or(0);
  LayerTable table;
  table.name = job.name;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost& stage = costs.stages[s];
    for (int part = 0; part < kPartsOfStage; ++part) {
      Layer& layer = table.layers.emplace_back();
      layer.name = partName(s, part);
      layer.module = fmt::format("stage{}", s);
      layer.forward = parts(stage.forward, part);
      layer.input = parts(stage.backwardInput, part);
      layer.weight = parts(stage.backwardWeight, part);
      layer.parameters = parts(stage.parameterBytes, part);
      layer.activations = layer.afterInput = parts(stage.activationBytes, part);
      const bool atCut = part + 1 == kPartsOfStage && s + 1 < costs.stages.size();
      layer.optimizer = parts(stage.optimizer, part);
      layer.sent = atCut ? std::max(costs.messages[2 * s].latency, costs.messages[2 * s + 1].latency) : usual;
    }
  }
  return table;
}

}  // namespace pw
