#pragma once

#include <string_view>

#include "simulator/costs/profile.h"

namespace pw {

/// Throws UsageError naming `what` when the profile's times or sizes are too large for their sums to fit into 64 bits.
void requireSummable(const Profile& profile, std::string_view what);

}  // namespace pw
