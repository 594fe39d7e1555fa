#include "schedules/lower.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/lower_torch.h"

namespace pw {
namespace {

constexpr Ns kNotYet = -1;
constexpr Ns kUnit = 1;

/// The times that decide where a receive goes; only their order matters, so any costs give a valid lowering: what takes no time gets a
/// unit too, or a message would come before what makes it. Without `times` units, of 1 ns.
Ns timeOf(const Action& a, const ActionTimes* times) {
  if (!isCompute(a.kind)) return 0;
  if (times == nullptr) return a.kind == ActionKind::Backward ? 2 * kUnit : kUnit;
  const auto& ofKind = a.kind == ActionKind::Forward         ? times->forward
                       : a.kind == ActionKind::Backward      ? times->backward
                       : a.kind == ActionKind::BackwardInput ? times->input
                                                             : times->weight;
  return std::max(kUnit, ofKind[a.stage.index()]);
}

/// A message, as seen on both ranks, at the moment its action ends.
struct Message {
  Ns time = 0;
  Action send;
  Rank from, to;

  [[nodiscard]] auto key() const { return std::tie(time, send); }
};

/// The execution of compute rows in units or given times: when each action starts, and the messages.
struct UnitRun {
  const Schedule& schedule;
  const ActionTimes* times;                  ///< null: units
  std::vector<std::vector<Ns>> starts;       ///< as the rows
  std::array<std::vector<Ns>, 2> made = {};  ///< by stage × microbatch: end of F; of B or I
  std::vector<std::vector<Message>> sent;    ///< by sender
  std::vector<std::size_t> awake = {};       ///< ranks that may go on: the last one is next

