#include "schedules/editing/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "schedules/check.h"
#include "schedules/lower.h"

namespace pw {
namespace {

using Row = std::vector<Action>;

/// An edit in progress: the schedule that it changes, or why it does not apply.
struct Attempt {
  Schedule schedule;
  std::optional<Action> about;  ///< what was moved: a cycle is shown through it
  std::string refusal;

  [[nodiscard]] Row& row(Rank rank) { return schedule.rows[rank.index()]; }
  [[nodiscard]] const Row& row(Rank rank) const { return schedule.rows[rank.index()]; }
  [[nodiscard]] Action& at(Cell cell) { return row(cell.rank)[static_cast<std::size_t>(cell.position)]; }
  void refuse(std::string reason) {
    if (refusal.empty()) refusal = std::move(reason);
  }
};

/// The cells in order, each once, with the other action of every pair.
std::vector<Cell> wholePairs(const Schedule& schedule, std::vector<Cell> cells) {
  const std::vector<Cell> given = cells;
  for (const Cell cell : given) {
    const Row& row = schedule.rows[cell.rank.index()];
    const auto at = static_cast<std::size_t>(cell.position);
    if (row[at].overlapsNext && at + 1 < row.size()) cells.push_back({cell.rank, cell.position + 1});
    if (at > 0 && row[at - 1].overlapsNext) cells.push_back({cell.rank, cell.position - 1});
  }
  std::ranges::sort(cells);
  cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
  return cells;
}

bool areOfOneRank(const std::vector<Cell>& cells) {
  return std::ranges::all_of(cells, [&](const Cell& cell) { return cell.rank == cells.front().rank; });
}

bool isFirstOfPair(const Row& row, std::size_t at) { return at + 1 < row.size() && row[at].overlapsNext; }

void apply(Attempt& attempt, const MoveCells& edit) {
  const std::vector<Cell> cells = wholePairs(attempt.schedule, edit.cells);
  if (cells.empty()) return attempt.refuse("nothing is selected");
  if (!areOfOneRank(cells) || cells.front().rank != edit.to.rank)
    return attempt.refuse("an action is done where its stage is; move the whole stage to another rank");
  Row& row = attempt.row(edit.to.rank);
  auto to = static_cast<std::size_t>(edit.to.position);
  if (to > 0 && to < row.size() && isFirstOfPair(row, to - 1)) --to;  // not between the two of a pair
  Row moved, before, after;
  std::size_t next = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool taken = next < cells.size() && static_cast<std::size_t>(cells[next].position) == i;
    if (taken) ++next;
    (taken ? moved : i < to ? before : after).push_back(row[i]);
  }
  attempt.about = moved.front();
  row = std::move(before);
  row.insert(row.end(), moved.begin(), moved.end());
  row.insert(row.end(), after.begin(), after.end());
}

void apply(Attempt& attempt, const ShiftCells& edit) {
  const std::vector<Cell> cells = wholePairs(attempt.schedule, edit.cells);
  if (cells.empty()) return attempt.refuse("nothing is selected");
  attempt.about = attempt.at(edit.by > 0 ? cells.front() : cells.back());
  // Pairs are single items of their rows while these shift.
  std::map<Rank, std::set<std::int32_t>> byRank;
  for (const Cell& cell : cells) byRank[cell.rank].insert(cell.position);
  for (const auto& [rank, positions] : byRank) {
    Row& row = attempt.row(rank);
    std::vector<std::pair<Row, bool>> items;  // and whether it shifts
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool pair = isFirstOfPair(row, i), shifts = positions.contains(static_cast<std::int32_t>(i));
      Row item{row[i]};
      if (pair) item.push_back(row[++i]);
      items.emplace_back(std::move(item), shifts);
    }
    for (int step = 0; step < std::abs(edit.by); ++step) {
      if (edit.by > 0) std::reverse(items.begin(), items.end());
      for (std::size_t i = 1; i < items.size(); ++i) {
        if (items[i].second && !items[i - 1].second) std::swap(items[i], items[i - 1]);
      }
      if (edit.by > 0) std::reverse(items.begin(), items.end());
    }
    row.clear();
    for (const auto& [item, shifts] : items) row.insert(row.end(), item.begin(), item.end());
  }
}

