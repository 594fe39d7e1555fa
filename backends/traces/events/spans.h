#pragma once

// Internal to the import of traces: what spans of any file need.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/trace/trace.h"

namespace pw {

/// Whether span `i` shares its interval with a neighbour of its track.
[[nodiscard]] bool inSlot(const std::vector<Span>& spans, std::size_t i);

/// Sorts by (start, rank, end, …), as `Trace` has them; quick where sorted runs follow each other.
void sortSpans(std::vector<Span>& spans);

/// Trims the compute spans of each rank so that none overlaps another, except in slots; drops spans inside another one. Sorted spans in,
/// sorted out. Returns how many were dropped, or cut by more than the microsecond that their times may be rounded to. Linear.
std::size_t cutOverlaps(std::vector<Span>& spans, int ranks);

/// Leaves out backwards that compute nothing: torch's schedules label them in an evaluation (`schedule.eval`), too. Those are the backwards
/// of a microbatch that take less than a tenth of the shortest forward and of the longest backwards of their stage; where that is so of all
/// backwards of all stages, of the forward alone. `spans`: sorted by start, with stages and microbatches. Cost: n log n.
void dropEmptyBackwards(std::vector<Span>& spans);

/// Number and noun: `1 event`, `12 events`.
[[nodiscard]] std::string countedEvents(std::uint64_t number, const std::string& noun);

}  // namespace pw
