#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "schedules/schedule.h"

namespace pw::test {

/// What one fragment of each kind takes, in any one unit.
struct UnitCosts {
  int f = 1;
  int b = 2;
  int i = 1;
  int w = 1;

  [[nodiscard]] int of(ActionKind kind) const {
    if (kind == ActionKind::Forward) return f;
    if (kind == ActionKind::Backward) return b;
    return kind == ActionKind::BackwardInput ? i : w;
  }
};

/// When a compute-only schedule does what, with the same costs on every stage and free messages, by a slow and simple method: every rank
/// takes its next action (both of a slot) once all that it needs has ended, until nothing moves. Shares nothing with the checker and the
/// simulator but the rules of schedule.h.
class UnitTimes {
 public:
  UnitTimes(const Schedule& schedule, const UnitCosts& costs)
      : schedule_(schedule), costs_(costs), clock_(schedule.rows.size(), 0), first_(schedule.rows.size()), next_(schedule.rows.size(), 0) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) {
        while (step(rank)) moved = true;
      }
    }
  }

  /// Whether every rank came to the end of its row; if not, they deadlock.
  [[nodiscard]] bool finished() const {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] != schedule_.rows[rank].size()) return false;
    }
    return true;
  }
  /// Flush clock: from 0 to the last end.
  [[nodiscard]] int makespan() const { return *std::ranges::max_element(clock_); }
  /// Window clock: the longest time of a single rank from its first start to its last end.
  [[nodiscard]] int window() const {
    int longest = 0;
    for (std::size_t rank = 0; rank < clock_.size(); ++rank) longest = std::max(longest, clock_[rank] - first_[rank].value_or(0));
    return longest;
  }

 private:
  using Key = std::tuple<Stage, ActionKind, Microbatch>;

  /// The end of the action, of the B in place of an I; nothing while it has not ended.
  [[nodiscard]] std::optional<int> end(Stage stage, ActionKind kind, Microbatch m) const {
    auto found = ends_.find({stage, kind, m});
    if (found == ends_.end() && kind == ActionKind::BackwardInput) found = ends_.find({stage, ActionKind::Backward, m});
    return found == ends_.end() ? std::nullopt : std::optional(found->second);
  }
  /// When all that the action needs is there; nothing while it is not.
  [[nodiscard]] std::optional<int> ready(const Action& a) const {
    std::vector<std::optional<int>> needs;
    const bool last = a.stage.index() + 1 == schedule_.placement.stages();
    if (a.kind == ActionKind::Forward) {
      if (a.stage.value > 0) needs.push_back(end(Stage{a.stage.value - 1}, ActionKind::Forward, a.microbatch));
    } else if (a.kind == ActionKind::BackwardWeight) {
      needs.push_back(end(a.stage, ActionKind::BackwardInput, a.microbatch));
    } else {
      needs.push_back(end(a.stage, ActionKind::Forward, a.microbatch));
      if (!last) needs.push_back(end(Stage{a.stage.value + 1}, ActionKind::BackwardInput, a.microbatch));
    }
    int latest = 0;
    for (const auto& need : needs) {
      if (!need) return std::nullopt;
      latest = std::max(latest, *need);
    }
    return latest;
  }
  bool step(std::size_t rank) {
    const auto& row = schedule_.rows[rank];
    if (next_[rank] == row.size()) return false;
    const std::size_t count = row[next_[rank]].overlapsNext ? 2 : 1;
    int start = clock_[rank];
    int length = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const auto at = ready(row[next_[rank] + k]);
      if (!at) return false;
      start = std::max(start, *at);
      length += costs_.of(row[next_[rank] + k].kind);
    }
    if (!first_[rank]) first_[rank] = start;
    clock_[rank] = start + length;
    for (std::size_t k = 0; k < count; ++k) {
      const Action& a = row[next_[rank]++];
      ends_[{a.stage, a.kind, a.microbatch}] = clock_[rank];
    }
    return true;
  }

  const Schedule& schedule_;
  UnitCosts costs_;
  std::vector<int> clock_;
  std::vector<std::optional<int>> first_;
  std::vector<std::size_t> next_;
  std::map<Key, int> ends_;
};

/// Most (stage, microbatch) pairs live on each rank: from the start of F to the end of B or W.
inline std::vector<int> peakLive(const Schedule& schedule) {
  std::vector<int> peaks;
  for (const auto& row : schedule.rows) {
    int live = 0;
    int peak = 0;
    for (const Action& a : row) {
      if (a.kind == ActionKind::Forward) peak = std::max(peak, ++live);
      if (a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardWeight) --live;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

/// Whether every stage does F and (B, or I and W) of every microbatch exactly once, on the rank of the placement, and the rows
/// hold nothing else.
inline bool isComplete(const Schedule& schedule) {
  std::map<std::tuple<Stage, Microbatch, ActionKind>, int> seen;
  for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) {
    for (const Action& a : schedule.rows[rank]) {
      if (!isCompute(a.kind) || schedule.placement.rankOf(a.stage, a.microbatch) != Rank{rank}) return false;
      if (a.kind != ActionKind::Backward) ++seen[{a.stage, a.microbatch, a.kind}];
      if (a.kind == ActionKind::Backward) {
        ++seen[{a.stage, a.microbatch, ActionKind::BackwardInput}];
        ++seen[{a.stage, a.microbatch, ActionKind::BackwardWeight}];
      }
    }
  }
  const std::size_t expected = 3 * schedule.placement.stages() * static_cast<std::size_t>(schedule.microbatches);
  return seen.size() == expected && std::ranges::all_of(seen, [](const auto& entry) { return entry.second == 1; });
}

}  // namespace pw::test
