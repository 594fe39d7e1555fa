#pragma once

#include <string_view>

#include "schedules/ids.h"

namespace pw {

/// The longest time of a single action [ns], three years: sums over a whole step then fit into 64 bits.
inline constexpr double kLongestTime = 1e17;

/// A computed time rounded to the nearest ns. Throws UsageError naming `what` when it is negative, above `kLongestTime` or not a number, as
/// with a bandwidth of nearly 0.
[[nodiscard]] Ns nsOf(double ns, std::string_view what);

/// A time multiplied, to the nearest ns.
[[nodiscard]] Ns scaled(Ns time, double factor);

}  // namespace pw
