#include "schedules/named_values.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace pw {
namespace {

enum class Colour : std::uint8_t { Red, Green, Blue };

constexpr std::string_view nameOf(Colour colour) {
  switch (colour) {
    case Colour::Red: return "red";
    case Colour::Green: return "green";
    case Colour::Blue: return "blue";
  }
  return {};
}

TEST(NamedValues, AreAllThatHaveAName) {
  static_assert(valuesOf<Colour>() == std::array{Colour::Red, Colour::Green, Colour::Blue});
  EXPECT_EQ(namesOf<Colour>("|"), "red|green|blue");
}

TEST(NamedValues, AreFoundByTheirExactName) {
  static_assert(valueNamed<Colour>("blue") == Colour::Blue);
  for (const char* unknown : {"", "blu", "Blue", "yellow"}) EXPECT_EQ(valueNamed<Colour>(unknown), std::nullopt) << unknown;
}

}  // namespace
}  // namespace pw
