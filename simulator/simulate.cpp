#include "simulator/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// Which messages leave and reach each end, where an end is a stage and a direction (index 2 · stage + backward).
struct Routes {
  std::vector<std::size_t> first;  ///< messages leaving end e: order[first[e]] … order[first[e + 1] − 1]
  std::vector<std::size_t> order;
  std::vector<std::size_t> channel;  ///< of each message; kNone on one rank
  std::size_t channels = 0;
  std::vector<std::int32_t> incoming;  ///< messages an action of this end waits for
  std::vector<Bytes> incomingBytes;    ///< of those from other ranks
};

std::size_t endOf(Stage stage, bool backward) { return 2 * stage.index() + (backward ? 1U : 0U); }

Routes routes(const Schedule& schedule, const CostTable& costs) {
  Routes r;
  const std::size_t ends = 2 * costs.stages.size();
  r.first.assign(ends + 1, 0);
  r.incoming.assign(ends, 0);
  r.incomingBytes.assign(ends, 0);
  const auto ranks = [&](const MessageCost& m) {
    return std::pair(schedule.rankOfStage[m.from.index()], schedule.rankOfStage[m.to.index()]);
  };
  std::vector<std::pair<Rank, Rank>> pairs;
  for (const MessageCost& m : costs.messages) {
    ++r.first[endOf(m.from, m.backward) + 1];
    ++r.incoming[endOf(m.to, m.backward)];
    const auto [from, to] = ranks(m);
    if (from == to) continue;
    r.incomingBytes[endOf(m.to, m.backward)] += m.bytes;
    pairs.emplace_back(from, to);
  }
  std::partial_sum(r.first.begin(), r.first.end(), r.first.begin());
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  r.channels = pairs.size();

  r.order.resize(costs.messages.size());
  std::vector<std::size_t> next = r.first;
  for (std::size_t i = 0; i < costs.messages.size(); ++i) {
    const MessageCost& m = costs.messages[i];
    r.order[next[endOf(m.from, m.backward)]++] = i;
    const auto pair = ranks(m);
    const auto at = std::lower_bound(pairs.begin(), pairs.end(), pair);
    r.channel.push_back(pair.first == pair.second ? kNone : static_cast<std::size_t>(at - pairs.begin()));
  }
  return r;
}

struct MemoryChange {
  Rank rank;
  Ns time = 0;
  Bytes bytes = 0;
};

/// What a (stage, microbatch) has done. A full backward is both of its parts.
constexpr std::uint8_t kForwardDone = 1;
constexpr std::uint8_t kInputDone = 2;
constexpr std::uint8_t kWeightDone = 4;

/// One iteration. Ranks are advanced as far as their messages allow; all sends of a channel come from one row, so the order in which
/// ranks are advanced changes nothing, and every action and message is touched once.
class Iteration {
 public:
  Iteration(const Schedule& schedule, const CostTable& costs);
  Trace run();

 private:
  struct Work {
    SpanKind kind = SpanKind::Forward;
    Ns duration = 0;
    std::uint8_t needs = 0;  ///< done before
    std::uint8_t does = 0;
    bool receives = true;  ///< waits for messages, and sends them on
    bool backward = false;
  };

  Work workOf(const Action& action) const;
  std::size_t cellOf(Stage stage, bool backward, Microbatch m) const { return endOf(stage, backward) * microbatches_ + m.index(); }
  Ns scaled(Ns time, Microbatch m) const;
  void advance(Rank rank);
  bool canStart(const Action& action, const Work& work);
  void perform(Rank rank, const Action& action, const Work& work);
  void send(const Action& action, bool backward, Ns now);
  void deliver(const MessageCost& message, Microbatch m, Ns arrival);
  void changeMemory(Rank rank, Ns time, Bytes bytes);
  void finishStep();
  void sampleMemory();

  const Schedule& schedule_;
  const CostTable& costs_;
  Routes routes_;
  std::size_t microbatches_;
  bool trains_ = false;                ///< there are backwards
  std::vector<std::uint8_t> done_;     ///< by stage × microbatch
  std::vector<std::int32_t> pending_;  ///< by cell (end × microbatch): messages still to come
  std::vector<Ns> arrived_;            ///< by cell: the latest arrival
  std::vector<Ns> channelFree_;
  std::vector<Ns> clock_;              ///< by rank
  std::vector<std::size_t> position_;  ///< by rank, in its row
  std::vector<std::size_t> waitsFor_;  ///< by rank: the cell it is blocked on
  std::vector<Rank> runnable_;
  std::vector<MemoryChange> memory_;
  Trace trace_;
};

