#pragma once

#include <string>

#include "simulator/report/explain.h"

namespace pw {

/// `rank 2 waits 3 ms for 3B0: rank 3 computes 3F2 until 5 ms, then 3B0 until 7 ms, its message is in flight until 8 ms`. Consecutive
/// actions of one rank are summed up; of more than six causes the middle ones are left out.
[[nodiscard]] std::string toString(const Bubble& bubble);

}  // namespace pw
