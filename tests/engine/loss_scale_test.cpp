#include "engine/loss_scale.h"
#include "backends/messages/in_memory_communicator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/number_stage.h"

namespace pw {
namespace {

using test::NumberJob;

TEST(LossScale, DoublesAfter2000GoodStepsInARow) {
  LossScale scale;
  EXPECT_EQ(scale.value(), 65536);
  for (int i = 0; i < 1999; ++i) scale.update(false);
  EXPECT_EQ(scale.value(), 65536);
  scale.update(false);
  EXPECT_EQ(scale.value(), 131072);
  for (int i = 0; i < 1999; ++i) scale.update(false);
  scale.update(true);
  EXPECT_EQ(scale.value(), 65536);
  for (int i = 0; i < 1999; ++i) scale.update(false);
  EXPECT_EQ(scale.value(), 65536) << "the count begins anew after an overflow";
}

TEST(LossScale, GoesOnCountingWhereItWasLeft) {
  LossScale scale;
  for (int i = 0; i < 1500; ++i) scale.update(false);
  LossScale resumed(scale.value(), scale.goodSteps());
  for (int i = 0; i < 499; ++i) resumed.update(false);
  EXPECT_EQ(resumed.value(), 65536);
  resumed.update(false);
  EXPECT_EQ(resumed.value(), 131072);
  EXPECT_EQ(resumed.goodSteps(), 0);
}

TEST(LossScale, HalvesAtEachOverflowButNeverBelow1) {
  LossScale scale(4);
  for (const double expected : {2.0, 1.0, 1.0}) {
    scale.update(true);
    EXPECT_EQ(scale.value(), expected);
  }
}

TEST(LossScale, StaysANumber) {
  LossScale scale(std::ldexp(1.0, 1023));
  for (int i = 0; i < 2000; ++i) scale.update(false);
  EXPECT_EQ(scale.value(), std::ldexp(1.0, 1023));
}

struct Trained {
  NumberJob job;
  std::vector<std::vector<StepLog>> logs;   ///< by step and rank
  std::vector<std::optional<double>> next;  ///< scale, by rank
};

/// Gradients of the last stage of the last rank overflow above `largest`.
Trained train(const Plan& plan, int steps, const ExecutorOptions& options, double largest) {
  Trained trained{test::prepareJob(plan), {}, {}};
  trained.job.stages.back().rbegin()->second->largest = largest;
  auto communicators = inMemoryCommunicators(worldSize(plan), std::chrono::seconds(20));
  trained.logs.assign(static_cast<std::size_t>(steps), std::vector<StepLog>(communicators.size()));
  trained.next.resize(communicators.size());
  test::runJob(trained.job, plan, communicators, options, [&](Executor& executor, std::size_t r) {
    for (int s = 0; s < steps; ++s) trained.logs[static_cast<std::size_t>(s)][r] = executor.step(s, {});
    if (const auto scale = executor.lossScale()) trained.next[r] = scale->value();
    return trained.logs.back()[r];
  });
  EXPECT_EQ(trained.job.firstError(), "");
  return trained;
}

void expectSameValues(const NumberJob& a, const NumberJob& b) {
  for (std::size_t r = 0; r < a.stages.size(); ++r) {
    for (const auto& [s, stage] : a.stages[r])
      EXPECT_EQ(stage->values(0), b.stages[r].at(s)->values(0)) << "stage " << s.value << " on rank " << r;
  }
}

/// Two replicas of two stages with shared optimizer state or not; 3 microbatches each.
class ScalingLosses : public testing::TestWithParam<bool> {
 protected:
  const Plan plan_ = test::chainPlan(withReductions(lower(generate("1f1b", {2, 2, 3}))), {}, 2);
  /// A parameter of the last stage has a gradient of 1 to 5 for each microbatch, 3 at each replica: 15 times the scale at most.
  static constexpr double kFitsAtAQuarter = 15 * 65536.0 / 4;
  ExecutorOptions options(bool scaled) const { return {.shardOptimizer = GetParam(), .scaleLoss = scaled}; }
};
INSTANTIATE_TEST_SUITE_P(Optimizer, ScalingLosses, testing::Bool(), [](const auto& test) { return test.param ? "sharded" : "whole"; });

TEST_P(ScalingLosses, ChangesNoUpdateWhereNothingOverflows) {
  const Trained scaled = train(plan_, 2, options(true), std::numeric_limits<double>::infinity()),
                plain = train(plan_, 2, options(false), std::numeric_limits<double>::infinity());
  expectSameValues(scaled.job, plain.job);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(scaled.logs[1][r].loss, plain.logs[1][r].loss);
    EXPECT_EQ(scaled.logs[1][r].lossScale, 65536);
    EXPECT_EQ(plain.logs[1][r].lossScale, std::nullopt);
    EXPECT_EQ(plain.next[r], std::nullopt);
    EXPECT_FALSE(scaled.logs[1][r].skipped);
    EXPECT_EQ(scaled.logs[1][r].gradientNorm, std::nullopt) << "it was not requested";
  }
}

TEST_P(ScalingLosses, SkipsTheUpdateOnAllRanksUntilTheGradientsFit) {
  const Trained scaled = train(plan_, 3, options(true), kFitsAtAQuarter),
                once = train(plan_, 1, options(false), std::numeric_limits<double>::infinity());
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_TRUE(scaled.logs[0][r].skipped && scaled.logs[1][r].skipped) << "rank " << r << " changed what others did not";
    EXPECT_FALSE(scaled.logs[2][r].skipped);
    EXPECT_EQ(scaled.logs[0][r].lossScale, 65536);
    EXPECT_EQ(scaled.logs[1][r].lossScale, 32768);
    EXPECT_EQ(scaled.logs[2][r].lossScale, 16384);
    EXPECT_EQ(scaled.next[r], 16384);
    for (std::size_t s = 0; s < 3; ++s) {
      const auto updates = std::ranges::count(scaled.logs[s][r].spans, SpanKind::Optimizer, &Span::kind);
      EXPECT_EQ(updates, s == 2 ? 1 : 0);
    }
  }
  expectSameValues(scaled.job, once.job);
}

TEST_P(ScalingLosses, ClipsAndLogsTheNormOfTheGradientsThemselves) {
  ExecutorOptions scaled = options(true), plain = options(false);
  scaled.clipNorm = plain.clipNorm = 0.5;
  const Trained a = train(plan_, 1, scaled, std::numeric_limits<double>::infinity()),
                b = train(plan_, 1, plain, std::numeric_limits<double>::infinity());
  // Gradients of six microbatches at stages 0 and 1: 12 · i and 6 · i for i = 1 … 5, whose squares sum to 55.
  EXPECT_DOUBLE_EQ(a.logs[0][0].gradientNorm.value_or(0), std::sqrt((144 + 36) * 55.0));
  EXPECT_EQ(a.logs[0][0].gradientNorm, b.logs[0][0].gradientNorm);
  expectSameValues(a.job, b.job);
}

TEST_P(ScalingLosses, GoesOnWithTheScaleItIsGiven) {
  ExecutorOptions resumed = options(true);
  resumed.lossScale = LossScale(1024);
  const Trained trained = train(plan_, 1, resumed, kFitsAtAQuarter);
  EXPECT_EQ(trained.logs[0][0].lossScale, 1024);
  EXPECT_FALSE(trained.logs[0][0].skipped);
}

}  // namespace
}  // namespace pw