void apply(Attempt& attempt, const SwapCells& edit) {
  if (edit.first.rank != edit.second.rank) return attempt.refuse("only actions of one rank change places");
  Row& row = attempt.row(edit.first.rank);
  std::vector<Cell> first = wholePairs(attempt.schedule, {edit.first}), second = wholePairs(attempt.schedule, {edit.second});
  if (second < first) std::swap(first, second);
  if (first == second) return attempt.refuse("an action does not change places with itself");
  attempt.about = attempt.at(second.front());
  const auto part = [&](const std::vector<Cell>& cells) {
    return std::pair(row.begin() + cells.front().position, row.begin() + cells.back().position + 1);
  };
  const auto [a, aEnd] = part(first);
  const auto [b, bEnd] = part(second);
  Row swapped(row.begin(), a);
  swapped.insert(swapped.end(), b, bEnd);
  swapped.insert(swapped.end(), aEnd, b);
  swapped.insert(swapped.end(), a, aEnd);
  swapped.insert(swapped.end(), bEnd, row.end());
  row = std::move(swapped);
}

/// Rebuilds the rows of some cells; `write(row, position, out)` appends what stands for each cell of them.
template <class Write>
void rewrite(Attempt& attempt, const std::vector<Cell>& cells, Write write) {
  std::set<Rank> ranks;
  for (const Cell& cell : cells) ranks.insert(cell.rank);
  const std::set<Cell> chosen(cells.begin(), cells.end());
  for (const Rank rank : ranks) {
    const Row row = attempt.row(rank);
    Row out;
    for (std::size_t i = 0; i < row.size(); ++i) write(row, i, chosen.contains({rank, static_cast<std::int32_t>(i)}), out);
    attempt.row(rank) = std::move(out);
  }
}

void apply(Attempt& attempt, const SplitCells& edit) {
  int split = 0;
  rewrite(attempt, edit.cells, [&](const Row& row, std::size_t i, bool chosen, Row& out) {
    const Action& a = row[i];
    const bool inPair = a.overlapsNext || (i > 0 && row[i - 1].overlapsNext);
    if (!chosen || a.kind != ActionKind::Backward || inPair) return out.push_back(a);
    ++split;
    out.push_back({a.stage, ActionKind::BackwardInput, a.microbatch});
    out.push_back({a.stage, ActionKind::BackwardWeight, a.microbatch});
  });
  if (split == 0) attempt.refuse("no B is selected that could be split into I and W; that of an overlapped pair stays whole");
}

void apply(Attempt& attempt, const MergeCells& edit) {
  std::set<Action> inputs;
  for (const Cell& cell : edit.cells) {
    Action a = attempt.at(cell);
    if (a.kind != ActionKind::BackwardInput && a.kind != ActionKind::BackwardWeight) continue;
    a.kind = ActionKind::BackwardInput;
    inputs.insert(a);
  }
  if (inputs.empty()) return attempt.refuse("no I or W is selected that could be merged into B");
  attempt.about = *inputs.begin();
  attempt.about->kind = ActionKind::Backward;
  for (Row& row : attempt.schedule.rows) {
    Row out;
    for (Action a : row) {
      const Action input{a.stage, ActionKind::BackwardInput, a.microbatch};
      const bool merges = (a.kind == ActionKind::BackwardInput || a.kind == ActionKind::BackwardWeight) && inputs.contains(input);
      if (merges && a.kind == ActionKind::BackwardWeight) continue;
      if (merges) a.kind = ActionKind::Backward;
      out.push_back(a);
    }
    row = std::move(out);
  }
}

