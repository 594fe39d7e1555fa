#pragma once

#include "schedules/schedule.h"

namespace pw {

/// The two policies of `lower` that follow torch 2.11 cell by cell. For use in this folder only.
[[nodiscard]] Schedule lowerAsTorch(const Schedule& compute);
[[nodiscard]] Schedule lowerAsTorchRuntime(const Schedule& compute);

}  // namespace pw
