#include "schedules/lower.h"

namespace pw {
namespace {

bool isMessage(ActionKind kind) { return isSend(kind) || isReceive(kind); }

/// Whether what goes from one stage to a neighbour needs a message: both exist and stand on different ranks.
bool crossesRanks(const Schedule& schedule, Stage from, int hop) {
  const auto stages = static_cast<std::int64_t>(schedule.rankOfStage.size());
  const std::int64_t to = std::int64_t{from.value} + hop;
  if (from.value < 0 || from.value >= stages || to < 0 || to >= stages) return false;
  return schedule.rankOfStage[from.index()] != schedule.rankOfStage[static_cast<std::size_t>(to)];
}

/// Appends `action` with the messages it needs around it.
void appendLowered(const Schedule& schedule, const Action& action, std::vector<Action>& row) {
  const auto message = [&](int hop, ActionKind kind) {
    if (crossesRanks(schedule, action.stage, hop)) row.push_back({action.stage, kind, action.microbatch});
  };
  switch (action.kind) {
    case ActionKind::Forward:
      message(-1, ActionKind::RecvForward);
      row.push_back(action);
      message(+1, ActionKind::SendForward);
      return;
    case ActionKind::Backward:
    case ActionKind::BackwardInput:
      message(+1, ActionKind::RecvBackward);
      row.push_back(action);
      message(-1, ActionKind::SendBackward);
      return;
    case ActionKind::BackwardWeight:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard: row.push_back(action); return;
    case ActionKind::SendForward:
    case ActionKind::RecvForward:
    case ActionKind::SendBackward:
    case ActionKind::RecvBackward: return;
  }
}

}  // namespace

Schedule lower(const Schedule& compute) {
  Schedule lowered{compute.name, compute.microbatches, compute.rankOfStage, {}};
  lowered.rows.reserve(compute.rows.size());
  for (const auto& row : compute.rows) {
    auto& out = lowered.rows.emplace_back();
    out.reserve(3 * row.size());
    for (const Action& action : row) appendLowered(compute, action, out);
  }
  return lowered;
}

Schedule computeOnly(const Schedule& schedule) {
  Schedule compute = schedule;
  for (auto& row : compute.rows) {
    std::erase_if(row, [](const Action& action) { return isMessage(action.kind); });
  }
  return compute;
}

}  // namespace pw
