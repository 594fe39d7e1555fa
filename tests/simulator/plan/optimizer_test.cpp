#include "simulator/plan/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/graph_builder.h"

namespace pw {
namespace {

TEST(OptimizerSpec, WarmsUpLinearlyAndThenFallsAsHalfACosine) {
  OptimizerSpec spec;
  spec.learningRate = 0.8;
  EXPECT_EQ(learningRateAt(spec, 0), 0.8);
  EXPECT_EQ(learningRateAt(spec, 1000), 0.8) << "without a decay the rate stays";
  spec.warmupSteps = 4;
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 0), 0.2);  // 0.8 · 1/4
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 2), 0.6);  // 0.8 · 3/4
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 3), 0.8);
  spec.decaySteps = 12;
  spec.finalRate = 0.25;
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 2), 0.6);
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 4), 0.8);  // cos 0 = 1
  // Halfway, cos(π/2) = 0: 0.25 + 0.75 / 2 = 0.625 of 0.8. A quarter in, cos(π/4) = √½.
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 8), 0.5);
  EXPECT_NEAR(learningRateAt(spec, 6), 0.8 * (0.25 + 0.75 * (1 + std::sqrt(0.5)) / 2), 1e-15);
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 12), 0.2);
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 13), 0.2) << "after the last step the rate stays";
}

TEST(OptimizerSpec, ADecayThatEndsWithinTheWarmUpLeavesTheFinalRate) {
  OptimizerSpec spec;
  spec.learningRate = 1;
  spec.warmupSteps = 4;
  spec.decaySteps = 3;
  spec.finalRate = 0.5;
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 3), 1);
  EXPECT_DOUBLE_EQ(learningRateAt(spec, 4), 0.5);
}

TEST(OptimizerSpec, KnowsItsNamesAndItsState) {
  OptimizerSpec spec;
  EXPECT_EQ(parseOptimizer("sgd"), OptimizerSpec::Kind::Sgd);
  EXPECT_EQ(stateCopies(spec), 0);
  spec.momentum = 0.9;
  EXPECT_EQ(stateCopies(spec), 1);
  spec.kind = parseOptimizer("rmsprop");
  EXPECT_EQ(stateNames(spec), (std::vector<std::string>{"square_avg", "momentum_buffer"}));
  spec.momentum = 0;
  EXPECT_EQ(stateNames(spec), (std::vector<std::string>{"square_avg"}));
  for (const char* name : {"adam", "adamw"}) {
    spec.kind = parseOptimizer(name);
    EXPECT_EQ(stateCopies(spec), 2);
  }
  EXPECT_EQ(test::usageErrorOf([] { static_cast<void>(parseOptimizer("lion")); }),
            "Unknown optimizer lion; the known ones are " + optimizerNames(", ") + ".");
  EXPECT_TRUE(optimizerNames(", ").starts_with("sgd, adam, adamw, rmsprop")) << optimizerNames(", ");
}

}  // namespace
}  // namespace pw
