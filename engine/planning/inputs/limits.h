#pragma once

#include <cstdint>
#include <string_view>

#include "simulator/plan/plan.h"

namespace pw {

// The largest ranks, chunks and counts that a plan, a search, a simulation or a run takes.
inline constexpr int kMostPlanRanks = 1024, kMostPlanChunks = 1024;
inline constexpr std::int64_t kMostMicrobatchSamples = 1 << 20, kMostBatchSamples = 1 << 24;
inline constexpr int kMostThreads = 1024;
inline constexpr double kMostJitter = 2;
inline constexpr int kMostDraws = 1'000'000;
inline constexpr double kShortestTimeout = 0.1, kLongestTimeout = 1e6;               ///< of a wait between ranks, seconds
inline constexpr double kLeastNorm = 1e-30, kMostNorm = 1e18;                        ///< that gradients are clipped to
inline constexpr double kShortestOrderSearch = 0.001, kLongestOrderSearch = 86'400;  ///< seconds

/// Throws UsageError, naming the option (`--ranks`), where the number is not from `least` to `most`, or not a number.
void requireWhole(std::string_view option, std::int64_t value, std::int64_t least, std::int64_t most);
void requireNumber(std::string_view option, double value, double least, double most);

}  // namespace pw
