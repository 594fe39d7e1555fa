#include "app/gui/editor/csv_cells.h"

namespace pw::gui {

Action withoutOverlap(Action a) {
  a.overlapsNext = false;
  return a;
}

int cellOf(const std::vector<Action>& row, int position) {
  int cell = 0;
  for (int i = 0; i < position && static_cast<std::size_t>(i) < row.size(); ++i)
    cell += row[static_cast<std::size_t>(i)].overlapsNext ? 0 : 1;
  return cell;
}

std::optional<Action> actionIn(const std::vector<Action>& row, int cell, int part) {
  int at = 0;
  for (std::size_t i = 0; i < row.size(); ++i, ++at) {
    const bool isPair = row[i].overlapsNext && i + 1 < row.size();
    if (at == cell) {
      const Action& a = row[isPair && part > 0 ? i + 1 : i];
      return a.kind == ActionKind::Idle ? std::nullopt : std::optional(withoutOverlap(a));
    }
    if (isPair) ++i;
  }
  return std::nullopt;
}

std::optional<std::pair<CsvPlace, Action>> beyond(const Schedule& schedule, int microbatches, std::size_t stages) {
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    const auto& row = schedule.rows[r];
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind == ActionKind::Idle || (row[i].microbatch.value < microbatches && row[i].stage.index() < stages)) continue;
      return std::pair{CsvPlace{static_cast<int>(r), cellOf(row, static_cast<int>(i))}, withoutOverlap(row[i])};
    }
  }
  return std::nullopt;
}

}  // namespace pw::gui
