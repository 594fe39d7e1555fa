#pragma once

#include <string>
#include <variant>

#include "schedules/schedule.h"

namespace pw {

/// A compute-only schedule without problems for another number of microbatches: those beyond go, or the part of its order that repeats
/// itself is repeated more often. Else why there is none, one sentence without its point: the order repeats itself nowhere, or the shape
/// has other ranks or stages. Of the parts that repeat, of at most 64 microbatches, the latest of the fewest is taken. Cost: linear in
/// both, and ranks × microbatches for each number of microbatches of which no part repeats.
[[nodiscard]] std::variant<Schedule, std::string> adapted(const Schedule& schedule, const Shape& shape);

}  // namespace pw
