#include "schedules/editing/waiting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace pw {
namespace {

constexpr std::size_t kComputeKinds = 4;
static_assert(static_cast<std::size_t>(ActionKind::BackwardWeight) + 1 == kComputeKinds);
constexpr std::int32_t kNone = -1;

/// The actions of a compute-only schedule as numbers, row by row, and what each needs. The two of an overlapped pair are one: the first.
class Waits {
 public:
  explicit Waits(const Schedule& compute) : schedule_(compute) {
    places_.assign(compute.placement.stages() * static_cast<std::size_t>(compute.microbatches) * kComputeKinds, kNone);
    for (const auto& row : compute.rows) {
      rowBegin_.push_back(static_cast<std::int32_t>(actions_.size()));
      bool paired = false;
      for (const Action& a : row) {
        const auto number = static_cast<std::int32_t>(actions_.size());
        actions_.push_back(a);
        unit_.push_back(paired ? number - 1 : number);
        paired = a.overlapsNext;
        if (a.kind != ActionKind::Idle) places_[entry(a)] = number;
      }
    }
    rowBegin_.push_back(static_cast<std::int32_t>(actions_.size()));
  }

  [[nodiscard]] std::size_t size() const { return actions_.size(); }
  [[nodiscard]] const Action& action(std::int32_t n) const { return actions_[static_cast<std::size_t>(n)]; }
  [[nodiscard]] std::int32_t unit(std::int32_t n) const { return unit_[static_cast<std::size_t>(n)]; }
  [[nodiscard]] bool isUnit(std::int32_t n) const { return unit(n) == n; }
  [[nodiscard]] std::int32_t numberOf(Cell cell) const { return rowBegin_[cell.rank.index()] + cell.position; }
  [[nodiscard]] std::int32_t rowBegin(Rank rank) const { return rowBegin_[rank.index()]; }
  [[nodiscard]] std::int32_t rowEnd(Rank rank) const { return rowBegin_[rank.index() + 1]; }
  [[nodiscard]] std::int32_t find(const Action& a) const { return a.kind == ActionKind::Idle ? kNone : places_[entry(a)]; }

  /// The unit before this one in its row, and after it.
  [[nodiscard]] std::int32_t before(std::int32_t n) const { return isFirst(n) ? kNone : unit(n - 1); }
  [[nodiscard]] std::int32_t after(std::int32_t n) const {
    std::int32_t next = n + 1;
    while (!isEnd(next) && unit(next) == n) ++next;
    return isEnd(next) ? kNone : next;
  }

  /// Calls `visit` with each unit that makes something the unit needs.
  template <class Visit>
  void eachNeed(std::int32_t n, Visit visit) const {
    for (std::int32_t i = n; i < static_cast<std::int32_t>(size()) && unit(i) == n; ++i) {
      const Action& a = action(i);
      if (a.kind == ActionKind::Forward) {
        if (a.stage.value > 0) visitAt({Stage{a.stage.value - 1}, ActionKind::Forward, a.microbatch}, visit);
      } else if (a.kind == ActionKind::BackwardWeight) {
        visitAt({a.stage, ActionKind::BackwardInput, a.microbatch}, visit);
      } else if (makesGradient(a.kind)) {
        visitAt({a.stage, ActionKind::Forward, a.microbatch}, visit);
        if (a.stage.index() + 1 < schedule_.placement.stages()) eachGradient(Stage{a.stage.value + 1}, a.microbatch, visit);
      }
    }
  }
  /// Calls `visit` with each unit that needs what the unit makes.
  template <class Visit>
  void eachUse(std::int32_t n, Visit visit) const {
    for (std::int32_t i = n; i < static_cast<std::int32_t>(size()) && unit(i) == n; ++i) {
      const Action& a = action(i);
      if (a.kind == ActionKind::Forward) {
        if (a.stage.index() + 1 < schedule_.placement.stages())
          visitAt({Stage{a.stage.value + 1}, ActionKind::Forward, a.microbatch}, visit);
        eachGradient(a.stage, a.microbatch, visit);
      } else if (makesGradient(a.kind)) {
        if (a.stage.value > 0) eachGradient(Stage{a.stage.value - 1}, a.microbatch, visit);
        if (a.kind == ActionKind::BackwardInput) visitAt({a.stage, ActionKind::BackwardWeight, a.microbatch}, visit);
      }
    }
  }

