#pragma once

#include "schedules/ids.h"

namespace pw {

/// The most of this process that was resident in memory since its program began (VmHWM of proc(5)); 0 where the system does not say.
[[nodiscard]] Bytes residentPeak();

/// What is resident of mapped files (code and data of libraries) and shared memory (statm of proc(5)); 0 where the system does not say.
/// Cost: 10 µs.
[[nodiscard]] Bytes residentOfFiles();

}  // namespace pw
