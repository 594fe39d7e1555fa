#include "simulator/report/limited_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "simulator/step/recost.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

constexpr Ns kLargest = std::numeric_limits<Ns>::max();
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

/// Times of one stage's actions; a whole backward is all input.
struct Parts {
  Ns forward = 0, input = 0, weight = 0;

  Parts& operator+=(const Parts& other) {
    forward += other.forward;
    input += other.input;
    weight += other.weight;
    return *this;
  }
};

Parts partsOf(const StageCost& cost, bool whole, double factor) {
  return {scaled(cost.forward, factor), scaled(whole ? cost.backward : cost.backwardInput, factor),
          whole ? 0 : scaled(cost.backwardWeight, factor)};
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
std::optional<Way> wayOf(const Schedule& schedule, const CostTable& costs, bool whole, double factor) {
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
  for (std::size_t s = 0; s < stages; ++s) way.least[s] = partsOf(costs.stages[s], whole, factor);
  for (std::size_t s = 1; s < stages; ++s) {
    if (up[s - 1] == kNone || down[s - 1] == kNone) return std::nullopt;
    way.there[s] = way.there[s - 1] + way.least[s - 1].forward + up[s - 1];
    way.back[s] = way.back[s - 1] + way.least[s - 1].input + down[s - 1];
  }
  return way;
}

/// Work that can wait in memory: so many pieces at most, each with its time and bytes.
struct Piece {
  Ns time = 0;
  Bytes bytes = 0;
};

/// The most work that fits into these bytes, at most `count` of each piece. Of several pieces as if they could be cut (Dantzig, Operations
/// Research 5, 1957), which is no less.
Ns mostWork(std::vector<Piece> pieces, std::int64_t count, Bytes bytes) {
  if (pieces.size() == 1 && pieces.front().bytes > 0)
    return pieces.front().time * std::clamp<std::int64_t>(bytes / pieces.front().bytes, 0, count);
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return static_cast<double>(a.time) * static_cast<double>(b.bytes) > static_cast<double>(b.time) * static_cast<double>(a.bytes);
  });
  Ns work = 0;
  for (const Piece& piece : pieces) {
    if (piece.bytes <= 0) {
      work += piece.time * count;
      continue;
    }
    const double fitting =
        std::min(static_cast<double>(count), static_cast<double>(std::max<Bytes>(0, bytes)) / static_cast<double>(piece.bytes));
    work += static_cast<Ns>(std::ceil(fitting * static_cast<double>(piece.time)));
    bytes -= static_cast<Bytes>(std::floor(fitting * static_cast<double>(piece.bytes)));
  }
  return work;
}

/// The work of a rank: the total times, the extremes over its (stage, microbatch) pairs, and what it may hold.
struct RankWork {
  std::size_t first = 0, last = 0;  ///< its outermost stages
  std::int64_t pairs = 0, microbatches = 0;
  Parts all, most;
  Ns mostAfter = 0;                                   ///< I and W of one pair
  Ns leastForward = kLargest, leastDeath = kLargest;  ///< between two births, and two deaths (W or B)
  Ns lives = 0, leastLife = kLargest;                 ///< from the start of F to the end of W (or B): all pairs together, and the shortest
  long double area = 0;                               ///< the same times the bytes held meanwhile
  std::int64_t live = kUnlimited;                     ///< pairs that it may hold
  Bytes bytes{kUnlimited};                            ///< that its pairs may hold, and at least do: before I, after it
  Bytes firstHeld = 0, allHeld = 0, leastHeld{kUnlimited};
  std::vector<Piece> forwards, inputs, weights, rest;  ///< by its stages: with the bytes held before I, or the fewer of before and after;
                                                       ///< `rest`: I and W before I, W after it
};

void addStage(RankWork& rank, const StageCost& cost, std::size_t s, bool whole, const Way& way, double largest) {
  if (rank.pairs == 0) {
    rank.first = s;
    rank.firstHeld = cost.activationBytes;
  }
  rank.last = s;
  rank.pairs += rank.microbatches;
  const Parts most = partsOf(cost, whole, largest);
  rank.most = {std::max(rank.most.forward, most.forward), std::max(rank.most.input, most.input), std::max(rank.most.weight, most.weight)};
  rank.mostAfter = std::max(rank.mostAfter, most.input + most.weight);
  const Parts& least = way.least[s];
  const Ns untilWeight = way.roundTrip(s, s) + least.input, life = untilWeight + least.weight;
  // Of chunks on one rank each round trip takes in the others': a sum beyond 64 bits is cut, which bounds less.
  const long double lives =
      static_cast<long double>(rank.lives) + static_cast<long double>(life) * static_cast<long double>(rank.microbatches);
  rank.lives = lives < static_cast<long double>(kLargest / 4) ? rank.lives + life * rank.microbatches : kLargest / 4;
  rank.leastLife = std::min(rank.leastLife, life);
  rank.leastForward = std::min(rank.leastForward, least.forward);
  rank.leastDeath = std::min(rank.leastDeath, whole ? least.input : least.weight);
  const Bytes before = cost.activationBytes, after = whole ? before : heldForWeight(cost);
  rank.area += static_cast<long double>(rank.microbatches) * (static_cast<long double>(before) * static_cast<long double>(untilWeight) +
                                                              static_cast<long double>(after) * static_cast<long double>(least.weight));
  rank.allHeld += before * rank.microbatches;
  rank.leastHeld = std::min({rank.leastHeld, before, after});
  rank.forwards.push_back({most.forward, before});
  rank.inputs.push_back({most.input, before});
  rank.weights.push_back({most.weight, std::min(before, after)});
  rank.rest.push_back({most.input + most.weight, before});
  if (!whole) rank.rest.push_back({most.weight, after});
}