void apply(Attempt& attempt, const AddIdle& edit) {
  constexpr int kMost = 1'000'000;
  if (edit.count < 1 || edit.count > kMost) return attempt.refuse(fmt::format("a pause has 1 to {} cells", kMost));
  Row& row = attempt.row(edit.to.rank);
  auto to = static_cast<std::size_t>(edit.to.position);
  if (to > 0 && isFirstOfPair(row, to - 1)) --to;
  row.insert(row.begin() + static_cast<std::ptrdiff_t>(to), static_cast<std::size_t>(edit.count), kIdle);
}

void apply(Attempt& attempt, const RemoveIdle& edit) {
  int removed = 0;
  rewrite(attempt, edit.cells, [&](const Row& row, std::size_t i, bool chosen, Row& out) {
    if (chosen && row[i].kind == ActionKind::Idle) {
      ++removed;
    } else {
      out.push_back(row[i]);
    }
  });
  if (removed == 0) attempt.refuse("no pause is selected");
}

void apply(Attempt& attempt, const PairCells& edit) {
  if (edit.first.rank != edit.second.rank) return attempt.refuse("only actions of one rank overlap");
  const auto [from, to] = std::minmax(edit.first.position, edit.second.position);
  const Rank rank = edit.first.rank;
  const Action a = attempt.at({rank, from}), b = attempt.at({rank, to});
  const Action forward = a.kind == ActionKind::Forward ? a : b, backward = a.kind == ActionKind::Forward ? b : a;
  if (from == to || forward.kind != ActionKind::Forward || backward.kind != ActionKind::Backward)
    return attempt.refuse("an overlapped pair is one F and one B");
  if (wholePairs(attempt.schedule, {edit.first, edit.second}).size() > 2)
    return attempt.refuse("one of them is in an overlapped pair already");
  Row& row = attempt.row(rank);
  row.erase(row.begin() + to);
  row[static_cast<std::size_t>(from)] = forward;
  row[static_cast<std::size_t>(from)].overlapsNext = true;
  row.insert(row.begin() + from + 1, backward);
  attempt.about = forward;
}

void apply(Attempt& attempt, const UnpairCells& edit) {
  int parted = 0;
  for (const Cell& cell : wholePairs(attempt.schedule, edit.cells)) {
    Action& a = attempt.at(cell);
    parted += a.overlapsNext ? 1 : 0;
    a.overlapsNext = false;
  }
  if (parted == 0) attempt.refuse("no overlapped pair is selected");
}

void apply(Attempt& attempt, const RepeatCells& edit) {
  const std::vector<Cell> cells = wholePairs(attempt.schedule, edit.cells);
  if (cells.empty() || !areOfOneRank(cells)) return attempt.refuse("a pattern is of one rank; select some of its actions");
  Row& row = attempt.row(cells.front().rank);
  Row pattern;
  std::map<std::pair<Stage, ActionKind>, int> counts;
  int period = 0;
  for (const Cell& cell : cells) {
    const Action& a = pattern.emplace_back(attempt.at(cell));
    if (a.kind != ActionKind::Idle) period = std::max(period, ++counts[{a.stage, a.kind}]);
  }
  if (period == 0) return attempt.refuse("a pattern of pauses only repeats nothing");
  attempt.about = pattern.front();
  const auto end = row.begin() + cells.back().position + 1;
  std::set<Action> rest;
  for (auto a = end; a != row.end(); ++a) {
    Action plain = *a;
    plain.overlapsNext = false;
    rest.insert(plain);
  }
  Row made(row.begin(), end);
  std::set<Action> placed;
  for (int step = period;; step += period) {
    Row next = pattern;
    bool whole = true;
    std::set<Action> used;
    for (Action& a : next) {
      if (a.kind == ActionKind::Idle) continue;
      a.microbatch.value += step;
      Action plain = a;
      plain.overlapsNext = false;
      whole = whole && rest.contains(plain);
      used.insert(plain);
    }
    if (!whole) break;
    made.insert(made.end(), next.begin(), next.end());
    placed.merge(used);
  }
  if (placed.empty()) return attempt.refuse("the rest of the row does not have all actions of the pattern for later microbatches");
  const Row old = row;
  const std::size_t from = static_cast<std::size_t>(cells.back().position) + 1;
  row = std::move(made);
  const auto isPlaced = [&](Action a) {
    a.overlapsNext = false;
    return placed.contains(a);
  };
  for (std::size_t i = from; i < old.size(); ++i) {
    if (isPlaced(old[i])) continue;
    Action a = old[i];
    if (a.overlapsNext && (i + 1 == old.size() || isPlaced(old[i + 1]))) a.overlapsNext = false;  // its pair's other action went
    row.push_back(a);
  }
}

