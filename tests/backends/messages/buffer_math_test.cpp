// Sums in half precision against the definition of rounding: the nearest number of the format, of two the one with an even last bit; found
// by search in the table of all numbers, which the formats' own definitions give.
#include "backends/messages/buffer_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "schedules/error.h"

namespace pw {
namespace {

struct Format {
  DType dtype;
  int exponentBits, mantissaBits;

  friend void PrintTo(const Format& f, std::ostream* out) { *out << nameOf(f.dtype); }
};

/// IEEE 754: sign, biased exponent, mantissa; exponent 0 is subnormal, all ones infinite or no number.
double valueOf(const Format& f, std::uint32_t bits) {
  const int mantissa = static_cast<int>(bits & ((1U << f.mantissaBits) - 1)), bias = (1 << (f.exponentBits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> f.mantissaBits) & ((1 << f.exponentBits) - 1);
  double size = 0;
  if (exponent == (1 << f.exponentBits) - 1) {
    size = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    size = std::ldexp(mantissa, 1 - bias - f.mantissaBits);
  } else {
    size = std::ldexp(mantissa + (1 << f.mantissaBits), exponent - bias - f.mantissaBits);
  }
  return (bits & 0x8000U) != 0 ? -size : size;
}

/// Bits of the number nearest to `exact`, which is not zero. From half a step above the largest number on it is infinity.
std::uint16_t nearest(const Format& f, double exact) {
  const double size = std::abs(exact);
  const std::uint32_t infinity = ((1U << f.exponentBits) - 1) << f.mantissaBits;
  std::uint32_t low = 0, high = infinity;  // valueOf(low) ≤ size; the next number after the largest stands for infinity
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (valueOf(f, middle) <= size ? low : high) = middle;
  }
  const double below = valueOf(f, low), above = high == infinity ? std::ldexp(1.0, 1 << (f.exponentBits - 1)) : valueOf(f, high);
  const double middle = below + (above - below) / 2;
  const bool up = size > middle || (size == middle && (low & 1U) != 0);
  return static_cast<std::uint16_t>((up ? high : low) | (exact < 0 ? 0x8000U : 0U));
}

std::uint16_t sum(DType dtype, std::uint16_t a, std::uint16_t b) {
  addInto(dtype, {reinterpret_cast<std::byte*>(&a), 2}, {reinterpret_cast<std::byte*>(&b), 2});
  return a;
}

class HalfPrecision : public testing::TestWithParam<Format> {};

TEST_P(HalfPrecision, AllNumbersAreReadAsTheyAreDefinedAndStayTheSameWithNothingAdded) {
  const Format& f = GetParam();
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    auto number = static_cast<std::uint16_t>(bits);
    const double expected = valueOf(f, bits);
    const double read = toDoubles(f.dtype, {reinterpret_cast<std::byte*>(&number), 2}).at(0);
    const std::uint16_t same = sum(f.dtype, number, 0x8000);  // −0
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(read)) << bits;
      ASSERT_TRUE(std::isnan(valueOf(f, same))) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint64_t>(read), std::bit_cast<std::uint64_t>(expected)) << bits;
    ASSERT_EQ(same, number);
  }
}

