#include "simulator/report/ready_work.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace pw {
namespace {

/// When the work of each step is ready.
class Readiness {
 public:
  Readiness(const ProgramView& view, const ComputeSteps& steps)
      : view_(view),
        steps_(steps),
        forward_(stepsOf(ActionKind::Forward, ActionKind::Forward)),
        gradient_(stepsOf(ActionKind::Backward, ActionKind::BackwardInput)),
        received_(receipts()),
        arriving_(view.costs.stages.size()),
        ready_(arrivals()) {
    for (const MessageCost& m : view.costs.messages) arriving_[m.to.index()].push_back(&m);
  }

  /// By step.
  std::vector<Ns> run() {
    for (const auto& row : steps_.ofRank) {
      for (const ComputeStep& done : row) {
        for (const Action* action : {view_.actionOf(done.step), view_.partnerOf(done.step)}) {
          if (action != nullptr) need(done.step, *action);
        }
      }
    }
    return std::move(ready_);
  }

 private:
  /// By stage and microbatch the step of its action of one of two kinds, or none.
  [[nodiscard]] std::vector<std::int32_t> stepsOf(ActionKind first, ActionKind second) const {
    std::vector<std::int32_t> steps(view_.pairs(), kNoStep);
    for (const auto& row : steps_.ofRank) {
      for (const ComputeStep& done : row) {
        for (const Action* action : {view_.actionOf(done.step), view_.partnerOf(done.step)}) {
          if (action != nullptr && (action->kind == first || action->kind == second)) steps[view_.pairOf(*action)] = done.step;
        }
      }
    }
    return steps;
  }

  /// By step: when the messages that it takes from other ranks were there.
  [[nodiscard]] std::vector<Ns> arrivals() const {
    const Program& p = view_.program;
    std::vector<Ns> arrived(p.origin.size(), steps_.first);
    for (std::size_t step = 0; step < arrived.size(); ++step) {
      const auto source = static_cast<std::int32_t>(step);
      for (std::int32_t e = p.steps[step].firstEdge; e < p.steps[step + 1].firstEdge; ++e) {
        const Edge& edge = p.edges[static_cast<std::size_t>(e)];
        if (view_.laneOf(edge.to) == view_.laneOf(source)) continue;
        Ns& time = arrived[static_cast<std::size_t>(edge.to)];
        time = std::max(time, view_.endOf(source) + p.delays[static_cast<std::size_t>(edge.delay)]);
      }
    }
    return arrived;
  }

  /// By stage, microbatch and direction: when the row's own receive of it was done, where it has one.
  [[nodiscard]] std::vector<Ns> receipts() const {
    std::vector<Ns> received(2 * view_.pairs(), steps_.first);
    for (std::int32_t rank = 0; rank < view_.program.ranks; ++rank) {
      for (const std::int32_t step : view_.program.stepsOf(rank)) {
        if (view_.originOf(step).index < 0) continue;
        const Action& action = view_.rows.rows[static_cast<std::size_t>(rank)][static_cast<std::size_t>(view_.originOf(step).index)];
        if (isReceive(action.kind)) received[2 * view_.pairOf(action) + (isBackward(action.kind) ? 1 : 0)] = view_.endOf(step);
      }
    }
    return received;
  }

  /// The step waits for another one of its rank.
  void follow(std::int32_t step, std::int32_t input) {
    if (input == kNoStep || view_.laneOf(input) != view_.laneOf(step)) return;
    Ns& time = ready_[static_cast<std::size_t>(step)];
    time = std::max(time, view_.endOf(input));
  }

  /// The step waits for what this action of it needs.
  void need(std::int32_t step, const Action& action) {
    const bool backward = isBackward(action.kind);
    if (backward) follow(step, (action.kind == ActionKind::BackwardWeight ? gradient_ : forward_)[view_.pairOf(action)]);
    if (action.kind == ActionKind::BackwardWeight) return;
    Ns& time = ready_[static_cast<std::size_t>(step)];
    time = std::max(time, received_[2 * view_.pairOf(action) + (backward ? 1 : 0)]);
    for (const MessageCost* m : arriving_[action.stage.index()]) {
      if (m->backward == backward) follow(step, (backward ? gradient_ : forward_)[view_.pairOf({m->from, {}, action.microbatch})]);
    }
  }

  const ProgramView& view_;
  const ComputeSteps& steps_;
  std::vector<std::int32_t> forward_, gradient_;           ///< steps by stage and microbatch
  std::vector<Ns> received_;                               ///< by stage, microbatch and direction
  std::vector<std::vector<const MessageCost*>> arriving_;  ///< by stage
  std::vector<Ns> ready_;                                  ///< by step
};

}  // namespace

std::vector<Ns> readyTimes(const ProgramView& view, const ComputeSteps& steps) { return Readiness(view, steps).run(); }

/// In a gap some work is ready from the earliest such time of the actions after it.
std::vector<Ns> readyWork(const ProgramView& view, const ComputeSteps& steps) {
  const std::vector<Ns> ready = readyTimes(view, steps);
  std::vector<Ns> sums(steps.ofRank.size(), 0);
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    const std::vector<ComputeStep>& row = steps.ofRank[rank];
    Ns earliest = steps.last.end;
    for (std::size_t i = row.size(); i-- > 0;) {
      earliest = std::min(earliest, ready[static_cast<std::size_t>(row[i].step)]);
      const Ns before = i > 0 ? row[i - 1].end : steps.first;
      sums[rank] += std::max<Ns>(0, row[i].start - std::max(before, earliest));
    }
  }
  return sums;
}

}  // namespace pw
