#pragma once

#include "schedules/ids.h"

namespace pw {

/// Time since the kernel started this process, that of a suspended machine included; to its clock tick (10 ms). 0 where it cannot be read.
[[nodiscard]] Ns processAge();

}  // namespace pw
