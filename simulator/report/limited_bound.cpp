#include "simulator/report/limited_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
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

/// Work that can wait in memory, and the bytes that it holds.
struct Piece {
  Ns time = 0;
  Bytes bytes = 0;

  Piece& operator+=(const Piece& other) {
    time += other.time;
    bytes += other.bytes;
    return *this;
  }
};

/// More time for each byte; where bytes are alike, more time.
bool isDenser(const Piece& a, const Piece& b) {
  return static_cast<double>(a.time) * static_cast<double>(b.bytes) > static_cast<double>(b.time) * static_cast<double>(a.bytes);
}

/// An order of pieces for filling room: those that need none, then the densest. `isDenser` is none, as a piece of no time and no bytes is
/// as dense as any other.
bool fillsBefore(const Piece& a, const Piece& b) {
  if ((a.bytes <= 0) != (b.bytes <= 0)) return a.bytes <= 0;
  return a.bytes <= 0 ? a.time > b.time : isDenser(a, b);
}

/// The most work that fits into these bytes, at most `count` of each piece: of one as whole ones; of several, the densest first, as if the
/// last one could be cut (Dantzig, Operations Research 5, 1957), which is no less.
Ns mostOfSorted(std::span<const Piece> pieces, std::int64_t count, Bytes bytes) {
  if (pieces.size() == 1 && pieces.front().bytes > 0)
    return pieces.front().time * std::clamp<std::int64_t>(bytes / pieces.front().bytes, 0, count);
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

Ns mostWork(std::vector<Piece> pieces, std::int64_t count, Bytes bytes) {
  std::sort(pieces.begin(), pieces.end(), fillsBefore);
  return mostOfSorted(pieces, count, bytes);
}

/// The most work that fits where `count` microbatches each hold one of these states, or nothing: as if a microbatch could be cut.
Ns mostWorkOfStates(std::vector<Piece> states, std::int64_t count, Bytes bytes) {
  bytes = std::max<Bytes>(0, bytes);
  Piece at;  // of each microbatch, up the upper hull of the states while all of them can go on
  for (;;) {
    const Piece* next = nullptr;
    for (const Piece& state : states) {
      if (state.time <= at.time) continue;
      if (next == nullptr || isDenser({state.time - at.time, state.bytes - at.bytes}, {next->time - at.time, next->bytes - at.bytes}))
        next = &state;
    }
    if (next == nullptr) return at.time * count;
    const Piece step{next->time - at.time, next->bytes - at.bytes};
    if (step.bytes > 0 && static_cast<double>(next->bytes) * static_cast<double>(count) > static_cast<double>(bytes)) {
      const double left = static_cast<double>(bytes) - static_cast<double>(at.bytes) * static_cast<double>(count);
      return at.time * count + static_cast<Ns>(std::ceil(left / static_cast<double>(step.bytes) * static_cast<double>(step.time)));
    }
    at = *next;
  }
}

/// The most work of some stages that finds room, `count` pieces of each at most, where a microbatch holds those of the first stages: of one
/// or two stages as whole pieces.
Ns mostOfFirst(const std::vector<Piece>& pieces, std::int64_t count, Bytes bytes) {
  if (pieces.size() == 1) return mostWork(pieces, count, bytes);
  std::vector<Piece> states;
  for (const Piece& piece : pieces) states.push_back(states.empty() ? piece : Piece(states.back()) += piece);
  const Ns most = mostWorkOfStates(states, count, bytes);
  const Piece &first = pieces[0], &second = pieces[1];
  if (pieces.size() > 2 || first.bytes <= 0 || second.bytes < 0) return most;
  Ns whole = 0;
  for (std::int64_t both = 0; both <= count && states[1].bytes * both <= bytes; ++both) {
    const std::int64_t firsts = std::min(count, (bytes - second.bytes * both) / first.bytes);
    whole = std::max(whole, first.time * firsts + second.time * both);
  }
  return std::min(most, whole);
}

/// What a microbatch may still hold when all Fs are done: the Is of its first stages wait, of the others the Ws that it has not done.
std::vector<Piece> statesOf(const std::vector<Piece>& pairs, const std::vector<Piece>& weights) {
  std::vector<Piece> states;
  Piece waiting;
  for (std::size_t stages = 0; stages <= pairs.size(); ++stages) {
    if (stages > 0) states.push_back(waiting += pairs[stages - 1]);
    std::vector<Piece> others;
    if (!weights.empty()) others.assign(weights.begin() + static_cast<std::ptrdiff_t>(stages), weights.end());
    std::sort(others.begin(), others.end(), fillsBefore);
    Piece state = waiting;
    for (const Piece& weight : others) states.push_back(state += weight);
  }
  return states;
}

/// The most I and W that find room when all Fs are done: of so many microbatches, or fewer. Of one or two stages the pairs that wait for I
/// are whole ones.
Ns mostPairs(const std::vector<Piece>& pairs, std::vector<Piece> weights, std::int64_t count, Bytes bytes) {
  constexpr std::int64_t kMost = 64;  // of two stages, which takes their square
  const Ns most = mostWorkOfStates(statesOf(pairs, weights), count, bytes);
  if (pairs.size() > 2 || (pairs.size() == 2 && count > kMost)) return most;
  std::sort(weights.begin(), weights.end(), fillsBefore);
  const Piece& first = pairs.front();
  const Piece both = pairs.size() == 1 ? first : Piece(first) += pairs[1];
  Ns whole = 0;
  for (std::int64_t n = 0; n <= count && both.bytes * n <= bytes; ++n) {
    for (std::int64_t k = 0; k <= count - n && both.bytes * n + first.bytes * k <= bytes; ++k) {
      whole = std::max(whole, both.time * n + first.time * k + mostOfSorted(weights, count, bytes - both.bytes * n - first.bytes * k));
      if (pairs.size() == 1) break;  // both are the same
    }
  }
  return std::min(most, whole);
}

/// The work of a rank: the total times, the extremes over its (stage, microbatch) pairs, and what it may hold.
struct RankWork {
  std::size_t first = 0, last = 0;           ///< its outermost stages
  std::int64_t count = 0, microbatches = 0;  ///< its pairs
  Parts all, most;
  Ns mostAfter = 0;                                   ///< I and W of one pair
  Ns leastForward = kLargest, leastDeath = kLargest;  ///< between two births, and two deaths (W or B)
  Ns lives = 0, leastLife = kLargest;                 ///< from the start of F to the end of W (or B): all pairs together, and the shortest
  long double area = 0;                               ///< the same times the bytes held meanwhile
  std::int64_t live = kUnlimited;                     ///< pairs that it may hold
  Bytes bytes{kUnlimited};                            ///< that its pairs may hold, and at least do: before I, after it
  Bytes allHeld = 0, leastHeld{kUnlimited};
  /// By its stages: F, I, and I and W, with the bytes held before I; W, with the fewer of those before and after I, and with those after.
  std::vector<Piece> forwards, inputs, pairs, weights, weightsAfter;
  Piece ownInputs, ownPairs;  ///< of one microbatch, without those of the first stage
};

void addStage(RankWork& rank, const StageCost& cost, std::size_t s, bool whole, const Way& way, double largest) {
  if (rank.count == 0) rank.first = s;
  rank.last = s;
  rank.count += rank.microbatches;
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
  rank.pairs.push_back({most.input + most.weight, before});
  if (!whole) rank.weightsAfter.push_back({most.weight, after});
  if (s != rank.first) {
    rank.ownInputs += rank.inputs.back();
    rank.ownPairs += rank.pairs.back();
  }
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
    if (rank.count == 0) continue;
    rank.bytes = std::max<Bytes>(rank.bytes, 0);
    if (rank.leastHeld > 0) rank.live = std::min(rank.live, std::max<std::int64_t>(1, rank.bytes / rank.leastHeld));
    rank.live = std::min(rank.live, rank.count);
  }
  return ranks;
}

