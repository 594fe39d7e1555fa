#include "schedules/adapt.h"

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

/// Whether [part] holds each kind and stage of the row as often as the period has microbatches.
bool isWhole(const std::vector<Action>& row, Part part, std::size_t perMicrobatch, int period) {
  std::size_t count = 0;
  std::vector<std::pair<Stage, ActionKind>> kinds;
  for (std::size_t i = part.begin; i < part.end; ++i) {
    if (row[i].kind == ActionKind::Idle) continue;
    ++count;
    kinds.emplace_back(row[i].stage, row[i].kind);
  }
  if (count != perMicrobatch * static_cast<std::size_t>(period)) return false;
  std::ranges::sort(kinds);
  for (std::size_t i = 0; i < kinds.size(); i += static_cast<std::size_t>(period)) {
    const std::size_t last = i + static_cast<std::size_t>(period) - 1;
    if (kinds[i] != kinds[last] || (last + 1 < kinds.size() && kinds[last + 1] == kinds[i])) return false;
  }
  return true;
}

/// The part of each row that starts with the first forward of microbatch `from` and ends before that of `from + period`, if each is whole.
std::optional<std::vector<Part>> partsAt(const Schedule& schedule, const std::vector<std::vector<std::size_t>>& places, int from,
                                         int period) {
  std::vector<Part> parts;
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    const auto& row = schedule.rows[r];
    const std::size_t actions = row.size() - static_cast<std::size_t>(std::ranges::count(row, ActionKind::Idle, &Action::kind));
    const auto all = static_cast<std::size_t>(schedule.microbatches);
    const Part part{places[r][static_cast<std::size_t>(from)],
                    places[r][static_cast<std::size_t>(from) + static_cast<std::size_t>(period)]};
    if (actions % all != 0 || part.end <= part.begin || part.end >= row.size() || !isWhole(row, part, actions / all, period))
      return std::nullopt;
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
  std::vector<std::vector<std::size_t>> places;
  for (const auto& row : schedule.rows) places.push_back(firstForwards(row, own.microbatches));
  const int more = shape.microbatches - own.microbatches;
  for (int period = 1; period < own.microbatches; ++period) {
    for (int from = own.microbatches - period; from-- > 0;) {
      const auto parts = partsAt(schedule, places, from, period);
      if (!parts) continue;
      const int times = (more + period - 1) / period;
      Schedule longer = repeated(schedule, *parts, period, times);
      if (longer.microbatches > shape.microbatches) longer = shortened(longer, shape.microbatches);
      if (check(longer).empty()) return longer;
    }
  }
  return fmt::format("schedule {} was drawn for {} microbatches, and no part of its order repeats itself so that it could go on to {}",
                     schedule.name, own.microbatches, shape.microbatches);
}

}  // namespace pw
