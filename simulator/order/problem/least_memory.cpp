#include "simulator/order/problem/least_memory.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/lower.h"
#include "simulator/order/problem/index.h"
#include "simulator/order/problem/made_schedules.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/step/compile.h"

namespace pw {
namespace {

constexpr int kMostPairs = 4'000'000;  ///< (stage, microbatch) pairs: about 2 GB

/// An action of one microbatch on a rank.
struct Part {
  Stage stage;
  ActionKind kind;
};

/// Bytes of one microbatch in one stage.
struct StageNeed {
  Stage stage;
  Bytes kept, after;                    ///< between F and I, between I and W
  Bytes forward, whole, input, weight;  ///< while it is in F, B, I and W
};

StageNeed needOf(const StageCost& cost, Stage stage) {
  const Bytes kept = cost.activationBytes, after = heldForWeight(cost);
  return {stage,
          kept,
          after,
          std::max(kept, cost.forwardPeak),
          kept + std::max<Bytes>(0, cost.backwardPeak),
          std::max(kept + std::max<Bytes>(0, cost.inputPeak), after),
          after + std::max<Bytes>(0, cost.weightPeak)};
}

bool needsNoMore(const StageNeed& a, const StageNeed& b) {
  return a.kept <= b.kept && a.after <= b.after && a.forward <= b.forward && a.whole <= b.whole && a.input <= b.input &&
         a.weight <= b.weight;
}

/// Actions of one microbatch within a limit, its F done before.
class Backwards {
 public:
  Backwards(Bytes held, Bytes limit, std::vector<Part>& parts) : held_(held), limit_(limit), parts_(parts) {}

  /// False: does not fit.
  bool add(const StageNeed& stage) {
    const Bytes others = held_ - stage.kept;
    const bool inputFits = others + stage.input <= limit_;
    if (others + stage.whole <= limit_ && !(inputFits && others + stage.weight <= limit_)) {
      parts_.push_back({stage.stage, ActionKind::Backward});
      held_ = others;
    } else {
      if (!inputFits) return false;
      parts_.push_back({stage.stage, ActionKind::BackwardInput});
      held_ = others + stage.after;
      waiting_.push_back(stage);
    }
    addWeights();
    return true;
  }
  [[nodiscard]] bool done() const { return waiting_.empty(); }

 private:
  /// All that fit: each leaves more room for the others.
  void addWeights() {
    for (std::size_t i = 0; i < waiting_.size();) {
      const StageNeed stage = waiting_[i];
      if (held_ - stage.after + stage.weight > limit_) {
        ++i;
        continue;
      }
      parts_.push_back({stage.stage, ActionKind::BackwardWeight});
      held_ -= stage.after;
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    }
  }

  Bytes held_, limit_;
  std::vector<Part>& parts_;
  std::vector<StageNeed> waiting_;  ///< for their W
};

/// A rank's actions for one microbatch, within a limit; empty where they do not fit. `stages`: ascending.
std::vector<Part> partsWithin(const std::vector<StageNeed>& stages, Bytes limit) {
  std::vector<Part> parts;
  Bytes held = 0;
  for (const StageNeed& stage : stages) {
    if (held + stage.forward > limit) return {};
    parts.push_back({stage.stage, ActionKind::Forward});
    held += stage.kept;
  }
  Backwards backwards(held, limit, parts);
  for (std::size_t s = stages.size(); s-- > 0;) {
    if (!backwards.add(stages[s])) return {};
  }
  return backwards.done() ? parts : std::vector<Part>{};
}

/// The least limit within which they fit.
Bytes leastLimit(const std::vector<StageNeed>& stages) {
  Bytes enough = 0;
  for (const StageNeed& stage : stages) enough += std::max({stage.forward, stage.input, stage.whole, stage.weight});
  Bytes tooLittle = -1;
  while (!stages.empty() && enough - tooLittle > 1) {
    const Bytes middle = tooLittle + (enough - tooLittle) / 2;
    (partsWithin(stages, middle).empty() ? tooLittle : enough) = middle;
  }
  return enough;
}

std::vector<std::vector<StageNeed>> needsOf(const Placement& placement, int ranks, const CostTable& costs) {
  std::vector<std::vector<StageNeed>> needs(at(ranks));
  for (std::size_t s = 0; s < costs.stages.size(); ++s)
    needs[placement.rankOfStage[s].index()].push_back(needOf(costs.stages[s], Stage(s)));
  return needs;
}

/// By the arguments of `smallestSchedule`, without buffers.
Schedule mixedSchedule(const Placement& placement, int ranks, int microbatches, const CostTable& costs) {
  Schedule schedule{std::string(kAutoSchedule), microbatches, placement, {}, false};
  for (const std::vector<StageNeed>& stages : needsOf(placement, ranks, costs)) {
    auto& row = schedule.rows.emplace_back();
    const std::vector<Part> parts = partsWithin(stages, leastLimit(stages));
    for (int m = 0; m < microbatches; ++m) {
      for (const Part& part : parts) row.push_back({part.stage, part.kind, Microbatch(m)});
    }
  }
  return schedule;
}

/// The stages of a rank that may recompute but then need more at some action: which of them do, so that the rank needs the least.
void chooseSmallest(const std::vector<StageNeed>& without, const std::vector<StageNeed>& with, std::vector<bool>& recomputed) {
  constexpr std::size_t kFew = 10;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < with.size(); ++i) {
    if (recomputed[with[i].stage.index()] && !needsNoMore(with[i], without[i])) open.push_back(i);
  }
  if (open.empty() || open.size() > kFew) return;
  std::vector<StageNeed> stages(without);
  for (std::size_t i = 0; i < with.size(); ++i) {
    if (recomputed[with[i].stage.index()]) stages[i] = with[i];
  }
  Bytes best = leastLimit(stages);
  std::size_t chosen = 0;  // bits of those that do not
  for (std::size_t bits = 1; bits < std::size_t{1} << open.size(); ++bits) {
    for (std::size_t i = 0; i < open.size(); ++i) stages[open[i]] = (bits >> i & 1) != 0 ? without[open[i]] : with[open[i]];
    const Bytes limit = leastLimit(stages);
    if (limit >= best) continue;
    best = limit;
    chosen = bits;
  }
  for (std::size_t i = 0; i < open.size(); ++i) {
    if ((chosen >> i & 1) != 0) recomputed[with[open[i]].stage.index()] = false;
  }
}

}  // namespace

