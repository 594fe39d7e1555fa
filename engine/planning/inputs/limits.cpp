#include "engine/planning/inputs/limits.h"

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {

void requireWhole(std::string_view option, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) throw UsageError(fmt::format("{} {} is not an integer from {} to {}", option, value, least, most));
}

void requireNumber(std::string_view option, double value, double least, double most) {
  if (!(value >= least && value <= most))
    throw UsageError(fmt::format("{} {:g} is not a number from {:g} to {:g}", option, value, least, most));
}

}  // namespace pw
