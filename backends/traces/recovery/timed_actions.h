#pragma once

// Internal to the import of traces: the actions of several recordings, by what they are, and when each clock saw them.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/traces/recovery/marks.h"
#include "backends/traces/recovery/places.h"
#include "simulator/trace/trace.h"

namespace pw {

/// Which clock each rank's times are of.
struct RankClocks {
  std::vector<std::int32_t> ofRank;
  std::vector<std::string> sources;  ///< by clock: the file
  std::vector<char> exactStarts;     ///< by clock: actions start when they compute, not when they begin to wait
};

/// A forward or backward; `occurrence`: the step that its rank marks it with, else which of those of its stage and microbatch, or, where
/// a recording begins or ends within a step, the step of its rank.
struct ActionKey {
  bool forward = true;
  std::int32_t pipeline = 0, stage = 0, microbatch = 0, occurrence = 0;

  auto operator<=>(const ActionKey&) const = default;
};

/// When an action was done, on its own clock.
struct TimedAction {
  std::size_t clock = 0, rank = 0;
  Ns start = 0, end = 0;
  bool slot = false;  ///< shares its interval with another action
};

/// The forwards and backwards of all recordings.
struct TimedActions {
  std::map<ActionKey, TimedAction> actions;
  std::map<std::pair<std::size_t, bool>, Ns> shortest;  ///< by clock and whether forward
  std::vector<Ns> extents;                              ///< by clock: from the first start to the last end
  std::vector<char> partial;                            ///< by clock: a recording of it begins within a step
  std::vector<std::int32_t> steps;                      ///< by clock: how many there are, where nothing marks them
  bool accumulates = false;  ///< steps that nothing marks are more than their rank's optimizer ends: replicas do not meet after each
};

/// The first 10,000 actions of each clock. Spans are sorted; `marks`: by rank, begin and number of its steps. Where a rank without marks
/// has not done each of its actions equally often, its recording begins or ends within a step: occurrences do not tell steps apart then,
/// and all ranks' are counted by the first forward of a step, that of the lowest microbatch. Cost: n log n.
[[nodiscard]] TimedActions timedActions(const std::vector<Span>& spans, const RankClocks& clocks, const RankPlaces& places,
                                        const RankMarks& marks);

/// The latest time at which the action can have begun to compute, on its own clock.
[[nodiscard]] Ns latestStart(const TimedActions& timed, const RankClocks& clocks, const ActionKey& key, const TimedAction& times);

/// Steps by which a recording that begins within a step, or has more of them, may count others than its neighbour: none first.
inline constexpr std::array kStepShifts{0, -1, 1};

/// Whether the clocks' recordings may count their steps differently.
[[nodiscard]] bool mayCountOtherSteps(const TimedActions& timed, std::size_t a, std::size_t b);

}  // namespace pw
