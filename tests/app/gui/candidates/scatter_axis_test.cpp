#include "app/gui/candidates/scatter_axis.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pw::gui {
namespace {

TEST(ScatterAxis, CoversItsValuesWithTicksAtRoundOnes) {
  std::mt19937_64 random(1);
  for (int run = 0; run < 500; ++run) {
    std::vector<double> values;
    const double scale = std::pow(10.0, static_cast<double>(random() % 12));
    for (std::uint64_t i = 0; i <= random() % 5; ++i) values.push_back(scale * (1 + static_cast<double>(random() % 1000)));
    const ScatterAxis axis = ScatterAxis::over(values);
    EXPECT_GE(axis.from(), 0);
    for (const double value : values) {
      EXPECT_GT(axis.place(value), 0);
      EXPECT_LT(axis.place(value), 1);
    }
    for (const bool bytes : {false, true}) {
      const int most = 2 + static_cast<int>(random() % 9);
      const std::vector<double> ticks = axis.ticks(most, bytes);
      EXPECT_LE(ticks.size(), static_cast<std::size_t>(most));
      EXPECT_GE(ticks.size(), bytes && axis.to() - axis.from() < 4 ? 0U : 2U) << axis.from() << " to " << axis.to() << " in " << most;
      for (std::size_t i = 0; i < ticks.size(); ++i) {
        EXPECT_GE(ticks[i], axis.from());
        EXPECT_LE(ticks[i], axis.to());
        if (i == 0) continue;
        double unit = 1;
        const double range = axis.to() - axis.from();
        while (bytes && range / unit >= 1024) unit *= 1024;
        if (!bytes && range >= 120e9) unit = range >= 7200e9 ? 3600e9 : 60e9;
        if (ticks.size() == 2) {  // may be several distances apart: both have two digits at most
          const double power = std::pow(10.0, std::floor(std::log10((ticks[1] - ticks[0]) / unit) + 1e-6) - 1) * unit;
          for (const double tick : ticks) EXPECT_NEAR(std::remainder(tick, power), 0, power * 1e-3) << tick << " in steps of " << power;
          continue;
        }
        const double step = (ticks[i] - ticks[i - 1]) / unit;
        const double digits = step / std::pow(10.0, std::floor(std::log10(step) + 1e-6));
        EXPECT_TRUE(std::abs(digits - 1) < 1e-3 || std::abs(digits - 2) < 1e-3 || std::abs(digits - 5) < 1e-3) << step;
      }
    }
  }
  EXPECT_GT(ScatterAxis::over({5}).to(), 5);
  EXPECT_EQ(ScatterAxis::over({}).to(), 1);
  EXPECT_EQ(ScatterAxis::over({150e9, 950e9}).ticks(3, false), (std::vector<double>{300e9, 600e9, 900e9})) << "5, 10 and 15 minutes";
}

}  // namespace
}  // namespace pw::gui
