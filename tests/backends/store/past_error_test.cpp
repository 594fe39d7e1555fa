// How far off earlier predictions were, by the runs of a store.
#include "backends/store/past_error.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

RunSummary summary(const std::string& model, const std::string& schedule, Ns predicted, Ns measured, int steps = 3,
                   const std::string& failure = {}) {
  RunSummary run;
  run.model = model;
  run.schedule = schedule;
  run.predictedStep = predicted;
  run.medianMeasuredStep = measured;
  run.steps = steps;
  run.failure = failure;
  return run;
}

TEST(PastError, IsTheMedianOverRunsOfTheModelAndSchedule) {
  std::vector<RunSummary> runs{summary("gpt", "1f1b", 100, 110), summary("gpt", "1f1b", 100, 98), summary("gpt", "1f1b", 200, 210),
                               summary("gpt", "gpipe", 100, 190), summary("mlp", "1f1b", 100, 150)};
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b").value(), 0.05);  // of 0.10, 0.02, 0.05
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "gpipe").value(), 0.90);
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "zbv").value(), (0.05 + 0.10) / 2);  // of the model: 0.02, 0.05, 0.10, 0.90
  EXPECT_FALSE(pastError(runs, "bert", "1f1b").has_value());
  EXPECT_FALSE(pastError({}, "gpt", "1f1b").has_value());
  for (RunSummary& run : runs) run.facts.synthetic = true;
  EXPECT_FALSE(pastError(runs, "gpt", "1f1b").has_value()) << "no stage computed anything";
}

TEST(PastError, CountsNoRunThatFailedOrOnlyWarmedUpWhereOthersTell) {
  std::vector<RunSummary> runs{summary("gpt", "1f1b", 100, 150, 1), summary("gpt", "1f1b", 100, 0, 0, "Interrupted"),
                               summary("gpt", "1f1b", 100, 300, 3, "Rank 1 was ended")};
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b").value(), 0.5) << "nothing but a run of one step tells";
  runs.push_back(summary("gpt", "1f1b", 100, 104));
  EXPECT_DOUBLE_EQ(pastError(runs, "gpt", "1f1b").value(), 0.04);
}

}  // namespace
}  // namespace pw
