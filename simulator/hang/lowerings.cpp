#include "simulator/hang/lowerings.h"

#include <map>

#include "schedules/error.h"
#include "schedules/lower.h"

namespace pw::hang {
namespace {

/// Sends right after the action that makes them, receives right before the one that needs them; never fails.
Schedule besideActions(const Schedule& compute) {
  Schedule result = compute;
  const bool training = trains(compute);
  const auto isElsewhere = [&](Stage stage, Microbatch microbatch, std::size_t rank) {
    return hasStage(compute, stage) && compute.placement.rankOf(stage, microbatch).index() != rank;
  };
  for (std::size_t rank = 0; rank < compute.rows.size(); ++rank) {
    std::vector<Action> row;
    for (const Action& a : compute.rows[rank]) {
      const Stage before{a.stage.value - 1}, after{a.stage.value + 1};
      const bool back = makesGradient(a.kind);
      if (a.kind == ActionKind::Forward && isElsewhere(before, a.microbatch, rank))
        row.push_back({a.stage, ActionKind::RecvForward, a.microbatch});
      if (back && isElsewhere(after, a.microbatch, rank)) row.push_back({a.stage, ActionKind::RecvBackward, a.microbatch});
      row.push_back(a);
      if (a.kind == ActionKind::Forward && isElsewhere(after, a.microbatch, rank))
        row.push_back({a.stage, ActionKind::SendForward, a.microbatch});
      if (back && training && isElsewhere(before, a.microbatch, rank)) row.push_back({a.stage, ActionKind::SendBackward, a.microbatch});
    }
    result.rows[rank] = std::move(row);
  }
  return result;
}

}  // namespace

bool hasStage(const Schedule& schedule, Stage stage) { return stage.value >= 0 && stage.index() < schedule.placement.stages(); }

std::vector<Lowered> loweringsOf(const Schedule& schedule) {
  if (isLowered(schedule)) return {{schedule}};
  std::vector<Lowered> all;
  const bool single = schedule.placement.stages() == schedule.rows.size();
  if (single) all.push_back({besideActions(schedule), true});
  for (const Lowering lowering : {Lowering::TorchRuntime, Lowering::Torch, Lowering::Deferred}) {
    try {
      all.push_back({lower(schedule, lowering)});
    } catch (const UsageError&) {  // it deadlocks by itself, which `check` explains; its order beside the actions is known nevertheless
      break;
    }
  }
  if (!single) all.push_back({besideActions(schedule), true});
  return all;
}

std::vector<std::vector<int>> positionsIn(const Schedule& file, const Schedule& lowered) {
  std::vector<std::vector<int>> all(lowered.rows.size());
  for (std::size_t r = 0; r < lowered.rows.size(); ++r) {
    std::map<Action, int> places;
    for (std::size_t i = 0; i < file.rows[r].size(); ++i) {
      Action action = file.rows[r][i];
      action.overlapsNext = false;
      places.emplace(action, static_cast<int>(i));
    }
    for (Action action : lowered.rows[r]) {
      action.overlapsNext = false;
      const auto found = places.find(action);
      all[r].push_back(found == places.end() ? -1 : found->second);
    }
  }
  return all;
}

}  // namespace pw::hang
