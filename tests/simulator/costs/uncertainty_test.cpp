// Error bars of predictions: how wide, how written, when two candidates cannot be told apart.
#include "simulator/costs/uncertainty.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

constexpr Ns kMs = 1'000'000;

TEST(ErrorBar, HoldsFourOfFiveStepsOfANormalDistribution) {
  EXPECT_NEAR(static_cast<double>(errorBar({0.1, 3}, 1000 * kMs)), 128.16e6, 0.01e6);
  EXPECT_EQ(errorBar({0, 3}, 1000 * kMs), 0);
}

TEST(ErrorBar, StandsBehindThePrediction) {
  EXPECT_EQ(formatPrediction(2'310 * kMs, std::nullopt), "2.31 s");
  EXPECT_EQ(formatPrediction(2'000 * kMs, Uncertainty{0.025, 4}), "2.00 s ± 64.1 ms (4 past runs)");
  EXPECT_EQ(formatPrediction(2'000 * kMs, Uncertainty{0.025, 1}), "2.00 s ± 64.1 ms (1 past run)");
  EXPECT_EQ(formatPrediction(2'000 * kMs, Uncertainty{0.025, 0}), "2.00 s ± 64.1 ms (held-out steps of the job)");
  EXPECT_EQ(formatErrorBar({0.025, 0}), "± 3.2 % (held-out steps of the job)");
  EXPECT_EQ(formatErrorBar({0.025, 2, true}), "± 3.2 % (steps of 2 jobs)");
}

TEST(ErrorBar, CannotTellCandidatesApartWhoseBarsOverlap) {
  const Uncertainty uncertainty{0.04, 2};  // ± 5.1 %
  EXPECT_TRUE(areIndistinguishable(uncertainty, 100 * kMs, 110 * kMs));
  EXPECT_TRUE(areIndistinguishable(uncertainty, 110 * kMs, 100 * kMs));
  EXPECT_FALSE(areIndistinguishable(uncertainty, 100 * kMs, 112 * kMs));
}

}  // namespace
}  // namespace pw
