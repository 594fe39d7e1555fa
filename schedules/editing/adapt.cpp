#include "schedules/editing/adapt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "schedules/check.h"

namespace pw {
namespace {

/// Positions [begin, end) of a row.
struct Part {
  std::size_t begin = 0, end = 0;
};

/// Position of the first forward of each microbatch, of the lowest stage that the row has forwards of; the row's size where there is none.
std::vector<std::size_t> firstForwards(const std::vector<Action>& row, int microbatches) {
  std::vector<std::size_t> places(static_cast<std::size_t>(microbatches), row.size());
  std::optional<Stage> stage;
  for (const Action& a : row) {
    if (a.kind == ActionKind::Forward && (!stage || a.stage < *stage)) stage = a.stage;
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (stage && row[i].kind == ActionKind::Forward && row[i].stage == *stage) places[row[i].microbatch.index()] = i;
  }
  return places;
}

/// A row, prepared for looking at many parts of it.
struct Steps {
  const std::vector<Action>& row;
  std::vector<std::size_t> places;   ///< of `firstForwards`
  std::vector<std::size_t> actions;  ///< before each position, without idle cells

  Steps(const std::vector<Action>& actionsOfRank, int microbatches)
      : row(actionsOfRank), places(firstForwards(actionsOfRank, microbatches)), actions(1, 0) {
    actions.reserve(row.size() + 1);
    for (const Action& a : row) actions.push_back(actions.back() + (a.kind == ActionKind::Idle ? 0 : 1));
  }
};

/// Whether the part holds each kind and stage of the row as often as the period has microbatches.
bool isWhole(const Steps& steps, Part part, std::size_t microbatches, std::size_t period) {
  const std::size_t all = steps.actions.back();
  if (all % microbatches != 0 || steps.actions[part.end] - steps.actions[part.begin] != all / microbatches * period) return false;
  std::vector<std::pair<Stage, ActionKind>> kinds;
  for (std::size_t i = part.begin; i < part.end; ++i) {
    if (steps.row[i].kind != ActionKind::Idle) kinds.emplace_back(steps.row[i].stage, steps.row[i].kind);
  }
  std::ranges::sort(kinds);
  for (std::size_t i = 0; i < kinds.size(); i += period) {
    const std::size_t last = i + period - 1;
    if (kinds[i] != kinds[last] || (last + 1 < kinds.size() && kinds[last + 1] == kinds[i])) return false;
  }
  return true;
}

/// The part of each row that starts with the first forward of microbatch `from` and ends before that of `from + period`, if each is whole.
std::optional<std::vector<Part>> partsAt(const std::vector<Steps>& rows, std::size_t from, std::size_t period) {
  std::vector<Part> parts;
  for (const Steps& steps : rows) {
    const Part part{steps.places[from], steps.places[from + period]};
    if (part.end <= part.begin || part.end >= steps.row.size() || !isWhole(steps, part, steps.places.size(), period)) return std::nullopt;
    parts.push_back(part);
  }
  return parts;
}

/// With the parts done `times` times more.
Schedule repeated(const Schedule& schedule, const std::vector<Part>& parts, int period, int times) {
  Schedule longer = schedule;
  longer.microbatches += period * times;
  const auto later = [](Action a, int by) {
    if (a.kind != ActionKind::Idle) a.microbatch.value += by;
    return a;
  };
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const auto& row = schedule.rows[r];
    auto& made = longer.rows[r];
    made.assign(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(parts[r].end));
    for (int k = 1; k <= times; ++k) {
      for (std::size_t i = parts[r].begin; i < parts[r].end; ++i) made.push_back(later(row[i], k * period));
    }
    for (std::size_t i = parts[r].end; i < row.size(); ++i) made.push_back(later(row[i], times * period));
  }
  return longer;
}

Schedule shortened(const Schedule& schedule, int microbatches) {
  Schedule shorter = schedule;
  shorter.microbatches = microbatches;
  for (auto& row : shorter.rows) {
    // The first of a pair whose second goes is on its own.
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      if (row[i].overlapsNext && row[i + 1].microbatch.value >= microbatches) row[i].overlapsNext = false;
    }
    std::erase_if(row, [&](const Action& a) { return a.microbatch.value >= microbatches; });
  }
  return shorter;
}

}  // namespace

std::variant<Schedule, std::string> adapted(const Schedule& schedule, const Shape& shape) {
  const Shape own = shapeOf(schedule);
  if (own == shape) return schedule;
  if (own.ranks != shape.ranks || own.stages != shape.stages) {
    return fmt::format("schedule {} was drawn for {} ranks and {} stages, not {} and {}", schedule.name, own.ranks, own.stages, shape.ranks,
                       shape.stages);
  }
  if (schedule.placement.bidirectional()) {
    return fmt::format("schedule {} was drawn for {} microbatches, of which the first {} go down and the rest go up", schedule.name,
                       own.microbatches, schedule.placement.firstMirrored.value);
  }
  if (shape.microbatches < own.microbatches) return shortened(schedule, shape.microbatches);
  constexpr int kMostRepeated = 64;
  std::vector<Steps> rows;
  for (const auto& row : schedule.rows) rows.emplace_back(row, own.microbatches);
  const int more = shape.microbatches - own.microbatches;
  for (int period = 1; period < std::min(own.microbatches, kMostRepeated + 1); ++period) {
    for (int from = own.microbatches - period; from-- > 0;) {
      const auto parts = partsAt(rows, static_cast<std::size_t>(from), static_cast<std::size_t>(period));
      if (!parts) continue;
      const int times = (more + period - 1) / period;
      Schedule longer = repeated(schedule, *parts, period, times);
      if (longer.microbatches > shape.microbatches) longer = shortened(longer, shape.microbatches);
      if (check(longer).empty()) return longer;
      break;  // an earlier part of as many microbatches is as little of use
    }
  }
  return fmt::format("schedule {} was drawn for {} microbatches, and no part of its order repeats itself so that it could go on to {}",
                     schedule.name, own.microbatches, shape.microbatches);
}

}  // namespace pw
