#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "schedules/answer.h"
#include "schedules/ids.h"

namespace pw {

/// The largest sum of times [ns] or sizes [bytes] that anything here may add up to: less than 2^62, so that two of them stay within 64
/// bits.
inline constexpr std::int64_t kMostSum = 4'000'000'000'000'000'000;

/// `1.5ms`, `200us`, `30ns`, `2s` → nanoseconds. Throws UsageError on anything else (a bare number included, except 0).
/// At most nine digits after the point; rounds to the nearest nanosecond, halves up. The same holds for sizes.
[[nodiscard]] Ns parseDuration(std::string_view text);

/// `24GiB`, `80GB`, `512MB`, `100KiB`, `12B` → bytes (GiB = 2^30, GB = 10^9). Throws UsageError on anything else.
[[nodiscard]] Bytes parseSize(std::string_view text);

/// Three significant digits with unit: `1.23 ms`, `850 ns`, `12.3 s`, `14.5 min`, `13.4 h`; whole hours from 1000 h on. Halves round up.
[[nodiscard]] std::string formatDuration(Ns time);

/// Three significant digits with binary unit: `1.50 MiB`, `512 B`; four where 1000 to 1023 of a unit need them.
[[nodiscard]] std::string formatSize(Bytes bytes);
/// Two sizes to be compared: as `formatSize`, or as whole bytes where different ones would read the same.
[[nodiscard]] std::pair<std::string, std::string> formatSizes(Bytes a, Bytes b);

/// `parseDuration` and `parseSize`, for those to whom another text is an answer: that sentence.
[[nodiscard]] Answer<Ns> tryDuration(std::string_view text);
[[nodiscard]] Answer<Bytes> trySize(std::string_view text);

}  // namespace pw
