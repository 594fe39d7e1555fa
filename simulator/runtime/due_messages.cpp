#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "schedules/lower.h"
#include "simulator/runtime/runtime.h"
#include "simulator/step/simulate.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

/// A message between ranks: when the action that makes it ends, and when it has arrived.
struct DueMessage {
  Ns sent = 0, arrived = 0;
  Action send;
  std::size_t from = 0, to = 0;
};

/// Rows of actions as they run where messages hold up nothing but what needs them.
struct FreeRun {
  std::vector<std::vector<Ns>> starts;  ///< as the rows
  std::vector<DueMessage> messages;
};

/// No action starts where it ends: a message comes after the action that makes it.
CostTable withoutEmptyActions(CostTable costs) {
  for (StageCost& stage : costs.stages) {
    for (Ns* time : {&stage.forward, &stage.backward, &stage.backwardInput, &stage.backwardWeight}) *time = std::max(Ns{1}, *time);
  }
  return costs;
}

FreeRun freeRun(const Schedule& rows, const CostTable& costs) {
  using Key = std::tuple<SpanKind, Stage, Microbatch>;
  std::map<Key, const Span*> spans;
  const Trace trace = simulate(computeOnly(rows), withoutEmptyActions(costs));
  for (const Span& span : trace.spans) spans[{span.kind, span.stage, span.microbatch}] = &span;
  FreeRun run;
  for (std::size_t rank = 0; rank < rows.rows.size(); ++rank) {
    std::vector<Ns>& starts = run.starts.emplace_back();
    Ns clock = 0;
    for (const Action& action : rows.rows[rank]) {
      starts.push_back(clock);
      if (!isCompute(action.kind)) continue;
      const Span& span = *spans.at({*spanKind(action.kind), action.stage, action.microbatch});
      starts.back() = span.start;
      clock = span.end;
      const bool forward = action.kind == ActionKind::Forward;
      const Stage taker(action.stage.value + (forward ? 1 : -1));
      if (action.kind == ActionKind::BackwardWeight || taker.value < 0 || taker.index() >= rows.placement.stages()) continue;
      const std::size_t to = rows.placement.rankOf(taker, action.microbatch).index();
      if (to == rank) continue;
      const auto message = spans.find({forward ? SpanKind::SendForward : SpanKind::SendBackward, action.stage, action.microbatch});
      const Ns arrived = message == spans.end() ? span.end : std::max(span.end, message->second->end);
      const ActionKind kind = forward ? ActionKind::SendForward : ActionKind::SendBackward;
      run.messages.push_back({span.end, arrived, {action.stage, kind, action.microbatch}, rank, to});
    }
  }
  return run;
}

/// Both ends of every message after all actions that start before its moment, all messages in one order: see `lower`, which has units of
/// time and no latency.
Schedule withMessagesAt(const Schedule& rows, FreeRun run, Ns DueMessage::*moment) {
  std::ranges::sort(run.messages, {}, [&](const DueMessage& m) { return std::pair(m.*moment, m.send); });
  Schedule lowered = rows;
  for (auto& row : lowered.rows) row.clear();
  std::vector<std::size_t> taken(rows.rows.size());
  const auto copyUntil = [&](std::size_t rank, std::optional<Ns> time) {
    for (std::size_t& at = taken[rank]; at < rows.rows[rank].size() && (!time || run.starts[rank][at] < *time); ++at)
      lowered.rows[rank].push_back(rows.rows[rank][at]);
  };
  for (const DueMessage& message : run.messages) {
    for (const std::size_t rank : {message.from, message.to}) {
      copyUntil(rank, message.*moment);
      lowered.rows[rank].push_back(rank == message.from ? message.send : counterpart(message.send));
    }
  }
  for (std::size_t rank = 0; rank < taken.size(); ++rank) copyUntil(rank, std::nullopt);
  return lowered;
}

/// Nothing where the rows deadlock.
std::optional<Ns> makespanInTorch(const Schedule& lowered, const CostTable& costs) {
  const RuntimeRows runtime = torchRows(lowered, PendingReceives::Block);
  const PostedProgram posted = compile(runtime.rows, costs, runtime.posting);
  if (!posted.stuck.empty()) return std::nullopt;
  Times times;
  execute(posted.program, times);
  return makespanOf(posted.program, posted.program.duration, times);
}

}  // namespace

Schedule messagesWhenDue(const Schedule& schedule, const CostTable& costs) {
  ActionTimes times;
  for (const StageCost& cost : costs.stages) {
    times.forward.push_back(cost.forward);
    times.backward.push_back(cost.backward);
    times.input.push_back(cost.backwardInput);
    times.weight.push_back(cost.backwardWeight);
  }
  Schedule best = lower(schedule, times);
  if (schedule.lockstep || schedule.placement.bidirectional()) return best;  // torch has neither
  Schedule rows = best;
  for (auto& row : rows.rows) std::erase_if(row, [](const Action& a) { return isSend(a.kind) || isReceive(a.kind); });
  const FreeRun run = freeRun(rows, costs);
  std::optional<Ns> shortest = makespanInTorch(best, costs);
  const auto keep = [&](Schedule lowered) {
    const std::optional<Ns> makespan = makespanInTorch(lowered, costs);
    if (!makespan || (shortest && *makespan >= *shortest)) return;
    shortest = makespan;
    best = std::move(lowered);
  };
  for (const auto moment : {&DueMessage::sent, &DueMessage::arrived}) keep(withMessagesAt(rows, run, moment));
  for (const Lowering usual : {Lowering::Deferred, Lowering::Torch}) keep(lower(rows, usual));
  return best;
}

}  // namespace pw