void apply(Attempt& attempt, const MoveStage& edit) {
  Schedule& schedule = attempt.schedule;
  Placement& placement = schedule.placement;
  if (placement.bidirectional()) return attempt.refuse("the two copies of each stage are mirrored, so that no stage moves on its own");
  const Rank from = placement.rankOfStage[edit.stage.index()];
  if (from == edit.rank) return attempt.refuse(fmt::format("stage {} is on rank {} already", edit.stage.value, from.value));
  if (std::ranges::count(placement.rankOfStage, from) == 1) {
    return attempt.refuse(
        fmt::format("moving stage {} to rank {} would leave rank {} without work; every rank keeps a stage, so use 2 or more chunks "
                    "per rank to move one",
                    edit.stage.value, edit.rank.value, from.value));
  }
  for (const Rank rank : {from, edit.rank}) std::erase(attempt.row(rank), kIdle);
  const std::vector<std::vector<Ns>> starts = unitStarts(schedule);
  Row stays, goes;
  std::vector<Ns> times;  // of those that go
  const Row& row = schedule.rows[from.index()];
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool inPair = row[i].overlapsNext || (i > 0 && row[i - 1].overlapsNext);
    Action a = row[i];
    if (inPair) a.overlapsNext = false;  // its pair is on two ranks now, or of one stage
    if (a.stage == edit.stage) {
      goes.push_back(a);
      times.push_back(starts[from.index()][i]);
    } else {
      stays.push_back(inPair && row[i].overlapsNext && row[i + 1].stage != edit.stage ? row[i] : a);
    }
  }
  Row merged;
  const Row& there = schedule.rows[edit.rank.index()];
  std::size_t next = 0;
  for (std::size_t i = 0; i < there.size(); ++i) {
    const bool second = i > 0 && there[i - 1].overlapsNext;
    for (; !second && next < goes.size() && times[next] < starts[edit.rank.index()][i]; ++next) merged.push_back(goes[next]);
    merged.push_back(there[i]);
  }
  merged.insert(merged.end(), goes.begin() + static_cast<std::ptrdiff_t>(next), goes.end());
  if (!goes.empty()) attempt.about = goes.front();
  attempt.row(from) = std::move(stays);
  attempt.row(edit.rank) = std::move(merged);
  placement.rankOfStage[edit.stage.index()] = edit.rank;
}

}  // namespace

std::variant<Schedule, Refusal> edited(const Schedule& schedule, const Edit& edit) {
  Attempt attempt{.schedule = schedule, .about = {}, .refusal = {}};
  std::visit([&](const auto& e) { apply(attempt, e); }, edit);
  if (!attempt.refusal.empty()) return Refusal{attempt.refusal, {}};
  if (const auto problems = check(attempt.schedule); !problems.empty()) {
    if (auto cycle = waitingCycle(attempt.schedule, attempt.about); !cycle.empty()) {
      std::string reason = describeCycle(cycle);
      return Refusal{std::move(reason), std::move(cycle)};
    }
    const Problem& first = problems.front();
    return Refusal{fmt::format("rank {}: {}", first.rank.value, first.message), {}};
  }
  attempt.schedule.lockstep = false;
  return std::move(attempt.schedule);
}

Schedule moved(const Schedule& schedule, Cell cell, std::int32_t place) {
  Attempt attempt{.schedule = schedule, .about = {}, .refusal = {}};
  apply(attempt, MoveCells{{cell}, {cell.rank, place}});
  attempt.schedule.lockstep = false;
  return std::move(attempt.schedule);
}

}  // namespace pw
