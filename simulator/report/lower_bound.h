#pragma once

#include <span>

#include "simulator/report/metrics.h"

namespace pw {

/// Times that no order of the actions can beat: on the flush clock, and for the longest window of a single rank.
struct LowerBounds {
  Ns flush = 0;
  Ns window = 0;

  bool operator==(const LowerBounds&) const = default;
};

/// Times that no order of these actions can beat for these costs and this placement, with at most `limits[r]` live (stage, microbatch)
/// pairs (from F start to the end of B or W) and `bytes[r]` of memory on rank r (0: no limit); empty: no limit. The largest of these:
///
/// The longest chain of one microbatch.
///
/// A rank's whole work; on the flush clock also the least time before its first action (forwards and messages that reach it) and after its
/// last one (backwards and messages that follow). Of several stages on a rank the nearest counts.
///
/// Where all backwards are whole or all are split, no slot has its own duration and neighbouring stages exchange messages: the time that a
/// rank cannot fill until its first backward returns, and until that of its last forward does, by itself and on the path of an earlier
/// rank; and how often its pairs must follow each other in the room that the limits allow (limited_bound.cpp has the arguments). On a V
/// with equal times and one limit k that is max(6M, 6M + 6R − 3k − 1); 1f1b, zb-h1, zbv and v-half reach it there.
///
/// Throws as `requireFitting`, and UsageError for limits below 1 or not one per rank. Cost: linear in actions and messages.
[[nodiscard]] LowerBounds lowerBounds(const Schedule& schedule, const CostTable& costs, std::span<const int> limits,
                                      std::span<const Bytes> bytes = {});

/// The flush bound without limits.
[[nodiscard]] Ns lowerBound(const Schedule& schedule, const CostTable& costs);

}  // namespace pw
