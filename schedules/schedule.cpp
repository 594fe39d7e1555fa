#include "schedules/schedule.h"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>

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
  const bool ofMicrobatch = isCompute(action.kind) || isSend(action.kind) || isReceive(action.kind);
  if (!ofMicrobatch) return fmt::format("{}{}", action.stage.value, letters(action.kind));
  return fmt::format("{}{}{}", action.stage.value, letters(action.kind), action.microbatch.value);
}

bool isLowered(const Schedule& schedule) {
  return std::ranges::any_of(schedule.rows, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& a) { return isSend(a.kind) || isReceive(a.kind); });
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

}  // namespace pw
