#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/trace/trace.h"

namespace pw {

inline constexpr std::size_t kPhases = 3;

/// The phases of a rank, within the makespan. Warmup lasts until its first backward (B, I or W) starts, cooldown from the end of its last
/// forward; where the two would overlap (GPipe: between the last forward and the first backward) it is warmup, and nothing is steady.
/// Without backwards, warmup lasts until the end of the last forward; a rank that computes nothing is in warmup throughout.
enum class Phase : std::uint8_t { Warmup, Steady, Cooldown };

/// `warmup`, `steady`, `cooldown`.
[[nodiscard]] std::string_view nameOf(Phase phase);

/// Where a rank's phases begin and how long it idles in each; their sum is `RankMetrics::idle`. The window clock leaves out
/// `beforeFirst` and `afterLast`, which the flush clock counts in the first and last phase.
struct RankPhases {
  Rank rank;
  Ns steady = 0;                      ///< warmup ends
  Ns cooldown = 0;                    ///< steady ends
  std::array<Ns, kPhases> idle{};     ///< by phase
  Ns beforeFirst = 0, afterLast = 0;  ///< idle before its first and after its last action

  bool operator==(const RankPhases&) const = default;
};

/// By rank. Cost: n log n in spans.
[[nodiscard]] std::vector<RankPhases> phasesOf(const Trace& trace);

/// Time per microbatch in the steady state, on the busiest rank (ties: the one with most backwards in its steady phase, then the lowest).
/// Of the starts t₀ ≤ … ≤ tₙ₋₁ of its backwards (B or I) within the steady phase, ends included, it takes the middle half, from a = n div 4
/// to b = n − 1 − a: (t_b − t_a) / (b − a), times the rank's backwards per microbatch (its chunks), to the nearest ns. A rank without
/// backwards: the same of its forwards. The result is at least the rank's work per microbatch; short runs would fall below it because their
/// W come later. 0 with fewer than 4 such starts or 4 microbatches: there is no steady state (GPipe). Cost: n log n in spans.
[[nodiscard]] Ns steadyPeriod(const Trace& trace);

}  // namespace pw
