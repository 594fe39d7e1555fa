#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"

namespace pw {
namespace {

constexpr Ns kFar = std::numeric_limits<Ns>::max();

/// Which backwards a schedule has; with both kinds, the shorter times bound it.
struct Style {
  bool full = false;   ///< B
  bool split = false;  ///< I and W

  [[nodiscard]] bool forwardOnly() const { return !full && !split; }
};

Ns scaled(Ns time, double factor) { return factor == 1.0 ? time : static_cast<Ns>(std::llround(static_cast<double>(time) * factor)); }

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
  for (auto m = messages.rbegin(); m != messages.rend(); ++m) {
    if ((*m)->backward) continue;
    Ns& after = c.afterForward[(*m)->from.index()];
    after = std::max(after, hop(**m) + forward((*m)->to.index()) + c.afterForward[(*m)->to.index()]);
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
  for (auto m = messages.rbegin(); m != messages.rend(); ++m) {
    if (!(*m)->backward || style.forwardOnly()) continue;
    Ns& before = beforeBackward[(*m)->to.index()];
    before = std::max(before, beforeBackward[(*m)->from.index()] + backward((*m)->from.index()) + hop(**m));
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

// ---- Memory limits ------------------------------------------------------------------------------------------------

/// Times of one stage's actions; a full backward is all input.
struct Parts {
  Ns forward = 0, input = 0, weight = 0;

  Parts& operator+=(const Parts& other) {
    forward += other.forward;
    input += other.input;
    weight += other.weight;
    return *this;
  }
};

Parts partsOf(const StageCost& cost, const Style& style, double factor) {
  return {scaled(cost.forward, factor), scaled(style.full ? cost.backward : cost.backwardInput, factor),
          style.full ? 0 : scaled(cost.backwardWeight, factor)};
}

/// How long one microbatch takes at least along the stages: every stage hands on to the next, and back.
struct Way {
  std::vector<Parts> least;  ///< by stage: of any microbatch
  std::vector<Ns> there;     ///< from the start of stage 0's F to the start of this one's
  std::vector<Ns> back;      ///< from the end of this one's I (or B) to the end of stage 0's

  /// From the start of F of one stage to the start of I of another, through the last stage.
  [[nodiscard]] Ns roundTrip(std::size_t from, std::size_t to) const {
    return there.back() - there[from] + least.back().forward + least.back().input + back.back() - back[to] - least[to].input;
  }
};

/// Nothing where two neighbours exchange no messages: then a stage need not wait for those after it.
std::optional<Way> wayOf(const Schedule& schedule, const CostTable& costs, const Style& style, double factor) {
  const std::size_t stages = costs.stages.size();
  constexpr Ns kNone = -1;
  std::vector<Ns> up(stages, kNone), down(stages, kNone);  // hops from each stage to the next, and back
  for (const MessageCost& m : costs.messages) {
    const std::size_t lower = std::min(m.from, m.to).index();
    if (std::max(m.from, m.to).index() != lower + 1) continue;
    const auto& place = schedule.placement.rankOfStage;
    Ns& hop = (m.backward ? down : up)[lower];
    hop = std::max(hop, place[lower] == place[lower + 1] ? 0 : m.latency + scaled(m.transfer, factor));
  }
  Way way{std::vector<Parts>(stages), std::vector<Ns>(stages, 0), std::vector<Ns>(stages, 0)};
  for (std::size_t s = 0; s < stages; ++s) way.least[s] = partsOf(costs.stages[s], style, factor);
  for (std::size_t s = 1; s < stages; ++s) {
    if (up[s - 1] == kNone || down[s - 1] == kNone) return std::nullopt;
    way.there[s] = way.there[s - 1] + way.least[s - 1].forward + up[s - 1];
    way.back[s] = way.back[s - 1] + way.least[s - 1].input + down[s - 1];
  }
  return way;
}

/// The work of a rank: the total times, and the extremes over its (stage, microbatch) pairs.
struct RankWork {
  std::size_t first = 0, last = 0;  ///< its outermost stages
  std::int64_t pairs = 0;
  Parts all, most;
  Ns mostAfter = 0;                           ///< I and W of one pair
  Ns leastForward = kFar, leastDeath = kFar;  ///< between two births, and two deaths (W or B)
  Ns lives = 0, leastLife = kFar;             ///< from the start of F to the end of W (or B): all pairs together, and the shortest
};

std::vector<RankWork> workOf(const Schedule& schedule, const CostTable& costs, const Style& style, const Way& way,
                             const std::vector<double>& factors) {
  std::vector<RankWork> ranks(schedule.rows.size());
  const double largest = *std::max_element(factors.begin(), factors.end());
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    RankWork& rank = ranks[schedule.placement.rankOfStage[s].index()];
    if (rank.pairs == 0) rank.first = s;
    rank.last = s;
    rank.pairs += schedule.microbatches;
    for (const double factor : factors) rank.all += partsOf(costs.stages[s], style, factor);
    const Parts most = partsOf(costs.stages[s], style, largest);
    rank.most = {std::max(rank.most.forward, most.forward), std::max(rank.most.input, most.input), std::max(rank.most.weight, most.weight)};
    rank.mostAfter = std::max(rank.mostAfter, most.input + most.weight);
    const Parts& least = way.least[s];
    const Ns life = way.roundTrip(s, s) + least.input + least.weight;
    rank.lives += life * schedule.microbatches;
    rank.leastLife = std::min(rank.leastLife, life);
    rank.leastForward = std::min(rank.leastForward, least.forward);
    rank.leastDeath = std::min(rank.leastDeath, style.full ? least.input : least.weight);
  }
  return ranks;
}

/// From the rank's first start to the end of its last I (or B), and to that of all its work. With k pairs live:
/// - its first action is an F of its first stage, its first I one of its last stage a round trip later; until then it can only do k Fs;
/// - its last F is one of its last stage; until the I of that microbatch in its first stage it can only do what k − 1 others have left,
///   and the W of all but k pairs were done before it;
/// - with more than k pairs some pair ended before the last F, so the two lie one after the other; else only the longer one counts;
/// - k pairs at a time live through all their lives: one of k places sees the most of them, or, on average over the places, all lives
///   and the time until the j-th place is first taken (j − 1 Fs) and after it was last left (as many W or B).
struct RankSpan {
  Ns toLastInput = 0, toEnd = 0;
};
RankSpan spanOf(const RankWork& rank, const Way& way, std::int64_t limit, bool whole) {
  const std::int64_t live = std::min(limit, rank.pairs);
  const Ns begin = std::max<Ns>(0, way.roundTrip(rank.first, rank.last) - live * rank.most.forward);
  const Ns turn = way.roundTrip(rank.last, rank.first) - way.least[rank.last].forward;
  const auto idle = [&](Ns othersLeft) {
    const Ns end = std::max<Ns>(0, turn - (live - 1) * othersLeft);
    return rank.pairs > live ? begin + end : std::max(begin, end);
  };
  const Ns work = rank.all.forward + rank.all.input;
  RankSpan span{work + std::max<Ns>(0, rank.all.weight - live * rank.most.weight) + idle(rank.most.input),
                work + rank.all.weight + idle(rank.mostAfter)};
  const auto shared = [&](Ns time) { return (time + live - 1) / live; };
  const Ns ramps = (live - 1) * (rank.leastForward + rank.leastDeath) / 2;  // on average
  span.toEnd = std::max({span.toEnd, shared(rank.lives) + ramps, shared(rank.pairs) * rank.leastLife});
  if (whole) span.toLastInput = span.toEnd;
  return span;
}

/// Each rank's span from its own first action, and around the span of a rank further along the pipeline, there and back.
LowerBounds limited(const Schedule& schedule, const CostTable& costs, const Style& style, std::span<const int> limits) {
  std::vector<double> factors = costs.microbatchScale;
  if (factors.empty()) factors.assign(static_cast<std::size_t>(schedule.microbatches), 1.0);
  const std::optional<Way> way = wayOf(schedule, costs, style, *std::min_element(factors.begin(), factors.end()));
  LowerBounds bounds;
  if (!way) return bounds;
  const std::vector<RankWork> ranks = workOf(schedule, costs, style, *way, factors);
  Ns furthest = 0;  // of this and all later stages: from the start of stage 0's first F to the end of its last I
  for (std::size_t s = costs.stages.size(); s-- > 0;) {
    const std::size_t r = schedule.placement.rankOfStage[s].index();
    const RankWork& rank = ranks[r];
    if (rank.first != s) continue;
    const RankSpan span = spanOf(rank, *way, limits.empty() ? rank.pairs : limits[r], style.full);
    furthest = std::max(furthest, way->there[s] + span.toLastInput + way->back[s]);
    const Ns window = std::max(span.toEnd, furthest - way->there[s] - way->back[s] + way->least[s].weight);
    bounds.window = std::max(bounds.window, window);
    bounds.flush = std::max(bounds.flush, way->there[s] + window);
  }
  return bounds;
}

}  // namespace

LowerBounds lowerBounds(const Schedule& schedule, const CostTable& costs, std::span<const int> limits) {
  requireFitting(schedule, costs);
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
  const LowerBounds others = limited(schedule, costs, style, limits);
  bounds.window = std::max(bounds.window, others.window);
  bounds.flush = std::max({bounds.flush, others.flush, bounds.window});
  return bounds;
}

Ns lowerBound(const Schedule& schedule, const CostTable& costs) { return lowerBounds(schedule, costs, {}).flush; }

}  // namespace pw