  [[nodiscard]] Ns& madeBy(Stage stage, Microbatch m, bool forward) {
    return made[forward ? 0 : 1][stage.index() * static_cast<std::size_t>(schedule.microbatches) + m.index()];
  }
  /// The neighbour that hands this stage its input (forward) or output gradient; nothing at the ends of the pipeline.
  [[nodiscard]] std::optional<Stage> giver(const Action& a) const {
    const std::int32_t other = a.stage.value + (isForward(a.kind) ? -1 : 1);
    if (other < 0 || other >= static_cast<std::int32_t>(schedule.placement.stages())) return std::nullopt;
    return Stage{other};
  }
  /// When the input that the action needs from its neighbour is available; kNotYet while it is not.
  [[nodiscard]] Ns readyAt(const Action& a) {
    if (!isForward(a.kind) && !makesGradient(a.kind)) return 0;
    const auto stage = giver(a);
    return stage ? madeBy(*stage, a.microbatch, isForward(a.kind)) : 0;
  }
  void finish(const Action& a, Ns end);
};

void UnitRun::finish(const Action& a, Ns end) {
  const bool forward = isForward(a.kind);
  if (!forward && !makesGradient(a.kind)) return;
  madeBy(a.stage, a.microbatch, forward) = end;
  const std::int32_t taker = a.stage.value + (forward ? 1 : -1);
  if (taker < 0 || taker >= static_cast<std::int32_t>(schedule.placement.stages())) return;
  const Rank from = schedule.placement.rankOf(a.stage, a.microbatch);
  const Rank to = schedule.placement.rankOf(Stage{taker}, a.microbatch);
  if (from == to) return;
  sent[from.index()].push_back({end, {a.stage, forward ? ActionKind::SendForward : ActionKind::SendBackward, a.microbatch}, from, to});
  awake.push_back(to.index());
}

/// Advances a rank as far as its inputs allow.
void advance(UnitRun& run, std::size_t rank, Ns& clock) {
  const auto& row = run.schedule.rows[rank];
  auto& starts = run.starts[rank];
  while (starts.size() < row.size()) {
    const Action& first = row[starts.size()];
    const bool slot = beginsSlot(row, starts.size());
    const Action& last = slot ? row[starts.size() + 1] : first;
    const Ns firstReady = run.readyAt(first);
    const Ns lastReady = slot ? run.readyAt(last) : 0;
    if (firstReady == kNotYet || lastReady == kNotYet) break;
    const Ns start = std::max({clock, firstReady, lastReady});
    starts.push_back(start);
    if (slot) starts.push_back(start);
    clock = start + timeOf(first, run.times) + (slot ? timeOf(last, run.times) : 0);
    run.finish(first, clock);
    if (slot) run.finish(last, clock);
  }
}

void requireIds(const Schedule& compute) {
  const Shape shape = shapeOf(compute);
  const auto fail = [&](const Action& a) {
    throw UsageError(fmt::format(
        "schedule {} cannot be lowered: {} lies outside its {} stages and {} microbatches; `pipewright check` lists its problems",
        compute.name, toString(a), shape.stages, shape.microbatches));
  };
  std::int64_t actions = 0;
  for (const auto& row : compute.rows) {
    actions += static_cast<std::int64_t>(row.size());
    for (const Action& a : row) {
      if (a.kind == ActionKind::Idle) continue;
      if (a.stage.value < 0 || a.stage.value >= shape.stages) fail(a);
      if (hasMicrobatch(a.kind) && (a.microbatch.value < 0 || a.microbatch.value >= shape.microbatches)) fail(a);
    }
  }
  if (std::int64_t{shape.stages} * shape.microbatches > actions) {
    throw UsageError(fmt::format(
        "schedule {} cannot be lowered: {} actions do not fill {} stages and {} microbatches; `pipewright check` lists what is missing",
        compute.name, actions, shape.stages, shape.microbatches));
  }
  if (compute.placement.bidirectional() && compute.placement.mirrorOfStage.size() != compute.placement.stages()) {
    throw UsageError(fmt::format("schedule {} cannot be lowered: it has {} stages and {} second replicas; give one for each", compute.name,
                                 shape.stages, compute.placement.mirrorOfStage.size()));
  }
  for (const auto* ranks : {&compute.placement.rankOfStage, &compute.placement.mirrorOfStage}) {
    for (const Rank rank : *ranks) {
      if (rank.value < 0 || rank.value >= shape.ranks) {
        throw UsageError(
            fmt::format("schedule {} cannot be lowered: it places a stage on rank {} of {}; `pipewright check` lists its problems",
                        compute.name, rank.value, shape.ranks));
      }
    }
  }
}

/// Compute rows by rounds over the ranks that still can: each message wakes its receiver.
UnitRun runUnits(const Schedule& compute, const ActionTimes* times = nullptr) {
  const std::size_t ranks = compute.rows.size();
  UnitRun run{
      .schedule = compute, .times = times, .starts = std::vector<std::vector<Ns>>(ranks), .sent = std::vector<std::vector<Message>>(ranks)};
  const std::size_t pairs = compute.placement.stages() * static_cast<std::size_t>(compute.microbatches);
  for (auto& ends : run.made) ends.assign(pairs, kNotYet);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    run.starts[rank].reserve(compute.rows[rank].size());
    run.sent[rank].reserve(compute.rows[rank].size());
  }
  std::vector<Ns> clocks(ranks, 0);
  for (std::size_t rank = ranks; rank-- > 0;) run.awake.push_back(rank);
  while (!run.awake.empty()) {
    const std::size_t rank = run.awake.back();
    run.awake.pop_back();
    advance(run, rank, clocks[rank]);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t at = run.starts[rank].size();
    if (at == compute.rows[rank].size()) continue;
    throw UsageError(
        fmt::format("schedule {} cannot be lowered: rank {} waits at {} for something that never happens; `pipewright check` says why",
                    compute.name, rank, toString(compute.rows[rank][at])));
  }
  return run;
}

/// Visits messages by their keys. Those of a sender come nearly in that order, so that they are sorted where they are not, and merged.
template <class Visit>
void visitByKey(std::vector<std::vector<Message>>& sent, Visit visit) {
  using Rest = std::span<const Message>;
  const auto isBefore = [](const Message& a, const Message& b) { return a.key() < b.key(); };
  const auto isAfter = [&](const Rest& a, const Rest& b) { return isBefore(b.front(), a.front()); };
  std::vector<Rest> heap;
  for (std::vector<Message>& own : sent) {
    if (!std::ranges::is_sorted(own, isBefore)) std::ranges::sort(own, isBefore);
    if (!own.empty()) heap.emplace_back(own);
  }
  std::ranges::make_heap(heap, isAfter);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, isAfter);
    Rest& rest = heap.back();
    visit(rest.front());
    rest = rest.subspan(1);
    if (rest.empty())
      heap.pop_back();
    else
      std::ranges::push_heap(heap, isAfter);
  }
}

