#pragma once

#include <cstddef>

#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// How many copies of one pipeline a timeline shows, one after the other in the order of ranks: data-parallel replicas and ranks of a
/// tensor-parallel group, which all do the same. Found by what they do: the first forward of the first stage is on a rank of each copy, and
/// the ranks of each hold the same stages. 1 where that does not hold, so for one pipeline, also one with two replicas of its stages
/// (whose microbatches are different ones). Cost: linear in spans.
[[nodiscard]] std::size_t copiesIn(const Timeline& timeline);

/// The spans of the first of so many copies, as of a trace of its own.
[[nodiscard]] Trace firstCopy(const Trace& trace, std::size_t copies);

}  // namespace pw::gui
