// Student's t against the printed tables, and the interval of a difference against a worked example.
#include "simulator/history/student.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace pw {
namespace {

TEST(StudentQuantile, IsThatOfThePrintedTables) {
  struct Entry {
    double probability;
    int degrees;
    double value;
  };
  // Abramowitz and Stegun, table 26.10.
  for (const Entry& entry : {Entry{0.975, 1, 12.706},
                             {0.995, 1, 63.657},
                             {0.975, 2, 4.303},
                             {0.95, 3, 2.353},
                             {0.975, 10, 2.228},
                             {0.995, 30, 2.750},
                             {0.9995, 5, 6.869},
                             {0.975, 120, 1.980}}) {
    EXPECT_NEAR(studentQuantile(entry.probability, entry.degrees), entry.value, 0.0006) << entry.probability << ", " << entry.degrees;
    EXPECT_NEAR(studentQuantile(1 - entry.probability, entry.degrees), -entry.value, 0.0006) << entry.probability << ", " << entry.degrees;
  }
  EXPECT_NEAR(studentQuantile(0.5, 7), 0, 1e-9);
}

TEST(MeanDifference, IsTheTextbooksTwoSampleInterval) {
  // Means 2 and 5, squares around them 2 + 2, pooled variance 4 / 4 = 1, standard error sqrt(2 / 3), t(0.975, 4) = 2.776.
  const MeanDifference d = meanDifference(std::array{1.0, 2.0, 3.0}, std::array{4.0, 5.0, 6.0}, 0.975);
  EXPECT_DOUBLE_EQ(d.value, 3);
  EXPECT_NEAR(d.low, 3 - 2.776 * std::sqrt(2.0 / 3), 1e-3);
  EXPECT_NEAR(d.high, 3 + 2.776 * std::sqrt(2.0 / 3), 1e-3);
}

TEST(MeanDifference, HoldsTheTrueDifferenceAsOftenAsItSays) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 1);
  int below = 0, above = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> before(3), after(5);
    for (double& x : before) x = noise(random);
    for (double& x : after) x = 0.5 + noise(random);
    const MeanDifference d = meanDifference(before, after, 0.9);
    below += d.low > 0.5;
    above += d.high < 0.5;
  }
  // A tenth on each side, give or take four standard deviations.
  const double deviation = 4 * std::sqrt(kTrials * 0.1 * 0.9);
  EXPECT_NEAR(below, kTrials * 0.1, deviation);
  EXPECT_NEAR(above, kTrials * 0.1, deviation);
}

}  // namespace
}  // namespace pw
