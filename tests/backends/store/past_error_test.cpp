// How far off earlier predictions were, by the runs of a store.
#include "backends/store/past_error.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

const std::string kHere = "cpu-workstation";

RunSummary summary(const std::string& model, const std::string& schedule, Ns predicted, Ns measured, int steps = 3,
                   const std::string& failure = {}) {
  RunSummary run;
  run.model = model;
  run.schedule = schedule;
  run.predictedStep = predicted;
  run.medianMeasuredStep = measured;
  run.steps = steps;
  run.failure = failure;
  run.facts.costs = CostSource::Measured;
  run.cluster = kHere;
  return run;
}

TEST(PastError, IsTheMedianOverRunsOfTheModelAndSchedule) {
  std::vector<RunSummary> runs{summary("gpt", "1f1b", 100, 110), summary("gpt", "1f1b", 100, 98), summary("gpt", "1f1b", 200, 210),
                               summary("gpt", "gpipe", 100, 190), summary("mlp", "1f1b", 100, 150)};
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b", CostSource::Measured, kHere).value(), 0.05);  // of 0.10, 0.02, 0.05
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "gpipe", CostSource::Measured, kHere).value(), 0.90);
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "zbv", CostSource::Measured, kHere).value(),
                   (0.05 + 0.10) / 2);  // of the model: 0.02, 0.05, 0.10, 0.90
  EXPECT_FALSE(pastError(runs, "bert", "1f1b", CostSource::Measured, kHere).has_value());
  EXPECT_FALSE(pastError({}, "gpt", "1f1b", CostSource::Measured, kHere).has_value());
  for (RunSummary& run : runs) run.facts.synthetic = true;
  EXPECT_FALSE(pastError(runs, "gpt", "1f1b", CostSource::Measured, kHere).has_value()) << "no stage computed anything";
}

TEST(PastError, CountsNoRunThatFailedOrOnlyWarmedUpWhereOthersTell) {
  std::vector<RunSummary> runs{summary("gpt", "1f1b", 100, 150, 1), summary("gpt", "1f1b", 100, 0, 0, "Interrupted"),
                               summary("gpt", "1f1b", 100, 300, 3, "Rank 1 was ended")};
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b", CostSource::Measured, kHere).value(), 0.5) << "nothing but a run of one step tells";
  runs.push_back(summary("gpt", "1f1b", 100, 104));
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b", CostSource::Measured, kHere).value(), 0.04);
}

TEST(PastError, KeepsPredictionsFromEstimatedAndFromMeasuredTimesApart) {
  std::vector<RunSummary> runs{summary("gpt", "1f1b", 100, 900), summary("gpt", "1f1b", 100, 104), summary("gpt", "1f1b", 100, 102)};
  runs[0].facts.costs = CostSource::Estimated;
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b", CostSource::Estimated, kHere).value(), 8);
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b", CostSource::Measured, kHere).value(), 0.03);
  runs.push_back(summary("gpt", "1f1b", 100, 110));
  runs.back().facts.costs.reset();
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b", CostSource::Measured, kHere).value(), 0.03) << "of an older store, which does not say";
}

TEST(PastError, KeepsPredictionsForDifferentClustersApart) {
  std::vector<RunSummary> runs{summary("gpt", "1f1b", 100, 2700), summary("gpt", "1f1b", 100, 104)};
  runs[0].cluster = "h100-nvlink";
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b", CostSource::Measured, kHere).value(), 0.04);
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b", CostSource::Measured, "h100-nvlink").value(), 26);
  EXPECT_FALSE(pastError(runs, "gpt", "1f1b", CostSource::Measured, "").has_value());
}

}  // namespace
}  // namespace pw