Iteration::Iteration(const Schedule& schedule, const CostTable& costs)
    : schedule_(schedule), costs_(costs), routes_(routes(schedule, costs)), microbatches_(static_cast<std::size_t>(schedule.microbatches)) {
  const std::size_t ranks = schedule.rows.size();
  const std::size_t stages = costs.stages.size();
  std::size_t actions = 0;
  for (const auto& row : schedule.rows) {
    actions += row.size();
    trains_ =
        trains_ || std::any_of(row.begin(), row.end(), [](const Action& a) { return isCompute(a.kind) && a.kind != ActionKind::Forward; });
  }
  done_.assign(stages * microbatches_, 0);
  arrived_.assign(2 * stages * microbatches_, 0);
  pending_.reserve(2 * stages * microbatches_);
  for (const std::int32_t count : routes_.incoming) pending_.insert(pending_.end(), microbatches_, count);
  channelFree_.assign(routes_.channels, 0);
  clock_.assign(ranks, 0);
  position_.assign(ranks, 0);
  waitsFor_.assign(ranks, kNone);
  runnable_.reserve(ranks);
  // Reserved for the worst case, so that the loop never allocates: each action may wait, each message is one span.
  trace_.ranks = static_cast<int>(ranks);
  trace_.spans.reserve(2 * actions + costs.messages.size() * microbatches_ + ranks + stages);
  memory_.reserve(ranks + stages + 2 * actions + 2 * costs.messages.size() * microbatches_);
}

Ns Iteration::scaled(Ns time, Microbatch m) const {
  if (costs_.microbatchScale.empty()) return time;
  return static_cast<Ns>(std::llround(static_cast<double>(time) * costs_.microbatchScale[m.index()]));
}

Iteration::Work Iteration::workOf(const Action& action) const {
  const StageCost& cost = costs_.stages[action.stage.index()];
  const auto time = [&](Ns t) { return scaled(t, action.microbatch); };
  switch (action.kind) {
    case ActionKind::Forward: return {SpanKind::Forward, time(cost.forward), 0, kForwardDone, true, false};
    case ActionKind::Backward: return {SpanKind::Backward, time(cost.backward), kForwardDone, kInputDone | kWeightDone, true, true};
    case ActionKind::BackwardInput: return {SpanKind::BackwardInput, time(cost.backwardInput), kForwardDone, kInputDone, true, true};
    case ActionKind::BackwardWeight: return {SpanKind::BackwardWeight, time(cost.backwardWeight), kInputDone, kWeightDone, false, true};
    case ActionKind::SendForward:
    case ActionKind::RecvForward:
    case ActionKind::SendBackward:
    case ActionKind::RecvBackward:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard: break;
  }
  return {};
}

Trace Iteration::run() {
  for (std::size_t r = schedule_.rows.size(); r-- > 0;) runnable_.emplace_back(r);
  for (std::size_t s = 0; s < costs_.stages.size(); ++s) {
    const StageCost& cost = costs_.stages[s];
    changeMemory(schedule_.rankOfStage[s], 0, cost.parameterBytes + cost.gradientBytes + cost.optimizerBytes);
  }
  while (!runnable_.empty()) {
    const Rank rank = runnable_.back();
    runnable_.pop_back();
    advance(rank);
  }
  for (std::size_t r = 0; r < schedule_.rows.size(); ++r) {
    if (position_[r] == schedule_.rows[r].size()) continue;
    throw Error(
        fmt::format("schedule `{}` deadlocks: rank {} waits at position {} ({}) for what never happens; "
                    "`pipewright check` shows the cycle",
                    schedule_.name, r, position_[r], toString(schedule_.rows[r][position_[r]])));
  }
  finishStep();
  sampleMemory();
  normalize(trace_);
  return std::move(trace_);
}

void Iteration::advance(Rank rank) {
  const std::vector<Action>& row = schedule_.rows[rank.index()];
  for (std::size_t& at = position_[rank.index()]; at < row.size(); ++at) {
    const Action& action = row[at];
    if (!isCompute(action.kind)) continue;
    const Work work = workOf(action);
    if (!canStart(action, work)) {
      if (work.receives) waitsFor_[rank.index()] = cellOf(action.stage, work.backward, action.microbatch);
      return;
    }
    perform(rank, action, work);
  }
}

bool Iteration::canStart(const Action& action, const Work& work) {
  const std::uint8_t done = done_[action.stage.index() * microbatches_ + action.microbatch.index()];
  if ((done & work.does) != 0) {
    throw Error(fmt::format("schedule `{}` has {} twice; `pipewright check` lists its problems", schedule_.name, toString(action)));
  }
  if ((done & work.needs) != work.needs) return false;  // stands later in the same row or nowhere: never wakes
  return !work.receives || pending_[cellOf(action.stage, work.backward, action.microbatch)] == 0;
}

