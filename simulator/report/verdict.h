#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/report/compare.h"

namespace pw {

struct CostTable;
struct Schedule;

/// Where most of a difference, or its largest part, comes from.
struct MainPart {
  std::string group;    ///< `B of stage 1`, `REDUCE_GRAD`; empty: what happens besides actions, in messages and the engine
  bool isMost = false;  ///< it explains the difference; otherwise it is only the largest one, and others offset it
  Ns difference = 0;    ///< measured − predicted

  bool operator==(const MainPart&) const = default;
};

/// The result of comparing two traces.
struct Verdict {
  Comparison comparison;
  std::optional<Ns> replayed;    ///< makespan of the prediction with the measured durations of actions
  std::optional<MainPart> main;  ///< nothing where no group differs by a part of the difference worth naming

  bool operator==(const Verdict&) const = default;
};

/// `replayed`: see `replayedMakespan`; nothing: unknown, and then the difference is attributed to groups only. `splits`: see `compare`.
/// Cost: n log n.
[[nodiscard]] Verdict judge(const Trace& predicted, const Trace& measured, std::optional<Ns> replayed = {}, Splits splits = Splits::Same);

/// The makespan of a plan's schedule with the measured durations of its actions (see `replay`); nothing where the trace is of other
/// actions.
[[nodiscard]] std::optional<Ns> replayedMakespan(const Schedule& schedule, const CostTable& costs, const Trace& measured);

/// The group that the difference comes from most: the first of `byCause` when `sortedByContribution`. Nothing where all are equal.
[[nodiscard]] std::optional<GroupError> mainCause(const Comparison& comparison);

/// Whether a step of the two was measured, or both are predictions only.
enum class Happened : std::uint8_t { Yes, No };

/// The verdict in words: `Measured 3.1 % slower than predicted (12.4 ms, not 12.0 ms); most of it: B of stage 1, +2.1 ms.` If computing
/// explains less of it than messages and the engine itself, that is said; also that splits differ. `before` and `after`: names of two runs
/// or plans; empty: prediction and measurement. Of steps that did not happen: `plan B is 3.1 % slower than plan A`.
[[nodiscard]] std::string verdictText(const Verdict& verdict, const std::string& before = {}, const std::string& after = {},
                                      Happened happened = Happened::Yes);

/// Groups by what they contribute to the error, largest first, equal ones as they stood; those of no contribution (messages) last.
[[nodiscard]] std::vector<GroupError> sortedByContribution(std::vector<GroupError> groups);

}  // namespace pw
