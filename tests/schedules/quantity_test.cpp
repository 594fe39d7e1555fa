#include "schedules/quantity.h"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <sstream>
#include <type_traits>
#include <unordered_set>

#include "schedules/ids.h"

namespace pw {
namespace {

template <class A, class B>
concept Adds = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Compares = requires(A a, B b) {
  a < b;
};
template <class A, class B>
concept Multiplies = requires(A a, B b) {
  a* b;
};
template <class A, class B>
concept DividesUp = requires(A a, B b) {
  dividedUp(a, b);
};

TEST(Quantity, OfOneUnitDoesNotPassForAnother) {
  static_assert(!std::constructible_from<Ns, Bytes> && !std::assignable_from<Ns&, Bytes>);
  static_assert(!Adds<Ns, Bytes> && !Compares<Ns, Bytes> && !Multiplies<Ns, Ns>);
  static_assert(Adds<Ns, Ns> && Compares<Ns, Ns> && Multiplies<Ns, std::size_t>);
}

TEST(Quantity, IsMadeOfANumberAndMadeOneInSoManyWords) {
  static_assert(!std::convertible_to<std::int64_t, Ns> && std::constructible_from<Ns, std::int64_t>);
  static_assert(!std::convertible_to<double, Ns> && std::constructible_from<Ns, double>);
  static_assert(!std::convertible_to<Ns, std::int64_t> && !std::convertible_to<Ns, double>);
  static_assert(!Adds<Ns, std::int64_t> && !Adds<Ns, double> && !Multiplies<Ns, double>);
  constexpr Ns literal = 5;
  const int count = 5;
  EXPECT_EQ(literal, Ns(count));
  EXPECT_EQ(static_cast<double>(literal), 5.0);
  EXPECT_EQ(Ns(5.9), literal);
  EXPECT_EQ(Ns(-5.9), -literal);
}

TEST(Quantity, CountsInWholes) {
  Ns time = 7;
  EXPECT_EQ(time + time, Ns{14});
  EXPECT_EQ(time - 9, Ns{-2});
  EXPECT_EQ(abs(time - 9), Ns{2});
  EXPECT_EQ(3 * time, time * std::size_t{3});
  EXPECT_EQ(time / 2, Ns{3});
  static_assert(std::same_as<decltype(time / time), std::int64_t>);
  EXPECT_EQ(Ns{15} / time, 2);
  EXPECT_EQ(Ns{15} % time, Ns{1});
  EXPECT_EQ(Ns{1} << 40, Ns(std::int64_t{1} << 40));
  EXPECT_EQ(midpoint(Ns{3}, Ns{6}), Ns{4}) << "as std::midpoint: towards the first";
  time += 3;
  time *= 4;
  time -= 1;
  time /= 2;
  EXPECT_EQ(time, Ns{19});
}

TEST(Quantity, IsDividedUp) {
  static_assert(DividesUp<Ns, std::size_t> && !DividesUp<Ns, double> && !DividesUp<Ns, Ns>);
  for (std::int64_t whole = 0; whole < 50; ++whole) {
    for (const std::int64_t parts : {1, 2, 3, 7, 60}) {
      const Bytes part = dividedUp(Bytes(whole), parts);
      EXPECT_GE(part * parts, whole) << whole << " in " << parts;
      EXPECT_LT(part * parts - Bytes(whole), parts) << whole << " in " << parts << ": one less each would be too little";
    }
  }
  const Ns most = std::numeric_limits<Ns>::max();
  EXPECT_EQ(dividedUp(most, 1), most) << "without a sum that is larger than the quantity";
  EXPECT_EQ(dividedUp(most, 2), Ns(std::int64_t{1} << 62));
}

TEST(Quantity, IsDividedToTheNearest) {
  for (std::int64_t whole = 0; whole < 50; ++whole) {
    for (const std::int64_t parts : {1, 2, 3, 7, 60}) {
      const std::int64_t twice = (2 * dividedToNearest(Ns(whole), parts) * parts - 2 * Ns(whole)).value;
      EXPECT_LE(twice, parts) << whole << " in " << parts << ": at most half a unit too much";
      EXPECT_GT(twice, -parts) << whole << " in " << parts << ": less than half a unit too little";
    }
  }
  const Ns most = std::numeric_limits<Ns>::max();
  EXPECT_EQ(dividedToNearest(most, 1), most);
  EXPECT_EQ(dividedToNearest(most, std::size_t{2}), Ns(std::int64_t{1} << 62));
}

TEST(Quantity, HasTheOrderAndTheLimitsOfItsNumber) {
  EXPECT_LT(Bytes{-1}, Bytes{0});
  EXPECT_GT(Bytes{3}, 2);
  EXPECT_EQ(Bytes{3}, std::size_t{3});
  EXPECT_LT(Bytes{-1}, std::size_t{0});
  EXPECT_NE(Bytes{-1}, std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(std::numeric_limits<Bytes>::max().value, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(std::numeric_limits<Bytes>::lowest().value, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ((std::unordered_set<Bytes>{1, 2, 1}.size()), 2U);
  std::ostringstream text;
  text << Bytes{12};
  EXPECT_EQ(text.str(), "12");
}

}  // namespace
}  // namespace pw
