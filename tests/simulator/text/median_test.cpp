#include "simulator/text/median.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace pw {
namespace {

TEST(Medians, AreTheMiddleOrTheMeanOfTheTwoThere) {
  EXPECT_EQ(medianOf(std::vector<std::int64_t>{}), std::nullopt);
  EXPECT_EQ(medianOf(std::vector<std::int64_t>{7}), 7);
  EXPECT_EQ(medianOf(std::vector<std::int64_t>{9, 1, 4}), 4);
  EXPECT_EQ(medianOf(std::vector<std::int64_t>{9, 1, 4, 5}), 4) << "4.5, of integers";
  EXPECT_EQ(medianOf(std::vector<double>{9, 1, 4, 5}), 4.5);
}

TEST(Medians, LowerAndUpperOnesOccur) {
  EXPECT_EQ(lowerMedianOf(std::vector<double>{}), std::nullopt);
  EXPECT_EQ(upperMedianOf(std::vector<double>{}), std::nullopt);
  EXPECT_EQ(lowerMedianOf(std::vector<double>{7}), 7);
  EXPECT_EQ(upperMedianOf(std::vector<double>{7}), 7);
  EXPECT_EQ(lowerMedianOf(std::vector<double>{9, 1, 4}), 4);
  EXPECT_EQ(upperMedianOf(std::vector<double>{9, 1, 4}), 4);
  EXPECT_EQ(lowerMedianOf(std::vector<double>{9, 1, 4, 5}), 4);
  EXPECT_EQ(upperMedianOf(std::vector<double>{9, 1, 4, 5}), 5);
}

}  // namespace
}  // namespace pw
