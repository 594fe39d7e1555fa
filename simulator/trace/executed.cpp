#include "simulator/trace/executed.h"

#include <algorithm>
#include <map>
#include <utility>

#include "schedules/generate.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

std::optional<ActionKind> actionOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward: return ActionKind::Forward;
    case SpanKind::Backward: return ActionKind::Backward;
    case SpanKind::BackwardInput: return ActionKind::BackwardInput;
    case SpanKind::BackwardWeight: return ActionKind::BackwardWeight;
    case SpanKind::SendForward:
    case SpanKind::SendBackward:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward:
    case SpanKind::ReduceGrad:
    case SpanKind::Optimizer:
    case SpanKind::Load:
    case SpanKind::Store: return std::nullopt;
  }
  return std::nullopt;
}

/// The compute actions of each rank, by their starts.
std::vector<std::vector<Action>> rowsOf(const Trace& trace) {
  std::vector<std::vector<Action>> rows(static_cast<std::size_t>(std::max(0, trace.ranks)));
  std::vector<const Span*> last(rows.size());
  for (const Span& span : trace.spans) {
    const auto kind = actionOf(span.kind);
    if (!kind || span.rank.value < 0 || span.rank.index() >= rows.size()) continue;
    std::vector<Action>& row = rows[span.rank.index()];
    if (last[span.rank.index()] != nullptr && isSlot(*last[span.rank.index()], span)) row.back().overlapsNext = true;
    row.push_back({span.stage, *kind, span.microbatch});
    last[span.rank.index()] = &span;
  }
  return rows;
}

/// Where every forward of a stage was done.
struct Places {
  int stages = 0, microbatches = 0;
  std::map<std::pair<Stage, Microbatch>, Rank> ranks;
};

std::optional<Places> placesOf(const std::vector<std::vector<Action>>& rows) {
  Places places;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const Action& action : rows[r]) {
      if (action.stage.value < 0 || action.microbatch.value < 0 || action.stage.value >= kMaxStages ||
          action.microbatch.value >= kMaxMicrobatches)
        return std::nullopt;
      places.stages = std::max(places.stages, action.stage.value + 1);
      places.microbatches = std::max(places.microbatches, action.microbatch.value + 1);
      if (action.kind != ActionKind::Forward) continue;
      if (!places.ranks.try_emplace({action.stage, action.microbatch}, Rank(static_cast<int>(r))).second) return std::nullopt;  // twice
    }
  }
  if (places.ranks.empty() ||
      places.ranks.size() != static_cast<std::size_t>(places.stages) * static_cast<std::size_t>(places.microbatches))
    return std::nullopt;
  return places;
}

/// Nothing where it is neither of one replica nor of two.
std::optional<Placement> placementOf(const Places& places) {
  Placement placement;
  std::optional<Microbatch> mirrored;  // the first that is not on its stage's first rank
  for (int s = 0; s < places.stages; ++s) placement.rankOfStage.push_back(places.ranks.at({Stage(s), Microbatch(0)}));
  for (const auto& [of, rank] : places.ranks) {
    if (rank != placement.rankOfStage[of.first.index()] && (!mirrored || of.second < *mirrored)) mirrored = of.second;
  }
  if (!mirrored) return placement;
  placement.firstMirrored = *mirrored;
  for (int s = 0; s < places.stages; ++s) placement.mirrorOfStage.push_back(places.ranks.at({Stage(s), *mirrored}));
  for (const auto& [of, rank] : places.ranks) {
    if (placement.rankOf(of.first, of.second) != rank) return std::nullopt;
  }
  return placement;
}

/// Whether all that follows a forward is where the forward is, and is whole: B, or I and W, or nothing at all.
bool areComplete(const Schedule& schedule) {
  std::map<std::pair<Stage, Microbatch>, int> parts;  // of the backward, in halves
  bool trains = false;
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    for (const Action& action : schedule.rows[r]) {
      if (schedule.placement.rankOf(action.stage, action.microbatch) != Rank(static_cast<int>(r))) return false;
      if (action.kind == ActionKind::Forward) continue;
      trains = true;
      parts[{action.stage, action.microbatch}] += action.kind == ActionKind::Backward ? 2 : 1;
    }
  }
  const std::size_t all = schedule.placement.stages() * static_cast<std::size_t>(schedule.microbatches);
  return !trains || (parts.size() == all && std::ranges::all_of(parts, [](const auto& part) { return part.second == 2; }));
}

std::vector<Action> computeOf(const std::vector<Action>& row) {
  std::vector<Action> compute;
  for (Action action : row) {
    if (!isCompute(action.kind)) continue;
    action.overlapsNext = false;
    compute.push_back(action);
  }
  return compute;
}

}  // namespace

std::optional<Schedule> executedSchedule(const Trace& trace) {
  Schedule schedule;
  schedule.rows = rowsOf(trace);
  const auto places = placesOf(schedule.rows);
  if (!places) return std::nullopt;
  const auto placement = placementOf(*places);
  if (!placement) return std::nullopt;
  schedule.placement = *placement;
  schedule.microbatches = places->microbatches;
  if (!areComplete(schedule)) return std::nullopt;
  schedule.name = familyOf(schedule);
  return schedule;
}

std::string_view familyOf(const Schedule& schedule) {
  std::vector<std::vector<Action>> rows;
  rows.reserve(schedule.rows.size());
  for (const std::vector<Action>& row : schedule.rows) rows.push_back(computeOf(row));
  const Shape shape = shapeOf(schedule);
  const auto makes = [&](const Generator& family) {
    if (family.refusal(shape)) return false;
    const Schedule made = family.generate(shape);
    if (made.placement != schedule.placement) return false;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (computeOf(made.rows[r]) != rows[r]) return false;
    }
    return true;
  };
  const auto found = std::ranges::find_if(generators(), makes);
  return found == generators().end() ? std::string_view() : found->name;
}

}  // namespace pw
