// Steps compared without what ranks wait for each other to reduce gradients.
#include "simulator/report/step_verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "simulator/report/json.h"
#include "tests/support/reducing_step.h"

namespace pw {
namespace {

using test::reducingStep;

// Each reduces in 5 once both are there: the first waits 0 and 30.
TEST(StepVerdict, CountsReductionsFromTheLastRankThatBeginsThem) {
  const StepVerdict judged = judgeSteps({reducingStep(10)}, {reducingStep(40)});
  EXPECT_EQ(judged.beforeWaits, 0);
  EXPECT_EQ(judged.afterWaits, 30);
  const auto& kinds = judged.verdict.comparison.byKind;
  const auto reduction = std::ranges::find(kinds, std::string("REDUCE_GRAD"), &GroupError::group);
  ASSERT_NE(reduction, kinds.end());
  EXPECT_EQ(reduction->predicted, 2 * 5);
  EXPECT_EQ(reduction->measured, 2 * 5);
  const auto json = nlohmann::json::parse(comparisonJson(judged, "It is slower."));
  EXPECT_EQ(json["predicted_reduction_waits_ns"], 0);
  EXPECT_EQ(json["measured_reduction_waits_ns"], 30);
  EXPECT_EQ(json["matched"], 2);
}

TEST(StepVerdict, LeavesPredictionsAsTheyAre) { EXPECT_EQ(judgeSteps({reducingStep(10)}, {reducingStep(40), std::nullopt}).afterWaits, 0); }

TEST(StepVerdict, SaysWhatWasCutOffWhereAnythingWas) {
  EXPECT_EQ(waitsText("run 3", 0), "");
  EXPECT_EQ(waitsText("run 3", 2'000'000),
            "Before reductions of gradients, ranks of run 3 waited 2.00 ms in all for others to begin them; REDUCE_GRAD is without these "
            "waits.");
}

TEST(StepVerdict, OfOtherSplitsHasNoStagesAndSaysSo) {
  const StepVerdict judged = judgeSteps({reducingStep(10)}, {reducingStep(40)}, Splits::Other);
  EXPECT_TRUE(judged.verdict.comparison.byStage.empty());
  const std::string sentence = verdictText(judged.verdict, "run 1", "run 2");
  EXPECT_TRUE(sentence.ends_with(" Their splits differ, so their stages are not compared.")) << sentence;
  const auto json = nlohmann::json::parse(comparisonJson(judged, sentence));
  EXPECT_EQ(json["same_splits"], false);
  EXPECT_TRUE(json["by_stage"].empty());
}

}  // namespace
}  // namespace pw
