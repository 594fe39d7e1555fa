#pragma once

// Internal to the import of traces: a trace cut into its steps.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/traces/events/imported.h"
#include "backends/traces/recovery/marks.h"

namespace pw {

/// Spans and memory of one trace before it is cut into steps; ranks are final, spans sorted, samples by (rank, time).
struct Material {
  std::string name;
  bool own = false;
  bool timeless = false;  ///< its times are of a replay
  int ranks = 0;
  std::vector<Span> spans;
  std::vector<MemorySample> memory;
  RankMarks marks;
  std::set<std::int32_t> programSteps = {};  ///< numbers that only programs marked, where spans are their devices'
};

inline constexpr std::size_t kMostTraceSteps = 10'000;  ///< that are taken of a trace

/// Throws UsageError where sums of a step's times do not stay within 64 bits: R · makespan, and all messages of a rank.
void requireSummable(const Trace& trace, const std::string& title);

/// Cuts the material into steps, where it is not this program's own: as the profiler marked them, or else after each optimizer and where an
/// action comes again on its rank; in a recording without optimizers that begins within a step, where one begins. A rank whose recording
/// begins some steps later counts on from there. Each begins at 0 and keeps the
/// rules of `Trace`. Adds sentences about what was cut or left out. Throws UsageError for steps too long to add up. Cost: linear.
void addSteps(ImportedTrace& result, Material material);

}  // namespace pw
