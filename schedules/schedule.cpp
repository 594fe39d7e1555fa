#include "schedules/schedule.h"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {

std::string_view letters(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward: return "F";
    case ActionKind::Backward: return "B";
    case ActionKind::BackwardInput: return "I";
    case ActionKind::BackwardWeight: return "W";
    case ActionKind::SendForward: return "SEND_F";
    case ActionKind::RecvForward: return "RECV_F";
    case ActionKind::SendBackward: return "SEND_B";
    case ActionKind::RecvBackward: return "RECV_B";
    case ActionKind::ReduceGrad: return "REDUCE_GRAD";
    case ActionKind::Unshard: return "UNSHARD";
    case ActionKind::Reshard: return "RESHARD";
    case ActionKind::Idle: return "";
  }
  assert(false && "not an ActionKind");
  return "?";
}

std::string toString(const Action& action) {
  if (action.kind == ActionKind::Idle) return {};
  if (!hasMicrobatch(action.kind)) return fmt::format("{}{}", action.stage.value, letters(action.kind));
  return fmt::format("{}{}{}", action.stage.value, letters(action.kind), action.microbatch.value);
}

bool isLowered(const Schedule& schedule) {
  return std::ranges::any_of(schedule.rows, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& a) { return isSend(a.kind) || isReceive(a.kind); });
  });
}

bool trains(const Schedule& schedule) {
  return std::ranges::any_of(schedule.rows, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& a) { return isCompute(a.kind) && isBackward(a.kind); });
  });
}

Action counterpart(const Action& message) {
  const auto other = [&](std::int32_t hop, ActionKind kind) { return Action{Stage{message.stage.value + hop}, kind, message.microbatch}; };
  switch (message.kind) {
    case ActionKind::SendForward: return other(+1, ActionKind::RecvForward);
    case ActionKind::RecvForward: return other(-1, ActionKind::SendForward);
    case ActionKind::SendBackward: return other(-1, ActionKind::RecvBackward);
    case ActionKind::RecvBackward: return other(+1, ActionKind::SendBackward);
    case ActionKind::Forward:
    case ActionKind::Backward:
    case ActionKind::BackwardInput:
    case ActionKind::BackwardWeight:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Idle: break;
  }
  return message;
}

namespace {

/// Throws UsageError unless the order names each of so many ranks once.
void requireOrder(const std::vector<Rank>& order, std::size_t ranks) {
  std::vector<bool> named(ranks, false);
  bool valid = order.size() == ranks;
  for (const Rank rank : order) {
    valid = valid && rank.value >= 0 && rank.index() < ranks && !named[rank.index()];
    if (valid) named[rank.index()] = true;
  }
  if (!valid)
    throw UsageError(fmt::format("An order of {} ranks names each of the ranks 0 to {} once; this one does not.", ranks, ranks - 1));
}

}  // namespace

Placement withRankOrder(Placement placement, std::size_t ranks, const std::vector<Rank>& order) {
  requireOrder(order, ranks);
  for (Rank& rank : placement.rankOfStage) rank = order.at(rank.index());
  for (Rank& rank : placement.mirrorOfStage) rank = order.at(rank.index());
  return placement;
}

Schedule withRankOrder(const Schedule& schedule, const std::vector<Rank>& order) {
  Schedule moved = schedule;
  moved.placement = withRankOrder(schedule.placement, schedule.rows.size(), order);
  for (std::size_t i = 0; i < order.size(); ++i) moved.rows[order[i].index()] = schedule.rows[i];
  return moved;
}

}  // namespace pw