std::vector<RankWork> workOf(const Schedule& schedule, const CostTable& costs, bool whole, const Way& way,
                             const std::vector<double>& factors, const RankLimits& limits) {
  std::vector<RankWork> ranks(schedule.rows.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].microbatches = schedule.microbatches;
    if (!limits.live.empty()) ranks[r].live = limits.live[r];
    if (!limits.bytes.empty() && limits.bytes[r] > 0)
      ranks[r].bytes = limits.bytes[r] - heldThroughout(schedule.placement, schedule.microbatches, costs, Rank(r));
  }
  const double largest = *std::max_element(factors.begin(), factors.end());
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    RankWork& rank = ranks[schedule.placement.rankOfStage[s].index()];
    const StageCost& cost = costs.stages[s];
    for (const double factor : factors) rank.all += partsOf(cost, whole, factor);
    addStage(rank, cost, s, whole, way, largest);
  }
  for (RankWork& rank : ranks) {
    if (rank.pairs == 0) continue;
    rank.bytes = std::max<Bytes>(rank.bytes, 0);
    if (rank.leastHeld > 0) rank.live = std::min(rank.live, std::max<std::int64_t>(1, rank.bytes / rank.leastHeld));
    rank.live = std::min(rank.live, rank.pairs);
  }
  return ranks;
}

/// From the rank's first start to the end of its last I (or B), and to that of all its work:
/// - its first action is an F of its first stage, its first I one of its last stage a round trip later; until then it can only do the Fs
///   that find room;
/// - its last F is one of its last stage; until the I of that microbatch in its first stage, which itself takes room, it can only do what
///   is left of others that find room beside it, and all W but of those that do were done before it;
/// - if not all pairs find room before their I, some I came before the last F, so the two lie one after the other; else only the longer one
///   counts;
/// - the pairs live through all their lives in the room there is: in k places one sees the most of them, or, on average over the places,
///   all lives and the time until the j-th place is first taken (j − 1 Fs) and after it was last left (as many W or B); in bytes, the sum
///   over all lives of their length times what they hold is at most the room times the span.
struct RankSpan {
  Ns toLastInput = 0, toEnd = 0;
};
RankSpan spanOf(const RankWork& rank, const Way& way, bool whole) {
  const std::int64_t live = rank.live;
  const Bytes beside = rank.bytes - rank.firstHeld;
  const auto most = [&](std::int64_t places, Ns longest, const std::vector<Piece>& pieces, Bytes room) {
    return std::min(places * longest, mostWork(pieces, rank.microbatches, room));
  };
  const Ns begin = std::max<Ns>(0, way.roundTrip(rank.first, rank.last) - most(live, rank.most.forward, rank.forwards, rank.bytes));
  const Ns turn = way.roundTrip(rank.last, rank.first) - way.least[rank.last].forward;
  const bool apart = rank.pairs > live || rank.allHeld > rank.bytes;
  const auto idle = [&](Ns others) {
    const Ns end = std::max<Ns>(0, turn - others);
    return apart ? begin + end : std::max(begin, end);
  };
  const Ns work = rank.all.forward + rank.all.input;
  const Ns outstanding = most(live, rank.most.weight, rank.weights, rank.bytes);
  RankSpan span{work + std::max<Ns>(0, rank.all.weight - outstanding) + idle(most(live - 1, rank.most.input, rank.inputs, beside)),
                work + rank.all.weight + idle(most(live - 1, rank.mostAfter, rank.rest, beside))};
  const Ns ramps = (live - 1) * (rank.leastForward + rank.leastDeath) / 2;  // on average
  span.toEnd = std::max({span.toEnd, dividedUp(rank.lives, live) + ramps, (rank.pairs + live - 1) / live * rank.leastLife});
  if (rank.bytes > 0 && rank.bytes < kUnlimited / 2)
    span.toEnd = std::max(span.toEnd, static_cast<Ns>(std::floor(rank.area / static_cast<long double>(rank.bytes) * (1 - 1e-15L))));
  if (whole) span.toLastInput = span.toEnd;
  return span;
}

}  // namespace

/// Each rank's span from its own first action, and around the span of a rank further along the pipeline, there and back.
LowerBounds limitedBounds(const Schedule& schedule, const CostTable& costs, bool whole, const RankLimits& limits) {
  std::vector<double> factors = costs.microbatchScale;
  if (factors.empty()) factors.assign(static_cast<std::size_t>(schedule.microbatches), 1.0);
  const std::optional<Way> way = wayOf(schedule, costs, whole, *std::min_element(factors.begin(), factors.end()));
  LowerBounds bounds;
  if (!way) return bounds;
  const std::vector<RankWork> ranks = workOf(schedule, costs, whole, *way, factors, limits);
  Ns furthest = 0;  // of this and all later stages: from the start of stage 0's first F to the end of its last I
  for (std::size_t s = costs.stages.size(); s-- > 0;) {
    const RankWork& rank = ranks[schedule.placement.rankOfStage[s].index()];
    if (rank.first != s) continue;
    const RankSpan span = spanOf(rank, *way, whole);
    furthest = std::max(furthest, way->there[s] + span.toLastInput + way->back[s]);
    const Ns window = std::max(span.toEnd, furthest - way->there[s] - way->back[s] + way->least[s].weight);
    bounds.window = std::max(bounds.window, window);
    bounds.flush = std::max(bounds.flush, way->there[s] + window);
  }
  return bounds;
}

}  // namespace pw
