#include "simulator/trace/executed.h"

#include <algorithm>
#include <cstdint>

#include "schedules/check.h"
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
  std::vector<Rank> ranks;  ///< by stage, then microbatch

  [[nodiscard]] Rank of(std::size_t stage, std::size_t microbatch) const {
    return ranks[stage * static_cast<std::size_t>(microbatches) + microbatch];
  }
};

std::optional<Places> placesOf(const std::vector<std::vector<Action>>& rows) {
  Places places;
  std::size_t forwards = 0;
  for (const std::vector<Action>& row : rows) {
    for (const Action& action : row) {
      if (action.stage.value < 0 || action.microbatch.value < 0 || action.stage.value >= kMaxStages ||
          action.microbatch.value >= kMaxMicrobatches)
        return std::nullopt;
      places.stages = std::max(places.stages, action.stage.value + 1);
      places.microbatches = std::max(places.microbatches, action.microbatch.value + 1);
      forwards += action.kind == ActionKind::Forward ? 1 : 0;
    }
  }
  if (forwards == 0 || forwards != static_cast<std::size_t>(places.stages) * static_cast<std::size_t>(places.microbatches))
    return std::nullopt;
  constexpr Rank kNowhere(-1);
  places.ranks.assign(forwards, kNowhere);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const Action& action : rows[r]) {
      if (action.kind != ActionKind::Forward) continue;
      Rank& rank = places.ranks[action.stage.index() * static_cast<std::size_t>(places.microbatches) + action.microbatch.index()];
      if (rank != kNowhere) return std::nullopt;  // twice
      rank = Rank(static_cast<int>(r));
    }
  }
  return places;
}

/// Nothing where it is neither of one replica nor of two.
std::optional<Placement> placementOf(const Places& places) {
  const auto stages = static_cast<std::size_t>(places.stages), microbatches = static_cast<std::size_t>(places.microbatches);
  Placement placement;
  for (std::size_t s = 0; s < stages; ++s) placement.rankOfStage.push_back(places.of(s, 0));
  const auto isMirrored = [&](std::size_t m) {
    for (std::size_t s = 0; s < stages; ++s) {
      if (places.of(s, m) != placement.rankOfStage[s]) return true;
    }
    return false;
  };
  std::size_t mirrored = 0;  // the first that is not on its stage's first rank
  while (mirrored < microbatches && !isMirrored(mirrored)) ++mirrored;
  if (mirrored == microbatches) return placement;
  placement.firstMirrored = Microbatch(mirrored);
  for (std::size_t s = 0; s < stages; ++s) {
    placement.mirrorOfStage.push_back(places.of(s, mirrored));
    for (std::size_t m = mirrored; m < microbatches; ++m) {
      if (places.of(s, m) != placement.mirrorOfStage.back()) return std::nullopt;
    }
  }
  return placement;
}

/// Whether all that follows a forward is where the forward is, and is whole: B, or I and W, or nothing at all.
bool areComplete(const Schedule& schedule) {
  const std::size_t all = schedule.placement.stages() * static_cast<std::size_t>(schedule.microbatches);
  std::vector<std::uint8_t> halves(all);  // of the backward, by stage and microbatch
  constexpr std::uint8_t kWhole = 2;
  bool trains = false;
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    for (const Action& action : schedule.rows[r]) {
      if (schedule.placement.rankOf(action.stage, action.microbatch) != Rank(static_cast<int>(r))) return false;
      if (action.kind == ActionKind::Forward) continue;
      trains = true;
      std::uint8_t& done = halves[action.stage.index() * static_cast<std::size_t>(schedule.microbatches) + action.microbatch.index()];
      if (done == kWhole) return false;
      done = static_cast<std::uint8_t>(done + (action.kind == ActionKind::Backward ? kWhole : 1));
    }
  }
  return !trains || std::ranges::all_of(halves, [](std::uint8_t done) { return done == kWhole; });
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
  const bool trained = trains(schedule);
  const auto makes = [&](const Generator& family) {
    if (family.trains != trained || !checkPlacement(schedule, family.placement).empty() || family.refusal(shape)) return false;
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
