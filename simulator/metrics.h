#pragma once

#include <string>
#include <vector>

#include "simulator/simulate.h"
#include "simulator/trace.h"

namespace pw {

struct RankMetrics {
  Rank rank;
  Ns busy = 0;         ///< F, B, I, W
  Ns idle = 0;         ///< makespan − busy
  Ns exposedComm = 0;  ///< idle time within the makespan during which a message to this rank is in flight and it computes nothing
  Bytes peakBytes = 0;
  int peakLiveMicrobatches = 0;  ///< (stage, microbatch) pairs alive at once: F start to the end of B (or W where split); ends free first

  bool operator==(const RankMetrics&) const = default;
};

/// Figures of one trace (all 0 without compute spans). The makespan runs from the first compute start to the last compute
/// end anywhere (flush clock); the window is the longest first-start-to-last-end of a single rank; the step ends with the last optimizer or
/// reduce span.
struct Metrics {
  Ns makespan = 0;
  Ns window = 0;
  Ns step = 0;
  double bubbleFraction = 0;        ///< total idle / (ranks · makespan)
  double bubbleFractionWindow = 0;  ///< 1 − busiest rank's busy time / window
  std::vector<RankMetrics> ranks;

  bool operator==(const Metrics&) const = default;
};

[[nodiscard]] Metrics measure(const Trace& trace);

/// A time (flush clock) no order of these actions can beat for these costs and this placement; it knows no memory limit. The larger of
/// the longest chain of one microbatch and, over ranks, the rank's whole work plus the least time before its first and after
/// its last action: forwards with their messages to reach it, backwards with theirs after it. schedules.md, bound (b) with j = the rank:
/// for split backwards both "all work, nothing after" and "forwards and I, then I of earlier stages and a last W" count.
/// Several stages on a rank: the nearest begins and ends. Throws as `requireFitting`. Cost: linear in actions and messages.
[[nodiscard]] Ns lowerBound(const Schedule& schedule, const CostTable& costs);

/// Difference of a measured trace from a predicted one. Signed fractions are (measured − predicted) / predicted,
/// 0 where nothing was predicted (the contribution still shows it).
struct GroupError {
  std::string group;  ///< `F`, `stage 1`, `rank 0`
  Ns predicted = 0;   ///< summed duration
  Ns measured = 0;
  double durationError = 0;
  Ns contribution = 0;    ///< |measured − predicted|: where the error comes from; 0 for messages, which end when their receiver takes them

  bool operator==(const GroupError&) const = default;
};
struct Comparison {
  Ns predictedMakespan = 0, measuredMakespan = 0;
  Ns predictedStep = 0, measuredStep = 0;
  double makespanError = 0;
  double stepError = 0;
  double actionError = 0;  ///< mean absolute start error of matched compute actions / measured makespan
  int matched = 0;         ///< compute actions found in both
  int unmatched = 0;       ///< found in one only
  std::vector<GroupError> byKind, byStage, byRank;

  bool operator==(const Comparison&) const = default;
};

/// Matches compute spans by (rank, kind, stage, microbatch), repeated ones in the order of their starts; start errors count from each
/// trace's first compute start. `byKind` includes waits, messages and optimizer; `byStage` and `byRank` are compute only. Groups
/// stand in the order of kinds, stages and ranks; those in neither trace are left out.
[[nodiscard]] Comparison compare(const Trace& predicted, const Trace& measured);

}  // namespace pw
