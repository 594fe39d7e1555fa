#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "schedules/schedule.h"

namespace pw::gui {

/// A part of a schedule's text.
struct CsvPlace {
  int row = 0;
  std::optional<int> cell;  ///< nothing: all of the row

  bool operator==(const CsvPlace&) const = default;
};

/// The action as it is alone.
[[nodiscard]] Action withoutOverlap(Action a);
/// The cell of a row that an action is in: those of an overlapped pair share one.
[[nodiscard]] int cellOf(const std::vector<Action>& row, int position);
/// The action of a cell, `part` (0 or 1) of an overlapped pair; nothing: it is a pause, or there is no such cell.
[[nodiscard]] std::optional<Action> actionIn(const std::vector<Action>& row, int cell, int part);
/// The first action of a microbatch or stage that a plan of so many does not have.
[[nodiscard]] std::optional<std::pair<CsvPlace, Action>> beyond(const Schedule& schedule, int microbatches, std::size_t stages);

}  // namespace pw::gui
