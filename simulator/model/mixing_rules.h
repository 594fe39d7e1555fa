#pragma once

#include "simulator/model/flowing_call.h"

namespace pw {

/// Follows the samples through one call by the dimension rule of its operator.
[[nodiscard]] FlowResult flowThrough(const FlowingCall& call);

}  // namespace pw