 private:
  [[nodiscard]] std::size_t entry(const Action& a) const {
    return (a.stage.index() * static_cast<std::size_t>(schedule_.microbatches) + a.microbatch.index()) * kComputeKinds +
           static_cast<std::size_t>(a.kind);
  }
  template <class Visit>
  void visitAt(const Action& a, Visit& visit) const {
    if (const std::int32_t n = places_[entry(a)]; n != kNone) visit(unit(n));
  }
  template <class Visit>
  void eachGradient(Stage stage, Microbatch microbatch, Visit& visit) const {
    visitAt({stage, ActionKind::Backward, microbatch}, visit);
    visitAt({stage, ActionKind::BackwardInput, microbatch}, visit);
  }
  [[nodiscard]] bool isFirst(std::int32_t n) const { return std::ranges::binary_search(rowBegin_, n); }
  [[nodiscard]] bool isEnd(std::int32_t n) const { return isFirst(n); }

  const Schedule& schedule_;
  std::vector<std::int32_t> rowBegin_;  ///< by rank, and the number of actions at the end
  std::vector<Action> actions_;
  std::vector<std::int32_t> unit_;    ///< by action: itself, or the first of its pair
  std::vector<std::int32_t> places_;  ///< by stage, microbatch and kind: the action's number
};

/// By unit: whether it never starts, as it waits for itself on some way.
std::vector<bool> stuckUnits(const Waits& waits) {
  std::vector<std::int32_t> left(waits.size(), 0);
  std::vector<std::int32_t> ready;
  for (std::int32_t n = 0; n < static_cast<std::int32_t>(waits.size()); ++n) {
    if (!waits.isUnit(n)) continue;
    std::int32_t& count = left[static_cast<std::size_t>(n)];
    if (waits.before(n) != kNone) ++count;
    waits.eachNeed(n, [&](std::int32_t) { ++count; });
    if (count == 0) ready.push_back(n);
  }
  std::vector<bool> stuck(waits.size(), true);
  const auto release = [&](std::int32_t n) {
    if (--left[static_cast<std::size_t>(n)] == 0) ready.push_back(n);
  };
  while (!ready.empty()) {
    const std::int32_t n = ready.back();
    ready.pop_back();
    stuck[static_cast<std::size_t>(n)] = false;
    if (const std::int32_t next = waits.after(n); next != kNone) release(next);
    waits.eachUse(n, release);
  }
  return stuck;
}

/// What a unit waits for, its row included: needs first, so that the way through messages is preferred to the way along the row.
template <class Visit>
void eachWait(const Waits& waits, std::int32_t n, Visit visit) {
  waits.eachNeed(n, visit);
  if (const std::int32_t before = waits.before(n); before != kNone) visit(before);
}

/// The shortest way from a unit through what it waits for back to itself; empty where it waits for itself on none.
std::vector<std::int32_t> wayBack(const Waits& waits, const std::vector<bool>& stuck, std::int32_t start) {
  std::vector<std::int32_t> from(waits.size(), kNone), queue{start};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::int32_t n = queue[i];
    std::int32_t last = kNone;
    eachWait(waits, n, [&](std::int32_t other) {
      if (last != kNone || !stuck[static_cast<std::size_t>(other)]) return;
      if (other == start) {
        last = n;
      } else if (from[static_cast<std::size_t>(other)] == kNone) {
        from[static_cast<std::size_t>(other)] = n;
        queue.push_back(other);
      }
    });
    if (last == kNone) continue;
    std::vector<std::int32_t> way;
    for (std::int32_t at = last; at != start; at = from[static_cast<std::size_t>(at)]) way.push_back(at);
    way.push_back(start);
    std::reverse(way.begin(), way.end());
    return way;
  }
  return {};
}

/// A unit on a cycle: from any stuck one back along what it waits for, until one comes twice.
std::int32_t onCycle(const Waits& waits, const std::vector<bool>& stuck) {
  const auto isStuckUnit = [&](std::int32_t n) { return waits.isUnit(n) && stuck[static_cast<std::size_t>(n)]; };
  std::int32_t n = 0;
  while (!isStuckUnit(n)) ++n;
  std::vector<bool> seen(waits.size(), false);
  while (!seen[static_cast<std::size_t>(n)]) {
    seen[static_cast<std::size_t>(n)] = true;
    std::int32_t next = kNone;
    eachWait(waits, n, [&](std::int32_t other) {
      if (next == kNone && stuck[static_cast<std::size_t>(other)]) next = other;
    });
    n = next;
  }
  return n;
}

/// Whether `user` needs what `maker` makes.
bool needs(const Action& user, const Action& maker) {
  if (user.microbatch != maker.microbatch) return false;
  if (user.kind == ActionKind::Forward) return maker.kind == ActionKind::Forward && maker.stage.value == user.stage.value - 1;
  if (user.kind == ActionKind::BackwardWeight) return maker.kind == ActionKind::BackwardInput && maker.stage == user.stage;
  if (!makesGradient(user.kind)) return false;
  return (maker.kind == ActionKind::Forward && maker.stage == user.stage) ||
         (makesGradient(maker.kind) && maker.stage.value == user.stage.value + 1);
}