std::optional<Impossible> tooManyForOrder(std::size_t stages, int microbatches) {
  if (static_cast<double>(stages) * microbatches <= kMostPairs) return std::nullopt;
  return Impossible{fmt::format("{} stages and {} microbatches are too many to search an order for; use fewer than {} of both multiplied",
                                stages, microbatches, kMostPairs)};
}

Schedule serialSchedule(const Placement& placement, int ranks, int microbatches) {
  if (const auto no = tooManyForOrder(placement.stages(), microbatches)) refuse(*no);
  Schedule schedule{std::string(kAutoSchedule), microbatches, placement, std::vector<std::vector<Action>>(at(ranks)), false};
  const auto add = [&](std::size_t s, ActionKind kind, int m) {
    schedule.rows[placement.rankOfStage[s].index()].push_back({Stage(s), kind, Microbatch(m)});
  };
  for (int m = 0; m < microbatches; ++m) {
    for (std::size_t s = 0; s < placement.stages(); ++s) add(s, ActionKind::Forward, m);
    for (std::size_t s = placement.stages(); s-- > 0;) {
      add(s, ActionKind::BackwardInput, m);
      add(s, ActionKind::BackwardWeight, m);
    }
  }
  return schedule;
}

Schedule smallestSchedule(const Placement& placement, int ranks, int microbatches, const CostTable& costs) {
  Schedule schedule = serialSchedule(placement, ranks, microbatches);
  std::vector<Bytes> least = compile(schedule, costs).peakBytes;
  std::array others{mergeBackward(schedule), mixedSchedule(placement, ranks, microbatches, costs)};
  for (Schedule& other : others) {
    if (other.rows == schedule.rows) continue;
    const std::vector<Bytes> peaks = compile(other, costs).peakBytes;
    for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
      if (peaks[r] >= least[r]) continue;
      least[r] = peaks[r];
      schedule.rows[r] = std::move(other.rows[r]);
    }
  }
  return schedule;
}

std::vector<bool> smallestRecomputation(const OrderProblem& problem) {
  std::vector<bool> recomputed;
  for (const Recomputed choice : openChoice(problem)) recomputed.push_back(choice == Recomputed::Open);
  if (problem.recomputed.empty()) return recomputed;
  const auto without = needsOf(problem.placement, problem.ranks, problem.costs),
             with = needsOf(problem.placement, problem.ranks, withRecomputation(problem, recomputed));
  for (std::size_t r = 0; r < with.size(); ++r) chooseSmallest(without[r], with[r], recomputed);
  return recomputed;
}

std::optional<TooSmall> tooSmall(const OrderProblem& problem) {
  const CostTable costs = withRecomputation(problem, smallestRecomputation(problem));
  const Program program = compile(smallestSchedule(problem.placement, problem.ranks, problem.microbatches, costs), costs);
  for (std::size_t r = 0; r < at(problem.ranks); ++r) {
    if (!problem.limits.empty() && program.peakBytes[r] > problem.limits[r]) return TooSmall{Rank(r), program.peakBytes[r], 0};
    if (!problem.liveLimits.empty() && program.peakLive[r] > problem.liveLimits[r]) return TooSmall{Rank(r), 0, program.peakLive[r]};
  }
  return std::nullopt;
}

}  // namespace pw
