#pragma once

// Internal to the import of traces: the profiler's marks of steps.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "simulator/trace/trace.h"

namespace pw {

/// By rank: begin and number of its steps, in the order of time.
using RankMarks = std::vector<std::vector<std::pair<Ns, std::int32_t>>>;

/// Adds the marks that a rank lost and others have: between two marks where it computes as much as in all steps whose marks are missing
/// there and one more; before its first and after its last as many as there are whole steps. Each begins with its first action. Elsewhere
/// marks stay as they are.
/// Spans are sorted. Cost: linear.
void completeMarks(RankMarks& marks, const std::vector<Span>& spans, std::vector<std::string>& notes);

}  // namespace pw
