#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/named_values.h"

namespace pw {

/// Which time of a step is to be small: `makespan` or `window` of Metrics.
enum class StepClock : std::uint8_t { Flush, Window };

constexpr std::string_view nameOf(StepClock clock) {
  switch (clock) {
    case StepClock::Flush: return "flush";
    case StepClock::Window: return "window";
  }
  return {};
}

}  // namespace pw
