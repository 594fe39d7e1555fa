#include "engine/planning/inputs/job_source.h"

#include <gtest/gtest.h>

namespace pw::test {
namespace {

TEST(TypicalStep, IsTheMedianOfThoseThatDoNotWarmUp) {
  EXPECT_EQ(typicalStep({"1", "2", "3", "4"}, {900, 10, 30, 20}), 3U) << "the first is taken to warm up";
  EXPECT_EQ(typicalStep({"1", "2", "3"}, {10, 20, 30}, true), 1U) << "it was left out before";
  EXPECT_EQ(typicalStep({"1 (warm-up)", "2", "3", "4"}, {900, 10, 20, 30}), 2U) << "only the one that says so";
  EXPECT_EQ(typicalStep({"1 (warm-up)", "2 (warm-up)", "3"}, {900, 800, 10}), 2U);
  EXPECT_EQ(typicalStep({"1 (warm-up)", "2 (warm-up)"}, {900, 800}), 1U) << "there are no others";
  EXPECT_EQ(typicalStep({"1"}, {10}), 0U);
}

}  // namespace
}  // namespace pw::test
