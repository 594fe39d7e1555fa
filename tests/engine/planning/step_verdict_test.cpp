// Steps compared without what ranks wait for each other to reduce gradients.
#include "engine/planning/step_verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace pw {
namespace {

/// A forward and a reduction of two replicas of one rank; the second one's forward takes so long.
Trace stepOf(Ns late) {
  const auto span = [](int rank, SpanKind kind, int microbatch, Bytes bytes, Ns start, Ns end) {
    return Span{Rank(rank), kind, Stage(0), Microbatch(microbatch), Rank(rank), bytes, start, end};
  };
  return {2,
          {span(0, SpanKind::Forward, 0, 0, 0, 10), span(1, SpanKind::Forward, 1, 0, 0, late),
           span(0, SpanKind::ReduceGrad, -1, 8, 10, late + 5), span(1, SpanKind::ReduceGrad, -1, 8, late, late + 5)},
          {}};
}

// Each reduces in 5 once both are there: the first waits 0 and 30.
TEST(StepVerdict, CountsReductionsFromTheLastRankThatBeginsThem) {
  const StepVerdict judged = judgeSteps(stepOf(10), stepOf(40));
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

TEST(StepVerdict, OfARunCutsWhatWasMeasured) {
  RunRecord run;
  run.predicted = stepOf(10);
  const StepVerdict judged = judgeRun(run, stepOf(40));
  EXPECT_EQ(judged.beforeWaits, 0);
  EXPECT_EQ(judged.afterWaits, 30);
  EXPECT_EQ(judged.verdict.comparison.byKind, judgeSteps(stepOf(10), stepOf(40)).verdict.comparison.byKind);
}

}  // namespace
}  // namespace pw
