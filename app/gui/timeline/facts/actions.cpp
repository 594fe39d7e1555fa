#include "app/gui/timeline/facts/actions.h"

namespace pw::gui {
namespace {

std::optional<ActionKind> computeKind(SpanKind kind) {
  for (const ActionKind own : {ActionKind::Forward, ActionKind::Backward, ActionKind::BackwardInput, ActionKind::BackwardWeight}) {
    if (spanKind(own) == kind) return own;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Action> actionOf(const Timeline& timeline, const SpanRef& span) {
  if (span.track != TrackKind::Compute || span.rank.index() >= timeline.ranks.size()) return std::nullopt;
  const SpanTrack& track = timeline.ranks[span.rank.index()].compute;
  const auto at = static_cast<std::size_t>(span.index);
  if (at >= track.size()) return std::nullopt;
  const auto kind = computeKind(track.tags[at].kind);
  if (!kind) return std::nullopt;
  return Action{track.tags[at].stage, *kind, track.tags[at].microbatch};
}

std::optional<SpanRef> blockOf(const Timeline& timeline, const Placement& placement, const Action& action) {
  if (action.stage.value < 0 || action.stage.index() >= placement.stages()) return std::nullopt;
  const auto kind = spanKind(action.kind);
  if (!kind) return std::nullopt;
  return findAction(timeline, placement.rankOf(action.stage, action.microbatch), *kind, action.stage, action.microbatch);
}

}  // namespace pw::gui
