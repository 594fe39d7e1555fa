#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/report/limited_bound.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

constexpr Ns kFar = std::numeric_limits<Ns>::max();

/// Which backwards a schedule has; with both kinds, the shorter times bound it.
struct Style {
  bool full = false;   ///< B
  bool split = false;  ///< I and W

  [[nodiscard]] bool forwardOnly() const { return !full && !split; }
};

Style styleOf(const Schedule& schedule) {
  Style style;
  for (const auto& row : schedule.rows) {
    for (const Action& action : row) {
      style.full = style.full || action.kind == ActionKind::Backward;
      style.split = style.split || action.kind == ActionKind::BackwardInput || action.kind == ActionKind::BackwardWeight;
    }
  }
  return style;
}

/// The part of a backward that must finish before its gradients are sent.
Ns gradientTime(const StageCost& cost, const Style& style) {
  if (style.full && style.split) return std::min(cost.backward, cost.backwardInput);
  if (style.full) return cost.backward;
  return style.split ? cost.backwardInput : 0;
}

Ns durationOf(const StageCost& cost, ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward: return cost.forward;
    case ActionKind::Backward: return cost.backward;
    case ActionKind::BackwardInput: return cost.backwardInput;
    case ActionKind::BackwardWeight: return cost.backwardWeight;
    case ActionKind::SendForward:
    case ActionKind::RecvForward:
    case ActionKind::SendBackward:
    case ActionKind::RecvBackward:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Idle: break;
  }
  return 0;
}

/// Longest chains of one microbatch, by stage.
struct Chains {
  std::vector<Ns> beforeForward;  ///< before F starts
  std::vector<Ns> afterForward;   ///< after F ends, in a forward-only schedule
  std::vector<Ns> afterBackward;  ///< after B (or I) ends
  Ns whole = 0;
};

Chains chains(const Schedule& schedule, const CostTable& costs, const Style& style, double factor) {
  const std::size_t stages = costs.stages.size();
  const auto forward = [&](std::size_t s) { return scaled(costs.stages[s].forward, factor); };
  const auto backward = [&](std::size_t s) { return scaled(gradientTime(costs.stages[s], style), factor); };
  const auto hop = [&](const MessageCost& m) {
    const bool local = schedule.placement.rankOfStage[m.from.index()] == schedule.placement.rankOfStage[m.to.index()];
    return local ? 0 : m.latency + scaled(m.transfer, factor);
  };
  // Messages by the stage they leave; forward ones lead to later stages, backward ones to earlier.
  std::vector<const MessageCost*> messages;
  for (const MessageCost& m : costs.messages) messages.push_back(&m);
  std::stable_sort(messages.begin(), messages.end(), [](const MessageCost* a, const MessageCost* b) { return a->from < b->from; });

  Chains c{std::vector<Ns>(stages, 0), std::vector<Ns>(stages, 0), std::vector<Ns>(stages, 0), 0};
  for (const MessageCost* m : messages) {
    if (m->backward) continue;
    Ns& before = c.beforeForward[m->to.index()];
    before = std::max(before, c.beforeForward[m->from.index()] + forward(m->from.index()) + hop(*m));
  }
  const std::vector<const MessageCost*> fromLast(messages.rbegin(), messages.rend());
  for (const MessageCost* m : fromLast) {
    if (m->backward) continue;
    Ns& after = c.afterForward[m->from.index()];
    after = std::max(after, hop(*m) + forward(m->to.index()) + c.afterForward[m->to.index()]);
  }
  if (!style.forwardOnly()) {
    // Where every backward is split a W follows each I.
    for (std::size_t s = 0; s < stages; ++s) c.afterBackward[s] = style.full ? 0 : scaled(costs.stages[s].backwardWeight, factor);
    for (const MessageCost* m : messages) {
      if (!m->backward) continue;
      Ns& after = c.afterBackward[m->from.index()];
      after = std::max(after, hop(*m) + backward(m->to.index()) + c.afterBackward[m->to.index()]);
    }
  }
  std::vector<Ns> beforeBackward(stages, 0);
  for (std::size_t s = 0; s < stages; ++s) beforeBackward[s] = c.beforeForward[s] + forward(s);
  for (const MessageCost* m : fromLast) {
    if (!m->backward || style.forwardOnly()) continue;
    Ns& before = beforeBackward[m->to.index()];
    before = std::max(before, beforeBackward[m->from.index()] + backward(m->from.index()) + hop(*m));
  }
  for (std::size_t s = 0; s < stages; ++s) c.whole = std::max(c.whole, beforeBackward[s] + backward(s) + c.afterBackward[s]);
  return c;
}

