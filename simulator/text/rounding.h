#pragma once

#include <string_view>

#include "schedules/ids.h"

namespace pw {

/// The longest time of one thing [ns], three years: sums over everything a step does stay within 64 bits.
inline constexpr double kLongestTime = 1e17;

/// A computed time to the nearest ns. Throws UsageError naming `what` when it is negative, beyond `kLongestTime` or not a number, as with a
/// bandwidth of nearly 0.
[[nodiscard]] Ns nsOf(double ns, std::string_view what);

}  // namespace pw
