#pragma once

#include <cstddef>
#include <optional>

#include "simulator/hang/inquiry.h"

namespace pw::hang {

/// Of the problems for which `check` refuses the schedule, the first that is what hangs; nothing where it refuses the schedule for
/// something else, or not at all. A deadlock, or a message out of order, is what hangs where it names an operation that a rank is stuck in
/// or waits for. One that stops only blocking sends or shared channels needs ranks that wait for each other with those very operations
/// open. A message that the schedule leaves out is what hangs where a rank waits for one from the same rank: dumps do not tell which of
/// several. A rank that is silent, or left its row, is no fault of the schedule. `diagnosis`: with its verdict and problems. Cost: linear
/// in what the problems say.
[[nodiscard]] std::optional<std::size_t> problemThatHangs(const Inquiry& inquiry, const Diagnosis& diagnosis);

}  // namespace pw::hang