TEST_P(HalfPrecision, SumsRoundToTheNearestAndTiesToEven) {
  const Format& f = GetParam();
  constexpr std::uint64_t kSeed = 17;
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937_64 random(kSeed);
  int ties = 0, subnormal = 0, infinite = 0, checked = 0;
  for (int i = 0; i < 300000; ++i) {
    const auto a = static_cast<std::uint16_t>(random());
    // Near in exponent, so that bits get lost; every fourth pair anywhere.
    const int shift = static_cast<int>(random() % 13) - 6;
    auto b = static_cast<std::uint16_t>(random());
    if (i % 4 != 0)
      b = static_cast<std::uint16_t>(
          (b & (0x8000U | ((1U << f.mantissaBits) - 1))) |
          (((a & 0x7FFFU) + (static_cast<unsigned>(shift) << f.mantissaBits)) & (0x7FFFU & ~((1U << f.mantissaBits) - 1))));
    const double x = valueOf(f, a), y = valueOf(f, b), exact = x + y;
    if (!std::isfinite(x) || !std::isfinite(y) || exact == 0) continue;
    if (exact - x != y || exact - y != x) continue;  // not exact as a double
    ++checked;
    const std::uint16_t expected = nearest(f, exact);
    ASSERT_EQ(sum(f.dtype, a, b), expected) << x << " + " << y;
    const double rounded = valueOf(f, expected);
    infinite += std::isinf(rounded) ? 1 : 0;
    subnormal += std::abs(rounded) < valueOf(f, 1U << f.mantissaBits) ? 1 : 0;
    if (std::isfinite(rounded) && rounded != exact) {
      const double other = valueOf(f, static_cast<std::uint16_t>(expected + (std::abs(rounded) > std::abs(exact) ? -1 : 1)));
      ties += exact - rounded == other - exact ? 1 : 0;
    }
  }
  EXPECT_GT(checked, 100000);
  EXPECT_GT(ties, 1000);
  EXPECT_GT(subnormal, 100);
  EXPECT_GT(infinite, 100);
}

TEST_P(HalfPrecision, TheLargestNumberAndHalfAStepIsInfinite) {
  const Format& f = GetParam();
  const auto largest = static_cast<std::uint16_t>((((1U << f.exponentBits) - 1) << f.mantissaBits) - 1);
  const auto infinity = static_cast<std::uint16_t>(largest + 1);
  const double step = valueOf(f, largest) - valueOf(f, largest - 1U);
  const std::uint16_t half = nearest(f, step / 2), less = static_cast<std::uint16_t>(half - 1);
  EXPECT_EQ(sum(f.dtype, largest, half), infinity);
  EXPECT_EQ(sum(f.dtype, largest, less), largest);
  EXPECT_EQ(sum(f.dtype, static_cast<std::uint16_t>(largest | 0x8000), static_cast<std::uint16_t>(half | 0x8000)), infinity | 0x8000);
  EXPECT_TRUE(std::isnan(valueOf(f, sum(f.dtype, infinity, static_cast<std::uint16_t>(infinity | 0x8000)))));
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfPrecision, testing::Values(Format{DType::Float16, 5, 10}, Format{DType::BFloat16, 8, 7}),
                         [](const auto& test) { return std::string(nameOf(test.param.dtype)); });

TEST(Numbers, SquaresAreSummedInDoublePrecision) {
  std::vector<float> numbers(1000, 1e-4F);
  numbers.push_back(1e4F);
  const double small = static_cast<double>(1e-4F), large = static_cast<double>(1e4F);
  const double expected = 1000 * small * small + large * large;  // in float the small ones would vanish
  EXPECT_NEAR(sumOfSquares(DType::Float32, {reinterpret_cast<std::byte*>(numbers.data()), numbers.size() * 4}), expected, 1e-7);
  std::vector<std::uint16_t> halves{0x3C00, 0xC000, 0x3800};  // 1, −2, 0.5
  EXPECT_EQ(sumOfSquares(DType::Float16, {reinterpret_cast<std::byte*>(halves.data()), 6}), 5.25);
}

TEST(Numbers, OtherTypesAreRefusedByName) {
  std::int64_t number = 1;
  const Buffer buffer{reinterpret_cast<std::byte*>(&number), sizeof(number)};
  EXPECT_THROW(addInto(DType::Int64, buffer, buffer), Error);
  EXPECT_THROW(static_cast<void>(toDoubles(DType::Bool, buffer)), Error);
  try {
    static_cast<void>(sumOfSquares(DType::Int64, buffer));
    FAIL() << "summed integers";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("int64"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace pw
