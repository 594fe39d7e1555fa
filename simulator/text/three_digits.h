#pragma once

#include <string>

namespace pw {

/// A rate as people compare it, such as samples per second: with three digits where it has fractions, `0.966`, `1.35`, `96.6`, `1234`.
[[nodiscard]] std::string threeDigits(double number);

}  // namespace pw