void Iteration::perform(Rank rank, const Action& action, const Work& work) {
  Ns& clock = clock_[rank.index()];
  const Ns ready = work.receives ? arrived_[cellOf(action.stage, work.backward, action.microbatch)] : 0;
  const Ns start = std::max(clock, ready);
  if (start > clock) {
    const SpanKind kind = work.backward ? SpanKind::WaitBackward : SpanKind::WaitForward;
    trace_.spans.push_back({rank, kind, action.stage, action.microbatch, rank, 0, clock, start});
  }
  clock = start + work.duration;
  trace_.spans.push_back({rank, work.kind, action.stage, action.microbatch, rank, 0, start, clock});

  const Bytes activation = costs_.stages[action.stage.index()].activationBytes;
  if (work.receives) changeMemory(rank, start, -routes_.incomingBytes[endOf(action.stage, work.backward)]);
  if (!work.backward) changeMemory(rank, start, activation);
  if ((work.does & kWeightDone) != 0 || !trains_) changeMemory(rank, clock, -activation);

  done_[action.stage.index() * microbatches_ + action.microbatch.index()] |= work.does;
  if (work.receives) send(action, work.backward, clock);
}

void Iteration::send(const Action& action, bool backward, Ns now) {
  const std::size_t end = endOf(action.stage, backward);
  for (std::size_t i = routes_.first[end]; i < routes_.first[end + 1]; ++i) {
    const std::size_t index = routes_.order[i];
    const MessageCost& message = costs_.messages[index];
    if (routes_.channel[index] == kNone) {
      deliver(message, action.microbatch, now);
      continue;
    }
    Ns& free = channelFree_[routes_.channel[index]];
    const Ns start = std::max(now, free);
    free = start + scaled(message.transfer, action.microbatch);
    const Ns arrival = free + message.latency;
    const Rank receiver = schedule_.rankOfStage[message.to.index()];
    trace_.spans.push_back({schedule_.rankOfStage[action.stage.index()], backward ? SpanKind::SendBackward : SpanKind::SendForward,
                            action.stage, action.microbatch, receiver, message.bytes, start, arrival});
    changeMemory(receiver, arrival, message.bytes);
    deliver(message, action.microbatch, arrival);
  }
}

void Iteration::deliver(const MessageCost& message, Microbatch m, Ns arrival) {
  const std::size_t cell = cellOf(message.to, message.backward, m);
  arrived_[cell] = std::max(arrived_[cell], arrival);
  if (--pending_[cell] > 0) return;
  const Rank receiver = schedule_.rankOfStage[message.to.index()];
  if (waitsFor_[receiver.index()] != cell) return;
  waitsFor_[receiver.index()] = kNone;
  runnable_.push_back(receiver);
}

void Iteration::changeMemory(Rank rank, Ns time, Bytes bytes) {
  if (bytes != 0) memory_.push_back({rank, time, bytes});
}

void Iteration::finishStep() {
  if (!trains_) return;
  if (costs_.reduceTime > 0) {
    const Ns start = *std::max_element(clock_.begin(), clock_.end());
    for (std::size_t r = 0; r < clock_.size(); ++r) {
      clock_[r] = start + costs_.reduceTime;
      trace_.spans.push_back({Rank(r), SpanKind::ReduceGrad, Stage(-1), Microbatch(-1), Rank(r), 0, start, clock_[r]});
    }
  }
  for (std::size_t s = 0; s < costs_.stages.size(); ++s) {
    if (costs_.stages[s].optimizer == 0) continue;
    const Rank rank = schedule_.rankOfStage[s];
    Ns& clock = clock_[rank.index()];
    const Ns start = std::exchange(clock, clock + costs_.stages[s].optimizer);
    trace_.spans.push_back({rank, SpanKind::Optimizer, Stage(s), Microbatch(-1), rank, 0, start, clock});
  }
}

/// One sample at 0 for each rank, then one where the bytes after all changes of an instant differ from before.
void Iteration::sampleMemory() {
  std::sort(memory_.begin(), memory_.end(),
            [](const MemoryChange& a, const MemoryChange& b) { return std::tie(a.rank, a.time) < std::tie(b.rank, b.time); });
  auto change = memory_.cbegin();
  for (std::size_t r = 0; r < schedule_.rows.size(); ++r) {
    Bytes bytes = 0;
    for (; change != memory_.cend() && change->rank == Rank(r) && change->time == 0; ++change) bytes += change->bytes;
    trace_.memory.push_back({Rank(r), 0, bytes});
    while (change != memory_.cend() && change->rank == Rank(r)) {
      const Ns time = change->time;
      for (; change != memory_.cend() && change->rank == Rank(r) && change->time == time; ++change) bytes += change->bytes;
      if (bytes != trace_.memory.back().bytes) trace_.memory.push_back({Rank(r), time, bytes});
    }
  }
}

}  // namespace

Trace simulate(const Schedule& schedule, const CostTable& costs) {
  requireFitting(schedule, costs);
  return Iteration(schedule, costs).run();
}

}  // namespace pw
