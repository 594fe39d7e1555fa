#pragma once

#include <array>
#include <random>
#include <string>
#include <string_view>

#include "tests/support/random_costs.h"

namespace pw::test {

/// The text with one to three damages: a number replaced by an extreme one, a byte changed, a piece removed or doubled.
inline std::string mutate(std::string text, std::mt19937_64& random) {
  constexpr std::array<std::string_view, 14> kNumbers = {"-1",
                                                         "0",
                                                         "1",
                                                         "2",
                                                         "255",
                                                         "2147483648",
                                                         "4294967296",
                                                         "9223372036854775807",
                                                         "18446744073709551615",
                                                         "-9223372036854775808",
                                                         "1e300",
                                                         "0.5",
                                                         "null",
                                                         "\"0\""};
  const auto at = [&] { return static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(text.size()) - 1)); };
  for (std::int64_t damages = draw(random, 1, 3); damages > 0 && !text.empty(); --damages) {
    const std::size_t place = at();
    switch (draw(random, 0, 5)) {
      case 0: text[place] = static_cast<char>(draw(random, 0, 255)); break;
      case 1: text.erase(place, static_cast<std::size_t>(draw(random, 1, 40))); break;
      case 2: text.insert(at(), text.substr(place, static_cast<std::size_t>(draw(random, 1, 40)))); break;
      default: {  // most often: the next number
        const std::size_t begin = text.find_first_of("0123456789", place);
        if (begin == std::string::npos) break;
        const std::size_t end = text.find_first_not_of("0123456789", begin);
        text.replace(begin, end == std::string::npos ? end : end - begin, kNumbers[static_cast<std::size_t>(draw(random, 0, 13))]);
      }
    }
  }
  return text;
}

}  // namespace pw::test
