#include "schedules/units.h"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace pw {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t scale;
};

constexpr std::array kReadTimes{Unit{"ns", 1}, Unit{"us", 1'000}, Unit{"ms", 1'000'000}, Unit{"s", 1'000'000'000}};
constexpr std::array kShownTimes{Unit{"ns", 1},
                                 Unit{"µs", 1'000},
                                 Unit{"ms", 1'000'000},
                                 Unit{"s", 1'000'000'000},
                                 Unit{"min", 60'000'000'000},
                                 Unit{"h", 3'600'000'000'000}};
constexpr std::array kReadSizes{Unit{"B", 1},           Unit{"KB", 1'000},      Unit{"MB", 1'000'000}, Unit{"GB", 1'000'000'000},
                                Unit{"KiB", 1LL << 10}, Unit{"MiB", 1LL << 20}, Unit{"GiB", 1LL << 30}};
constexpr std::array kShownSizes{Unit{"B", 1}, Unit{"KiB", 1LL << 10}, Unit{"MiB", 1LL << 20}, Unit{"GiB", 1LL << 30},
                                 Unit{"TiB", 1LL << 40}};

/// Digits after the point that are used: times the largest unit (2^30) they still fit into 64 bits.
constexpr std::size_t kMostDecimals = 9;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// The value of a string of digits; nothing when it is empty, has any other character or exceeds 64 bits.
std::optional<std::int64_t> digits(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const std::int64_t digit = c - '0';
    if (value > (kMost - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

/// `number × scale` as an integer, halves rounded up; nothing when it is not a decimal number or exceeds 64 bits.
std::optional<std::int64_t> scaled(std::string_view number, std::int64_t scale) {
  const std::size_t point = number.find('.');
  const auto whole = digits(number.substr(0, point));
  if (!whole || *whole > kMost / scale) return std::nullopt;
  if (point == std::string_view::npos) return *whole * scale;
  const std::string_view decimals = number.substr(point + 1);
  const auto part = digits(decimals);
  if (!part || decimals.size() > kMostDecimals) return std::nullopt;
  std::int64_t power = 1;
  for (std::size_t i = 0; i < decimals.size(); ++i) power *= 10;
  const std::int64_t fraction = (*part * scale + power / 2) / power;
  if (*whole * scale > kMost - fraction) return std::nullopt;
  return *whole * scale + fraction;
}

std::optional<std::int64_t> parse(std::string_view text, std::span<const Unit> units) {
  const std::string_view number = text.substr(0, text.find_first_not_of("0123456789."));
  const std::string_view name = text.substr(number.size());
  for (const Unit& unit : units) {
    if (unit.name == name) return scaled(number, unit.scale);
  }
  return std::nullopt;
}

std::string format(std::int64_t value, std::span<const Unit> units) {
  const std::string_view sign = value < 0 ? "-" : "";
  // The magnitude of the most negative number does not fit its own type.
  const std::uint64_t size = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto scale = static_cast<std::uint64_t>(units[i].scale);
    const std::uint64_t whole = size / scale;
    const std::uint64_t rest = size % scale;
    const std::uint64_t rounded = whole + (2 * rest >= scale ? 1 : 0);
    if (i + 1 < units.size()) {  // 999.6 ms are 1.00 s; 59.96 s are not 1.00 min but 60.0 s
      const auto next = static_cast<std::uint64_t>(units[i + 1].scale), ratio = next / scale;
      if (ratio >= 1000 ? rounded >= ratio : size >= next) continue;
    }
    for (const std::uint64_t power : {std::uint64_t{100}, std::uint64_t{10}}) {
      if (scale == 1 || whole >= 1000 / power) continue;
      const std::uint64_t fixed = whole * power + (rest * power + scale / 2) / scale;
      if (fixed >= 1000) continue;  // 9.996 is 10.0
      return fmt::format("{}{}.{:0{}} {}", sign, fixed / power, fixed % power, power == 100 ? 2 : 1, units[i].name);
    }
    return fmt::format("{}{} {}", sign, rounded, units[i].name);
  }
  return {};  // not reached: the last unit accepts every value
}

}  // namespace

Ns parseDuration(std::string_view text) { return tryDuration(text).orThrow(); }

Bytes parseSize(std::string_view text) { return trySize(text).orThrow(); }

std::string formatDuration(Ns time) { return format(time.value, kShownTimes); }

std::string formatSize(Bytes bytes) { return format(bytes.value, kShownSizes); }

std::pair<std::string, std::string> formatSizes(Bytes a, Bytes b) {
  std::pair sizes(formatSize(a), formatSize(b));
  if (sizes.first == sizes.second && a != b) sizes = {fmt::format("{} B", a.value), fmt::format("{} B", b.value)};
  return sizes;
}

Answer<Ns> tryDuration(std::string_view text) {
  if (text == "0") return Ns(0);
  if (const auto time = parse(text, kReadTimes)) return Ns(*time);
  return Impossible{fmt::format("\"{}\" is not a duration; write a number and ns, us, ms or s, like 1.5ms", text)};
}

Answer<Bytes> trySize(std::string_view text) {
  if (const auto size = parse(text, kReadSizes)) return Bytes(*size);
  return Impossible{fmt::format("\"{}\" is not a size; write a number and B, KB, MB, GB, KiB, MiB or GiB, like 1.5GiB", text)};
}

}  // namespace pw
