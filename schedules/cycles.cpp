#include "schedules/cycles.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/generate.h"

namespace pw {
namespace {

enum Lane : std::uint8_t { Load, Main, Store, Copy };
constexpr std::array<std::string_view, 4> kLaneNames{"load", "main", "store", "copy"};
constexpr std::size_t kGap = 2;  ///< blanks between columns

/// What one rank does in one cycle, by lane.
using Cell = std::array<std::string, kLaneNames.size()>;

void say(std::string& cell, const std::string& word) { cell += (cell.empty() ? "" : " ") + word; }

/// Puts a compute action and what comes with it into its cell. The activation leaves with F, the gradient with B or I.
void show(Cell& cell, const Action& action, int stages) {
  const int m = action.microbatch.value;
  const bool first = action.stage.value == 0;
  const bool last = action.stage.value + 1 == stages;
  say(cell[Main], fmt::format("{}{}", letters(action.kind), m));
  if (action.kind == ActionKind::Forward) {
    if (first) say(cell[Load], fmt::format("in{}", m));
    if (last) say(cell[Load], fmt::format("target{}", m));
    if (last) say(cell[Store], fmt::format("out{}", m));
    if (!last) say(cell[Copy], fmt::format("F{}>", m));
  } else if (action.kind != ActionKind::BackwardWeight && !first) {
    say(cell[Copy], fmt::format("<B{}", m));
  }
}

std::string_view phaseOf(int cycle, const Shape& shape) {
  if (cycle >= shape.microbatches) return "flush";
  return cycle < 2 * shape.ranks - 2 ? "fill" : "main";
}

using Cells = std::vector<std::vector<Cell>>;  ///< by rank and cycle

Cells cellsOf(const Schedule& schedule) {
  const Shape shape = shapeOf(schedule);
  const int cycles = lockstepCycles(shape);
  Cells cells(schedule.rows.size(), std::vector<Cell>(static_cast<std::size_t>(cycles)));
  for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) {
    for (const Action& action : schedule.rows[rank]) {
      if (!isCompute(action.kind)) continue;
      const int cycle = lockstepCycle(shape.ranks, action);
      if (cycle < 0 || cycle >= cycles) {
        throw UsageError(
            fmt::format("schedule {} has no cycle for {}; `pipewright check` lists the problems", schedule.name, toString(action)));
      }
      show(cells[rank][static_cast<std::size_t>(cycle)], action, shape.stages);
    }
  }
  return cells;
}

/// A line: a label, then the text of the cycles [from, to), each padded to its width; no trailing blanks.
template <class WordOf>
std::string line(std::string label, int from, int to, std::size_t width, WordOf wordOf) {
  for (int cycle = from; cycle < to; ++cycle) label += fmt::format("{:{}}{:<{}}", "", kGap, wordOf(cycle), width);
  label.erase(label.find_last_not_of(' ') + 1);
  return label + '\n';
}

std::string cycleBlock(const Shape& shape, const Cells& cells, int from, int to, std::size_t width, std::size_t label) {
  std::string text = line(fmt::format("{:<{}}", "phase", label), from, to, width, [&](int cycle) {
    const std::string_view phase = phaseOf(cycle, shape);
    return cycle > from && phase == phaseOf(cycle - 1, shape) ? std::string_view() : phase;
  });
  text += line(fmt::format("{:<{}}", "cycle", label), from, to, width, [](int cycle) { return cycle; });
  for (std::size_t rank = 0; rank < cells.size(); ++rank) {
    for (std::size_t lane = 0; lane < kLaneNames.size(); ++lane) {
      const std::string name = lane == Load ? fmt::format("rank {}", rank) : "";
      const std::size_t left = label - kLaneNames[Store].size();
      text += line(fmt::format("{:<{}}{:<5}", name, left, kLaneNames[lane]), from, to, width,
                   [&](int cycle) { return std::string_view(cells[rank][static_cast<std::size_t>(cycle)][lane]); });
    }
  }
  return text;
}

}  // namespace

std::string cycleTable(const Schedule& lockstep, int columns) {
  const Shape shape = shapeOf(lockstep);
  if (!lockstep.lockstep) {
    throw UsageError(fmt::format("schedule {} does not run in cycles; use the family lockstep", lockstep.name));
  }
  requireCycles(lockstep);
  const Cells cells = cellsOf(lockstep);
  std::size_t width = std::string_view("flush").size();
  for (const auto& row : cells) {
    for (const Cell& cell : row) {
      for (const std::string& word : cell) width = std::max(width, word.size());
    }
  }
  const std::size_t label = fmt::formatted_size("rank {} store", shape.ranks - 1);
  const int room = (columns - static_cast<int>(label)) / static_cast<int>(width + kGap);
  const int cycles = lockstepCycles(shape);
  std::string text;
  for (int from = 0, step = std::max(1, room); from < cycles; from += step) {
    if (from > 0) text += '\n';
    text += cycleBlock(shape, cells, from, std::min(cycles, from + step), width, label);
  }
  return text;
}

}  // namespace pw