/// Bounds of an order without limits: its longest microbatch, and each rank's work.
LowerBounds unlimited(const Schedule& schedule, const CostTable& costs, const Style& style) {
  std::vector<double> factors = costs.microbatchScale;
  if (factors.empty()) factors.assign(static_cast<std::size_t>(schedule.microbatches), 1.0);
  const auto [smallest, largest] = std::minmax_element(factors.begin(), factors.end());
  // Any microbatch may be first or last on a rank, so those chains are the shortest microbatch's; some microbatch is the longest.
  const Chains least = chains(schedule, costs, style, *smallest);
  LowerBounds bounds{chains(schedule, costs, style, *largest).whole, 0};

  struct Load {
    Ns chain = 0;   ///< F, B and I: the last of them is followed by the backwards of earlier stages
    Ns weight = 0;  ///< W
    Ns before = kFar;
    Ns after = kFar;
  };
  std::vector<Load> loads(schedule.rows.size());
  for (std::size_t r = 0; r < loads.size(); ++r) {
    bool inSlot = false;  // the second of a slot has no time of its own
    for (const Action& action : schedule.rows[r]) {
      if (!isCompute(action.kind)) continue;
      Ns time = durationOf(costs.stages[action.stage.index()], action.kind);
      if (!costs.overlap.empty() && (inSlot || action.overlapsNext)) time = inSlot ? 0 : costs.overlap[action.stage.index()];
      inSlot = action.overlapsNext;
      (action.kind == ActionKind::BackwardWeight ? loads[r].weight : loads[r].chain) += scaled(time, factors[action.microbatch.index()]);
    }
  }
  for (const auto* ranks : {&schedule.placement.rankOfStage, &schedule.placement.mirrorOfStage}) {
    for (std::size_t s = 0; s < ranks->size(); ++s) {
      Load& load = loads[(*ranks)[s].index()];
      load.before = std::min(load.before, least.beforeForward[s]);
      load.after = std::min(load.after, style.forwardOnly() ? least.afterForward[s] : least.afterBackward[s]);
    }
  }
  for (const Load& load : loads) {
    if (load.before == kFar) continue;  // a rank without stages
    bounds.flush = std::max({bounds.flush, load.before + load.chain + load.after, load.before + load.chain + load.weight});
    bounds.window = std::max(bounds.window, load.chain + load.weight);
  }
  return bounds;
}

}  // namespace

LowerBounds lowerBounds(const Schedule& schedule, const CostTable& costs, std::span<const int> limits, std::span<const Bytes> bytes) {
  requireFitting(schedule, costs);
  if (!bytes.empty() && bytes.size() != schedule.rows.size())
    throw UsageError(fmt::format("{} memory limits were given for {} ranks; give one per rank", bytes.size(), schedule.rows.size()));
  if (!limits.empty() && limits.size() != schedule.rows.size()) {
    throw UsageError(fmt::format("{} limits were given for {} ranks; give one per rank", limits.size(), schedule.rows.size()));
  }
  for (const int limit : limits) {
    if (limit < 1) throw UsageError(fmt::format("with a limit of {} live microbatches nothing can run; use at least 1", limit));
  }
  if (schedule.microbatches < 1) return {};
  const Style style = styleOf(schedule);
  LowerBounds bounds = unlimited(schedule, costs, style);
  if (style.full == style.split || schedule.placement.bidirectional() || !costs.overlap.empty()) return bounds;
  const LowerBounds others = limitedBounds(schedule, costs, style.full, {limits, bytes});
  bounds.window = std::max(bounds.window, others.window);
  bounds.flush = std::max({bounds.flush, others.flush, bounds.window});
  return bounds;
}

Ns lowerBound(const Schedule& schedule, const CostTable& costs) { return lowerBounds(schedule, costs, {}).flush; }

}  // namespace pw
