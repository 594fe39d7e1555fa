// What runs lack in their predictions is found again where it was put in.
#include "simulator/history/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/report/metrics.h"
#include "simulator/step/simulate.h"

namespace pw {
namespace {

constexpr Ns kMs = 1'000'000;
constexpr Ns kOverhead = 20'000;  ///< of each action, in the costs already

CostTable costsOf(int stages) {
  CostTable costs = syntheticTable({.forward = {kMs},
                                    .backward = {2 * kMs},
                                    .backwardInput = {kMs},
                                    .backwardWeight = {kMs},
                                    .latency = 50'000,
                                    .transfer = 100'000,
                                    .overlap = {}},
                                   stages);
  for (StageCost& stage : costs.stages) stage.optimizer = 400'000;
  return costs;
}

/// Whether an action of the four stages sends something: not W, not F of the last stage, not the backward of the first.
bool sends(const Span& span) {
  if (span.kind == SpanKind::BackwardWeight) return false;
  return span.kind == SpanKind::Forward ? span.stage < Stage(3) : span.stage > Stage(0);
}

/// A step as it is measured where running adds `added`: what passes before an action is seen as a pause before it, and what its messages
/// take at its end as one after it.
Trace measuredStep(const Schedule& schedule, const CostTable& costs, const Calibration& added) {
  Trace trace = simulate(schedule, calibrated(costs, added, kOverhead, schedule.placement));
  for (Span& span : trace.spans) {
    if (!isCompute(span.kind)) continue;
    span.start += added.perAction;
    if (sends(span)) span.end -= added.perSend;
  }
  return trace;
}

struct Example {
  Schedule schedule;
  CostTable costs = costsOf(4);
  Trace predicted = simulate(schedule, costs);
  std::vector<Trace> steps;

  [[nodiscard]] PastRun run() const { return {&schedule, &costs, &predicted, steps}; }
};

Example exampleOf(const std::string& name, const Calibration& added, int microbatches = 8) {
  Example example{.schedule = lower(generate(name, {4, 4, microbatches})), .steps = {}};
  for (int step = 0; step < 5; ++step) example.steps.push_back(measuredStep(example.schedule, example.costs, added));
  return example;
}

constexpr Calibration kAdded{
    .forward = 1.25, .backward = 1.5, .optimizer = 2, .perAction = 30'000, .perSend = 60'000, .perMessage = 70'000};

TEST(Calibrate, FindsWhatRunningAdds) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) {
    const Example example = exampleOf(name, kAdded);
    const CalibrationReport report = calibrate(std::vector{example.run()}, kOverhead);
    EXPECT_NEAR(report.calibration.forward, kAdded.forward, 1e-6) << name;
    EXPECT_NEAR(report.calibration.backward, kAdded.backward, 1e-6) << name;
    EXPECT_NEAR(report.calibration.optimizer, kAdded.optimizer, 1e-6) << name;
    EXPECT_EQ(report.calibration.perAction, kAdded.perAction) << name;
    EXPECT_EQ(report.calibration.perSend, kAdded.perSend) << name;
    EXPECT_NEAR(static_cast<double>(report.calibration.perMessage), static_cast<double>(kAdded.perMessage), 1) << name;
    EXPECT_GT(report.errorBefore, 0.3) << name;
    EXPECT_LT(report.errorAfter, 1e-3) << name;
  }
}

TEST(Calibrate, PredictsOtherSchedulesThanItWasFittedTo) {
  const Example fitted = exampleOf("gpipe", kAdded, 4);
  const Calibration calibration = calibrate(std::vector{fitted.run()}, kOverhead).calibration;
  for (const char* name : {"1f1b", "zb-h1", "zb-h2"}) {
    const Example other = exampleOf(name, kAdded, 16);
    const auto predicted = static_cast<double>(
        metricsOf(simulate(other.schedule, calibrated(other.costs, calibration, kOverhead, other.schedule.placement))).step);
    EXPECT_NEAR(predicted / static_cast<double>(metricsOf(other.steps.front()).step), 1, 1e-2) << name;
  }
}

TEST(Calibrate, LeavesRightPredictionsAsTheyAre) {
  const Example example = exampleOf("1f1b", {});
  const CalibrationReport report = calibrate(std::vector{example.run(), example.run()}, kOverhead);
  EXPECT_EQ(report.calibration, Calibration{});
  EXPECT_EQ(report.errorBefore, 0);
  // The prior's two runs at 4 %, and two without error: sqrt(2 · 0.04² / 4).
  EXPECT_EQ(report.uncertainty.runs, 2);
  EXPECT_NEAR(report.uncertainty.deviation, 0.04 / std::sqrt(2.0), 1e-12);
}

TEST(Calibrate, LeavesOutStepsThatWereDisturbed) {
  Example example = exampleOf("1f1b", kAdded);
  Calibration disturbed = kAdded;
  disturbed.forward = 9;
  disturbed.perMessage = 80 * kMs;
  example.steps[3] = measuredStep(example.schedule, example.costs, disturbed);
  const CalibrationReport report = calibrate(std::vector{example.run()}, kOverhead);
  EXPECT_NEAR(report.calibration.forward, kAdded.forward, 1e-6);
  EXPECT_NEAR(static_cast<double>(report.calibration.perMessage), static_cast<double>(kAdded.perMessage), 1);
}

TEST(Calibrate, IsAsUncertainAsRunsDifferFromWhatTheOthersPredict) {
  // Every time of the second run is 1.2 times that of the first; each is predicted by the other alone.
  const Calibration one{.forward = 1, .backward = 1, .optimizer = 1, .perAction = 0, .perSend = 0, .perMessage = 0};
  const Calibration other{.forward = 1.2, .backward = 1.2, .optimizer = 1.2, .perAction = 0, .perSend = 0, .perMessage = 0};
  Example first = exampleOf("gpipe", one), second = exampleOf("gpipe", other);
  for (Example* example : {&first, &second}) {
    for (MessageCost& message : example->costs.messages) message.latency = message.transfer = 0;
    example->predicted = simulate(example->schedule, example->costs);
    for (Trace& step : example->steps)
      step = simulate(example->schedule, calibrated(example->costs, example == &first ? one : other, 0, example->schedule.placement));
  }
  const CalibrationReport report = calibrate(std::vector{first.run(), second.run()}, 0);
  const double a = 0.2, b = 1 - 1 / 1.2;  // 1.2 instead of 1, and 1 instead of 1.2
  EXPECT_NEAR(report.uncertainty.deviation, std::sqrt((2 * 0.04 * 0.04 + a * a + b * b) / 4), 1e-4);
}

}  // namespace
}  // namespace pw