/// From the rank's first start to the end of its last I (or B), and to that of all its work:
/// - its first action is an F of its first stage, its first I one of its last stage a round trip later; until then it can only do the Fs
///   that find room;
/// - its last F is one of its last stage; until the I of that microbatch in its first stage, which itself takes room, it can only do what
///   is left of it in other stages and of the microbatches that find room beside it, and all W but of those that do were done before it;
/// - of a microbatch its first stages start before its last ones, whose I come first: so it holds the F of its first stages, and waits for
///   the I of its first stages;
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
  const Bytes beside = std::max<Bytes>(0, rank.bytes - rank.allHeld / rank.microbatches);
  const std::int64_t others = rank.microbatches - 1;
  const Ns forwards = std::min(live * rank.most.forward, mostOfFirst(rank.forwards, rank.microbatches, rank.bytes));
  const Ns begin = std::max<Ns>(0, way.roundTrip(rank.first, rank.last) - forwards);
  const Ns turn = way.roundTrip(rank.last, rank.first) - way.least[rank.last].forward;
  const bool apart = rank.count > live || rank.allHeld > rank.bytes;
  const auto idle = [&](Ns filled) {
    const Ns end = std::max<Ns>(0, turn - filled);
    return apart ? begin + end : std::max(begin, end);
  };
  const Ns inputs = rank.ownInputs.time + mostOfFirst(rank.inputs, others, beside);
  const Ns pairs = rank.ownPairs.time + mostPairs(rank.pairs, rank.weightsAfter, others, beside);
  const Ns work = rank.all.forward + rank.all.input;
  const Ns outstanding = std::min(live * rank.most.weight, mostWork(rank.weights, rank.microbatches, rank.bytes));
  RankSpan span{work + std::max<Ns>(0, rank.all.weight - outstanding) + idle(std::min((live - 1) * rank.most.input, inputs)),
                work + rank.all.weight + idle(std::min((live - 1) * rank.mostAfter, pairs))};
  const Ns ramps = (live - 1) * (rank.leastForward + rank.leastDeath) / 2;  // on average
  span.toEnd = std::max({span.toEnd, dividedUp(rank.lives, live) + ramps, (rank.count + live - 1) / live * rank.leastLife});
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
