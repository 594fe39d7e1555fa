#include "simulator/text/counted.h"

#include <fmt/format.h>

namespace pw {

std::string counted(std::int64_t number, std::string_view noun) { return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s"); }

}  // namespace pw
