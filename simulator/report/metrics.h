#pragma once

#include <span>
#include <string>
#include <vector>

#include "simulator/step/simulate.h"
#include "simulator/trace/trace.h"

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

/// Times that no order can beat: flush clock, and the longest window of a single rank.
struct LowerBounds {
  Ns flush = 0;
  Ns window = 0;

  bool operator==(const LowerBounds&) const = default;
};

/// Times no order of these actions can beat for these costs and this placement with at most `limits[r]` live (stage, microbatch) pairs on
/// rank r (from F start to the end of B or W); empty: no limit. The largest of
/// - the longest chain of one microbatch; a rank's whole work, and on the flush clock also the least time before its first and after its last
///   action: forwards with their messages to reach it, backwards with theirs after it (several stages on a rank: the nearest);
/// - where all backwards are whole or all are split, no slot has its own duration and neighbouring stages exchange messages: for each rank
///   what it cannot fill until its first backward returns, and until that of its last forward does, alone and on the way of a rank before
///   it; and how often its pairs must follow each other in the places the limit gives (`RankSpan` in lower_bound.cpp has the arguments).
///   On a V with equal passes and one limit k that is max(6M, 6M + 6R − 3k − 1). Reached by 1f1b, zb-h1, zbv and v-half at equal times.
/// Throws as `requireFitting`, and UsageError for limits below 1 or not one per rank. Cost: linear in actions and messages.
[[nodiscard]] LowerBounds lowerBounds(const Schedule& schedule, const CostTable& costs, std::span<const int> limits);

/// The flush bound without limits.
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
