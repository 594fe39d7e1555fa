#pragma once

#include <string>

#include "engine/planning/subject.h"

namespace pw {

/// About a year; twice as long, for the default backward, is still far from overflow.
inline constexpr Ns kLongestTime{30'000'000'000'000'000};

/// `--slow`. `2=1.5`: every duration of the stages on rank 2 takes 1.5 times as long. `1-2=3`: messages between these ranks do. Throws
/// UsageError for other text, ranks and links that are not there, bidirectional placements, and times too long to add up.
void slowDown(Subject& subject, const std::string& text);

}  // namespace pw
