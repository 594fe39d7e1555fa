#include "backends/traces/readers/time_text.h"

#include <cmath>
#include <cstdint>

#include "backends/traces/events/events.h"

namespace pw {

std::optional<Ns> nanoseconds(std::string_view text) {
  constexpr std::int64_t kMost = kLatestTime.value / 1000 - 1;
  const bool negative = text.starts_with('-');
  std::string_view rest = text.substr(negative ? 1 : 0);
  std::int64_t whole = 0;
  while (!rest.empty() && rest.front() >= '0' && rest.front() <= '9' && whole <= kMost) {
    whole = whole * 10 + (rest.front() - '0');
    rest.remove_prefix(1);
  }
  if (whole > kMost) return std::nullopt;
  std::int64_t fraction = 0;
  const bool digits = rest.size() < text.size() - (negative ? 1U : 0U);
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    int taken = 0;
    for (; !rest.empty() && rest.front() >= '0' && rest.front() <= '9'; rest.remove_prefix(1), ++taken) {
      if (taken < 3) fraction = fraction * 10 + (rest.front() - '0');
      if (taken == 3 && rest.front() >= '5') ++fraction;
    }
    for (; taken < 3; ++taken) fraction *= 10;
  }
  if (digits && rest.empty()) return Ns((negative ? -1 : 1) * (whole * 1000 + fraction));
  double number = 0;  // 1.5e3
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size() || !(std::abs(number) < static_cast<double>(kMost))) return std::nullopt;
  return static_cast<Ns>(std::llround(number * 1000));
}

}  // namespace pw
