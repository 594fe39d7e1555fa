#include "simulator/text/three_digits.h"

#include <cmath>

#include <fmt/format.h>

namespace pw {

std::string threeDigits(double number) {
  const double size = std::abs(number);
  if (size >= 99.95 || number == std::floor(number)) return fmt::format("{:.0f}", number);
  if (size < 0.9995) return fmt::format("{:.3g}", number);
  return fmt::format("{:.{}f}", number, size < 9.995 ? 2 : 1);
}

}  // namespace pw
