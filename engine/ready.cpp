#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "engine/executor.h"
#include "engine/ops.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// The actions of a part keep their order within a stage.
enum class Part : std::uint8_t { Forward, Backward, Weight };  ///< F; B or I; W
constexpr std::size_t kParts = 3;

Part partOf(ActionKind kind) {
  if (kind == ActionKind::Forward) return Part::Forward;
  return kind == ActionKind::BackwardWeight ? Part::Weight : Part::Backward;
}

/// What has been done of a stage, and how much may be in flight at once.
struct StageCounts {
  std::array<int, kParts> done{};  ///< by part
  std::array<int, kParts> total{};
  int live = 0, mostLive = 0;        ///< F not yet answered by B (or W)
  int waiting = 0, mostWaiting = 0;  ///< I not yet followed by W

  void add(ActionKind kind) {
    ++done[static_cast<std::size_t>(partOf(kind))];
    live += kind == ActionKind::Forward ? 1 : kind == ActionKind::BackwardInput ? 0 : -1;
    waiting += kind == ActionKind::BackwardInput ? 1 : kind == ActionKind::BackwardWeight ? -1 : 0;
  }
};

std::map<Stage, StageCounts> limitsOf(const std::vector<Op>& ops) {
  std::map<Stage, StageCounts> stages;
  for (const Op& op : ops) {
    if (op.kind != Op::Kind::Compute) continue;
    StageCounts& counts = stages[op.action.stage];
    counts.add(op.action.kind);
    counts.mostLive = std::max(counts.mostLive, counts.live);
    counts.mostWaiting = std::max(counts.mostWaiting, counts.waiting);
  }
  for (auto& [stage, counts] : stages) {
    counts.total = std::exchange(counts.done, {});
    counts.live = counts.waiting = 0;  // a plan of forwards alone ends with live ones
  }
  return stages;
}

/// Whether an action waits for values or gradients of other stages.
bool takesValues(const Action& action) { return action.kind != ActionKind::BackwardWeight; }

Direction directionOf(const Action& action) { return action.kind == ActionKind::Forward ? Direction::Forward : Direction::Backward; }

}  // namespace

/// Runs the row section by section between barriers; in each, always the first action of the row that is ready.
void Executor::runReady() {
  std::map<Stage, StageCounts> stages = limitsOf(ops_);
  std::vector<Action> open;
  const auto isNextOfItsPart = [&](const Action& action, std::size_t at) {  // no earlier one of its part and stage is open
    return std::none_of(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(at),
                        [&](const Action& a) { return a.stage == action.stage && partOf(a.kind) == partOf(action.kind); });
  };
  const auto mayRun = [&](const Action& action) {
    const StageCounts& counts = stages.at(action.stage);
    switch (partOf(action.kind)) {
      case Part::Forward: return counts.live < counts.mostLive;
      case Part::Backward:
        return finished_.contains({action.stage, ActionKind::Forward, action.microbatch}) &&
               (action.kind == ActionKind::Backward || counts.waiting < counts.mostWaiting);
      case Part::Weight: return finished_.contains({action.stage, ActionKind::BackwardInput, action.microbatch});
    }
    return false;
  };
  const auto runOpen = [&] {
    while (!open.empty()) {
      // What had arrived before the scan below. A message that arrives during the scan may make an action ready that was already skipped,
      // so it must end the wait.
      std::vector<Communicator::Request> come = exchange_.awaited();
      std::erase_if(come, [&](auto request) { return !communicator_.isDone(request).value_or(false); });
      std::optional<std::size_t> chosen;
      for (std::size_t i = 0; i < open.size() && !chosen; ++i) {
        if (!isNextOfItsPart(open[i], i) || !mayRun(open[i])) continue;
        if (takesValues(open[i])) {
          exchange_.post(open[i].stage, open[i].microbatch, directionOf(open[i]));
          if (!hasLocalInputs(open[i]) || !exchange_.isReady(open[i].stage, open[i].microbatch, directionOf(open[i]))) continue;
        }
        chosen = i;
      }
      if (!chosen) {
        std::vector<Communicator::Request> requests = exchange_.awaited();
        std::erase_if(requests, [&](auto request) { return std::ranges::count(come, request) > 0; });
        if (!requests.empty()) static_cast<void>(communicator_.waitAny(requests));
        continue;
      }
      const Action action = open[*chosen];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(*chosen));
      current_ = action;
      compute(action);
      if (takesValues(action) && exchange_.sendsAway(action.stage, action.microbatch, directionOf(action)))
        exchange_.send(action.stage, action.microbatch, directionOf(action), log_);
      finished_.insert(action);
      StageCounts& counts = stages.at(action.stage);
      counts.add(action.kind);
      if (counts.done == counts.total) reducer_.start(action.stage);
    }
  };
  finished_.clear();
  for (const Op& op : ops_) {
    if (op.kind == Op::Kind::Compute) open.push_back(op.action);
    if (op.kind != Op::Kind::Barrier) continue;
    runOpen();
    run(op);
  }
  runOpen();
}

/// Whether the stages of this rank whose values the action needs have produced them.
bool Executor::hasLocalInputs(const Action& action) const {
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

}  // namespace pw
