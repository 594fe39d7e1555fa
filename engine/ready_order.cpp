#include "engine/ready_order.h"

#include <algorithm>
#include <utility>

namespace pw {
namespace {

/// The actions of a part keep their order within a stage.
enum class Part : std::uint8_t { Forward, Backward, Weight };  ///< F; B or I; W

Part partOf(ActionKind kind) {
  if (kind == ActionKind::Forward) return Part::Forward;
  return kind == ActionKind::BackwardWeight ? Part::Weight : Part::Backward;
}

}  // namespace

void ReadyOrder::StageCounts::add(ActionKind kind) {
  ++done[static_cast<std::size_t>(partOf(kind))];
  live += kind == ActionKind::Forward ? 1 : kind == ActionKind::BackwardInput ? 0 : -1;
  waiting += kind == ActionKind::BackwardInput ? 1 : kind == ActionKind::BackwardWeight ? -1 : 0;
}

ReadyOrder::ReadyOrder(const Plan& plan, Rank rank, const std::vector<Op>& ops) : plan_(plan), rank_(rank) {
  for (const Op& op : ops) {
    if (op.kind != Op::Kind::Compute) continue;
    StageCounts& counts = stages_[op.action.stage];
    counts.add(op.action.kind);
    counts.mostLive = std::max(counts.mostLive, counts.live);
    counts.mostWaiting = std::max(counts.mostWaiting, counts.waiting);
  }
  for (auto& [stage, counts] : stages_) {
    counts.total = std::exchange(counts.done, {});
    counts.live = counts.waiting = 0;  // a plan of forwards alone ends with live ones
  }
}

/// Whether no earlier action of its part and stage is open.
bool ReadyOrder::isNextOfItsPart(std::size_t at) const {
  return std::none_of(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(at), [&](const Action& earlier) {
    return earlier.stage == open_[at].stage && partOf(earlier.kind) == partOf(open_[at].kind);
  });
}

bool ReadyOrder::mayRun(const Action& action) const {
  const StageCounts& counts = stages_.at(action.stage);
  switch (partOf(action.kind)) {
    case Part::Forward: return counts.live < counts.mostLive;
    case Part::Backward:
      return finished_.contains({action.stage, ActionKind::Forward, action.microbatch}) &&
             (action.kind == ActionKind::Backward || counts.waiting < counts.mostWaiting);
    case Part::Weight: return finished_.contains({action.stage, ActionKind::BackwardInput, action.microbatch});
  }
  return false;
}

/// Whether the stages of this rank whose values the action needs have produced them.
bool ReadyOrder::hasLocalValues(const Action& action) const {
  const bool forward = action.kind == ActionKind::Forward;
  return std::ranges::all_of(plan_.partition.transfers, [&](const Transfer& t) {
    if ((forward ? t.to : t.from) != action.stage || (!forward && !t.gradient)) return true;
    const Stage maker = forward ? t.from : t.to;
    if (plan_.schedule.placement.rankOf(maker, action.microbatch) != rank_) return true;
    return std::ranges::any_of(forward ? std::vector{ActionKind::Forward} : std::vector{ActionKind::Backward, ActionKind::BackwardInput},
                               [&](ActionKind kind) {
                                 return finished_.contains({maker, kind, action.microbatch});
                               });
  });
}

std::optional<Action> ReadyOrder::take(const std::function<bool(const Action&)>& hasArrived) {
  for (std::size_t i = 0; i < open_.size(); ++i) {
    const Action action = open_[i];
    if (!isNextOfItsPart(i) || !mayRun(action)) continue;
    if (takesValues(action.kind) && (!hasArrived(action) || !hasLocalValues(action))) continue;
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
    return action;
  }
  return std::nullopt;
}

bool ReadyOrder::finish(const Action& action) {
  finished_.insert(action);
  StageCounts& counts = stages_.at(action.stage);
  counts.add(action.kind);
  return counts.done == counts.total;
}

}  // namespace pw
