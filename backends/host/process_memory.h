#pragma once

#include "schedules/ids.h"

namespace pw {

/// The most of this process that was resident in memory since its program began (VmHWM of proc(5)); 0 where the system does not say.
[[nodiscard]] Bytes residentPeak();

}  // namespace pw
