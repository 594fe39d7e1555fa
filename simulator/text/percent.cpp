#include "simulator/text/percent.h"

#include <fmt/format.h>

namespace pw {

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string signedPercent(double fraction) { return fmt::format("{:+.1f} %", 100 * fraction); }

}  // namespace pw
