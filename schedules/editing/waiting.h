#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/schedule.h"

namespace pw {

/// Where an action stands in a schedule's rows.
struct Cell {
  Rank rank;
  std::int32_t position = 0;

  auto operator<=>(const Cell&) const = default;
};

/// `2F3`, as everywhere; an idle cell: `a pause`.
[[nodiscard]] std::string describe(const Action& action);

/// Actions of a compute-only schedule that wait for each other: each for the one after it and the last for the first, because it needs what
/// that makes or comes after it in its row. The shortest such cycle through `about` where there is one, else any; empty: there is none.
/// Takes schedules whose actions are within its stages and microbatches. Cost: linear.
[[nodiscard]] std::vector<Action> waitingCycle(const Schedule& compute, const std::optional<Action>& about = {});

/// The cycle in one sentence, without its point: `2F3 needs 1F3, which comes after it`.
[[nodiscard]] std::string describeCycle(const std::vector<Action>& cycle);

/// The places in its own row that an action, or an overlapped pair, can move to while all else stays: from before position `first` to
/// before position `last`, which may be the row's end. All between are legal.
struct LegalPlaces {
  std::int32_t first = 0, last = 0;
  std::optional<Action> after;   ///< of the row, which it has to come after; nothing where the row's begin is legal
  std::optional<Action> before;  ///< of the row, which has to come after it; nothing where the row's end is legal
};
/// Of a compute-only schedule without problems. Cost: linear.
[[nodiscard]] LegalPlaces legalPlaces(const Schedule& compute, Cell cell);

}  // namespace pw