/// Inserts both ends of every message at its moment: after all actions of the rank that started earlier. On every rank an action that
/// starts at s then comes after the messages of times ≤ s and before those of times > s, and messages have one global order. So executing
/// everything by (time, messages first) is always possible: no deadlock, whatever kind of send is used.
Schedule insertMessages(const Schedule& compute, UnitRun& run) {
  const std::size_t ranks = compute.rows.size();
  std::vector<std::size_t> taken(ranks, 0), sizes(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) sizes[rank] = compute.rows[rank].size();
  for (const std::vector<Message>& own : run.sent) {
    for (const Message& message : own) ++sizes[message.from.index()], ++sizes[message.to.index()];
  }
  Schedule lowered{compute.name, compute.microbatches, compute.placement, std::vector<std::vector<Action>>(ranks), compute.lockstep};
  for (std::size_t rank = 0; rank < ranks; ++rank) lowered.rows[rank].reserve(sizes[rank]);
  const auto insert = [&](Rank rank, Ns time, const Action& end) {
    const auto& starts = run.starts[rank.index()];
    std::size_t& at = taken[rank.index()];
    for (; at < starts.size() && starts[at] < time; ++at) lowered.rows[rank.index()].push_back(compute.rows[rank.index()][at]);
    lowered.rows[rank.index()].push_back(end);
  };
  visitByKey(run.sent, [&](const Message& message) {
    insert(message.from, message.time, message.send);
    insert(message.to, message.time, counterpart(message.send));
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (; taken[rank] < compute.rows[rank].size(); ++taken[rank]) lowered.rows[rank].push_back(compute.rows[rank][taken[rank]]);
  }
  return lowered;
}

template <class Drop>
Schedule without(const Schedule& schedule, Drop drop) {
  Schedule rest = schedule;
  for (auto& row : rest.rows) std::erase_if(row, [&](const Action& a) { return drop(a.kind); });
  return rest;
}

}  // namespace

Schedule lower(const Schedule& compute, Lowering lowering) {
  const Schedule plain = without(compute, [](ActionKind k) { return k == ActionKind::Idle || isSend(k) || isReceive(k); });
  requireIds(plain);
  switch (lowering) {
    case Lowering::Torch: return lowerAsTorch(plain);
    case Lowering::TorchRuntime: return lowerAsTorchRuntime(plain);
    case Lowering::Deferred: break;
  }
  UnitRun run = runUnits(plain);
  return insertMessages(plain, run);
}

Schedule lower(const Schedule& compute, const ActionTimes& times) {
  const Schedule plain = without(compute, [](ActionKind k) { return k == ActionKind::Idle || isSend(k) || isReceive(k); });
  requireIds(plain);
  for (const auto* ofKind : {&times.forward, &times.backward, &times.input, &times.weight}) {
    if (ofKind->size() != plain.placement.stages())
      throw UsageError(fmt::format("schedule {} has {} stages and times of {}; give one for each", compute.name, plain.placement.stages(),
                                   ofKind->size()));
  }
  UnitRun run = runUnits(plain, &times);
  return insertMessages(plain, run);
}

std::vector<std::vector<Ns>> unitStarts(const Schedule& compute) {
  requireIds(compute);
  return runUnits(compute).starts;
}

Schedule withReductions(const Schedule& schedule) {
  Schedule reduced = without(schedule, [](ActionKind k) { return k == ActionKind::ReduceGrad; });
  for (auto& row : reduced.rows) {
    std::map<Stage, std::size_t> lastOf;
    for (std::size_t at = 0; at < row.size(); ++at) {
      if (row[at].kind == ActionKind::Backward || row[at].kind == ActionKind::BackwardWeight) lastOf[row[at].stage] = at;
    }
    std::vector<std::pair<std::size_t, Stage>> places;  // before which position
    for (const auto& [stage, last] : lastOf) {
      std::size_t at = last + 1;
      while (at < row.size() && isSend(row[at].kind)) ++at;
      places.emplace_back(at, stage);
    }
    std::sort(places.begin(), places.end());
    std::ranges::reverse(places);  // so that those before keep their positions
    for (const auto& [position, stage] : places) {
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(position), {stage, ActionKind::ReduceGrad, Microbatch{-1}});
    }
  }
  return reduced;
}

Schedule computeOnly(const Schedule& schedule) {
  return without(schedule, [](ActionKind k) { return !isCompute(k) && k != ActionKind::Idle; });
}

Schedule mergeBackward(const Schedule& compute) {
  Schedule merged = without(compute, [](ActionKind k) { return k == ActionKind::Idle; });
  for (auto& row : merged.rows) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < row.size(); ++i, ++kept) {
      const Action a = row[i];
      row[kept] = a;
      if (a.kind != ActionKind::BackwardInput || i + 1 == row.size()) continue;
      if (row[i + 1] != Action{a.stage, ActionKind::BackwardWeight, a.microbatch}) continue;
      row[kept].kind = ActionKind::Backward;
      ++i;
    }
    row.resize(kept);
  }
  return merged;
}

}  // namespace pw