/// Marks what a unit waits for, or what waits for it, on any way, as if the unit were in no row.
template <class Each>
std::vector<bool> reached(const Waits& waits, std::int32_t start, Each each) {
  std::vector<bool> marked(waits.size(), false);
  std::vector<std::int32_t> open;
  const auto mark = [&](std::int32_t n) {
    if (n == start || marked[static_cast<std::size_t>(n)]) return;
    marked[static_cast<std::size_t>(n)] = true;
    open.push_back(n);
  };
  each(start, false, mark);
  while (!open.empty()) {
    const std::int32_t n = open.back();
    open.pop_back();
    each(n, true, mark);
  }
  return marked;
}

}  // namespace

std::string describe(const Action& action) { return action.kind == ActionKind::Idle ? "a pause" : toString(action); }

std::vector<Action> waitingCycle(const Schedule& compute, const std::optional<Action>& about) {
  const Waits waits(compute);
  const std::vector<bool> stuck = stuckUnits(waits);
  bool any = false;
  for (std::int32_t n = 0; n < static_cast<std::int32_t>(waits.size()) && !any; ++n)
    any = waits.isUnit(n) && stuck[static_cast<std::size_t>(n)];
  if (!any) return {};
  std::vector<std::int32_t> cycle;
  if (about) {
    const std::int32_t n = waits.find(*about);
    if (n != kNone && stuck[static_cast<std::size_t>(waits.unit(n))]) cycle = wayBack(waits, stuck, waits.unit(n));
  }
  if (cycle.empty()) cycle = wayBack(waits, stuck, onCycle(waits, stuck));
  // Along a row only its ends say something; of a pair, the action that is needed, or needs.
  std::vector<Action> actions;
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const auto previous = cycle[(i + cycle.size() - 1) % cycle.size()], next = cycle[(i + 1) % cycle.size()];
    if (waits.before(previous) == cycle[i] && waits.before(cycle[i]) == next && cycle.size() > 2) continue;
    Action shown = waits.action(cycle[i]);
    if (shown.overlapsNext) {
      const Action& second = waits.action(cycle[i] + 1);
      if (needs(second, waits.action(next)) || needs(waits.action(previous), second)) shown = second;
    }
    shown.overlapsNext = false;
    actions.push_back(shown);
  }
  // It reads best from an action that needs something.
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (!needs(actions.front(), actions[1 % actions.size()])) std::rotate(actions.begin(), actions.begin() + 1, actions.end());
  }
  return actions;
}

std::string describeCycle(const std::vector<Action>& cycle) {
  if (cycle.empty()) return {};
  std::string text = describe(cycle.front());
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const Action& next = cycle[(i + 1) % cycle.size()];
    const bool last = i + 1 == cycle.size();
    text += fmt::format("{}{} {}", i == 0 ? " " : ", which ", needs(cycle[i], next) ? "needs" : "comes after",
                        last && i > 0 ? "it" : describe(next));
  }
  return text;
}

LegalPlaces legalPlaces(const Schedule& compute, Cell cell) {
  const Waits waits(compute);
  const std::int32_t moved = waits.unit(waits.numberOf(cell));
  const std::int32_t begin = waits.rowBegin(cell.rank), end = waits.rowEnd(cell.rank);
  const auto earlier = reached(waits, moved, [&](std::int32_t n, bool inRow, auto& mark) {
    waits.eachNeed(n, mark);
    if (!inRow) return;
    std::int32_t before = waits.before(n);
    if (before == moved) before = waits.before(before);
    if (before != kNone) mark(before);
  });
  const auto later = reached(waits, moved, [&](std::int32_t n, bool inRow, auto& mark) {
    waits.eachUse(n, mark);
    if (!inRow) return;
    std::int32_t after = waits.after(n);
    if (after == moved) after = waits.after(after);
    if (after != kNone) mark(after);
  });
  LegalPlaces places{0, end - begin, {}, {}};
  for (std::int32_t n = begin; n < end; ++n) {
    if (earlier[static_cast<std::size_t>(waits.unit(n))]) {
      places.first = n + 1 - begin;
      places.after = waits.action(n);
    }
  }
  for (std::int32_t n = end; n-- > begin;) {
    if (later[static_cast<std::size_t>(waits.unit(n))]) {
      places.last = waits.unit(n) - begin;
      places.before = waits.action(waits.unit(n));
    }
  }
  return places;
}

}  // namespace pw
