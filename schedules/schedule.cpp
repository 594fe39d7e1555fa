#include "schedules/schedule.h"

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
  }
  assert(false && "not an ActionKind");
  return "?";
}

std::string toString(const Action& action) {
  const bool ofMicrobatch = isCompute(action.kind) || isSend(action.kind) || isReceive(action.kind);
  if (!ofMicrobatch) return fmt::format("{}{}", action.stage.value, letters(action.kind));
  return fmt::format("{}{}{}", action.stage.value, letters(action.kind), action.microbatch.value);
}

Action counterpart(const Action& message) {
  const auto other = [&](std::int32_t hop, ActionKind kind) {
    return Action{Stage{message.stage.value + hop}, kind, message.microbatch};
  };
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
    case ActionKind::Reshard: break;
  }
  return message;
}

std::vector<Rank> loopPlacement(const Shape& shape) {
  assert(shape.ranks >= 1 && shape.stages >= 0);
  std::vector<Rank> rankOfStage;
  rankOfStage.reserve(static_cast<std::size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage) rankOfStage.emplace_back(stage % shape.ranks);
  return rankOfStage;
}

}  // namespace pw
