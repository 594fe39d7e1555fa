#include "simulator/text/counted.h"

#include <fmt/format.h>

namespace pw {

std::string counted(std::int64_t number, std::string_view noun) {
  const bool hisses = noun.ends_with("ch") || noun.ends_with("sh") || noun.ends_with("s") || noun.ends_with("x");
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : hisses ? "es" : "s");
}

}  // namespace pw
