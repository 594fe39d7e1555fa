#include "simulator/report/program_view.h"

namespace pw {

const Action* ProgramView::actionOf(std::int32_t step) const {
  if (!onRank(step) || originOf(step).index < 0) return nullptr;
  const Action& action = rows.rows[static_cast<std::size_t>(laneOf(step))][static_cast<std::size_t>(originOf(step).index)];
  return isCompute(action.kind) ? &action : nullptr;
}

const Action* ProgramView::partnerOf(std::int32_t step) const {
  const Action* action = actionOf(step);
  if (action == nullptr || !action->overlapsNext) return nullptr;
  const auto& row = rows.rows[static_cast<std::size_t>(laneOf(step))];
  const bool slot = action != &row.back() && (action + 1)->kind == ActionKind::Backward;
  return slot ? action + 1 : nullptr;
}

ComputeSteps computeStepsOf(const ProgramView& view) {
  ComputeSteps all;
  all.ofRank.resize(static_cast<std::size_t>(view.program.ranks));
  ComputeStep& last = all.last;
  for (std::int32_t rank = 0; rank < view.program.ranks; ++rank) {
    for (const std::int32_t step : view.program.stepsOf(rank)) {
      if (view.actionOf(step) == nullptr) continue;
      const ComputeStep done{step, view.startOf(step), view.endOf(step)};
      all.ofRank[static_cast<std::size_t>(rank)].push_back(done);
      const bool any = last.step != kNoStep;
      all.first = any ? std::min(all.first, done.start) : done.start;
      if (!any || done.end > last.end || (done.end == last.end && view.laneOf(last.step) == rank)) last = done;
    }
  }
  return all;
}

}  // namespace pw
