// What a comparison says of a prediction: figures and sentences.
#include "simulator/report/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/report/compare.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw {
namespace {

constexpr Ns kMs = 1'000'000;

/// 1F1B on two ranks at forward 1 ms, backward 2 ms.
Schedule rows() { return lower(generate("1f1b", {2, 2, 4})); }
CostTable costs() {
  return syntheticTable(
      {.forward = {kMs}, .backward = {2 * kMs}, .backwardInput = {}, .backwardWeight = {}, .latency = 0, .transfer = 0, .overlap = {}}, 2);
}

Trace predictedTrace() { return simulate(rows(), costs()); }

/// The same with every B of stage 1 longer by so much, all else as the simulator then has it.
Trace slowerTrace(Ns more) {
  CostTable table = costs();
  table.stages[1].backward += more;
  return simulate(rows(), table);
}

TEST(Ranked, PutsTheLargestContributionFirstAndMessagesLast) {
  const Comparison c = compare(predictedTrace(), slowerTrace(kMs));
  for (const auto* groups : {&c.byKind, &c.byStage, &c.byRank, &c.byCause}) {
    const std::vector<GroupError> order = sortedByContribution(*groups);
    ASSERT_EQ(order.size(), groups->size());
    EXPECT_TRUE(std::ranges::is_permutation(order, *groups));
    for (std::size_t i = 1; i < order.size(); ++i) {
      EXPECT_GE(order[i - 1].contribution, order[i].contribution);
      if (order[i - 1].contribution == order[i].contribution) {
        EXPECT_LT(std::ranges::find(*groups, order[i - 1]), std::ranges::find(*groups, order[i])) << "equal ones stay as they stood";
      }
    }
  }
  EXPECT_EQ(sortedByContribution(c.byStage).front().group, "stage 1");
  EXPECT_EQ(sortedByContribution(c.byStage).front().contribution, 4 * kMs);  // four microbatches, 1 ms each
}

TEST(MainCause, IsTheKindAndStageWhoseTimesDifferMost) {
  const GroupError cause = mainCause(compare(predictedTrace(), slowerTrace(kMs))).value();
  EXPECT_EQ(cause.group, "B of stage 1");
  EXPECT_EQ(cause.predicted, 4 * 2 * kMs);
  EXPECT_EQ(cause.measured, 4 * 3 * kMs);
  EXPECT_DOUBLE_EQ(cause.durationError, 0.5);
  EXPECT_FALSE(mainCause(compare(predictedTrace(), predictedTrace())).has_value());
}

TEST(MainCause, IsNeverAWaitWhichFollowsFromOthers) {
  Trace later = predictedTrace();
  later.spans.push_back({Rank(0), SpanKind::WaitBackward, Stage(0), Microbatch(0), Rank(0), 0, 0, 100 * kMs});
  normalize(later);
  EXPECT_FALSE(mainCause(compare(predictedTrace(), later)).has_value());
}

TEST(MainCause, OfPlansWithOtherStagesIsAKindSinceTheirStagesAreOtherWork) {
  const auto planned = [](int ranks) {  // the same 12 ms of forward and 24 of backward for a microbatch
    CostTable table = syntheticTable({.forward = {Ns(12 * kMs / ranks)},
                                      .backward = {Ns(24 * kMs / ranks)},
                                      .backwardInput = {},
                                      .backwardWeight = {},
                                      .latency = 0,
                                      .transfer = 0,
                                      .overlap = {}},
                                     ranks);
    table.stages.back().backward += kMs;
    return simulate(lower(generate("1f1b", {ranks, ranks, 4})), table);
  };
  const Comparison two = compare(planned(2), planned(4));
  EXPECT_FALSE(mainCause(two).has_value()) << mainCause(two).value().group << ": what all stages compute together is the same";
  EXPECT_EQ(verdictText(judge(planned(2), planned(4)), "plan A", "plan B", Happened::No).find("stage"), std::string::npos);
}

TEST(Verdict, SaysHowFarOffThePredictionWasAndWhereItComesFrom) {
  const Trace predicted = predictedTrace(), measured = slowerTrace(kMs);
  const Verdict verdict = judge(predicted, measured);
  // (M + R − 1) · 3 ms; with stage 1 the slower one: its 4 · (1 + 3) ms, and before it F, after it B of stage 0.
  ASSERT_EQ(verdict.comparison.predictedMakespan, 15 * kMs);
  ASSERT_EQ(verdict.comparison.measuredMakespan, 19 * kMs);
  EXPECT_EQ(verdictText(verdict), "Measured 26.7 % slower than predicted (19.0 ms, not 15.0 ms); most of it: B of stage 1, +4.00 ms.");
  EXPECT_EQ(verdictText(judge(measured, predicted)),
            "Measured 21.1 % faster than predicted (15.0 ms, not 19.0 ms); most of it: B of stage 1, −4.00 ms.");
  EXPECT_EQ(verdictText(judge(predicted, predicted)), "Measured as predicted (15.0 ms).");
  Trace later = predicted;  // by a microsecond beside computing, which needs no explanation
  for (Span& span : later.spans) {
    if (span.end == 15 * kMs) span.start += 1000, span.end += 1000;
  }
  EXPECT_EQ(verdictText(judge(predicted, later, 15 * kMs)), "Measured as predicted (15.0 ms).");
  EXPECT_EQ(verdictText(verdict, "run 3", "run 5"),
            "Run 5 was 26.7 % slower than run 3 (19.0 ms, not 15.0 ms); most of it: B of stage 1, +4.00 ms.");
}

TEST(Verdict, OfOtherSplitsBlamesNoStage) {
  const Verdict verdict = judge(predictedTrace(), slowerTrace(kMs), {}, Splits::Other);
  EXPECT_TRUE(verdict.comparison.byStage.empty());
  EXPECT_EQ(verdictText(verdict, "run 3", "run 5"),
            "Run 5 was 26.7 % slower than run 3 (19.0 ms, not 15.0 ms); most of it: B, +4.00 ms. Their splits differ, so their stages are "
            "not compared.");
}

/// With slow messages 1F1B waits where GPipe does not; that a backward takes 200 ns more is not why.
TEST(Verdict, NamesNoCauseThatIsNothingBesideTheDifference) {
  CostTable table = syntheticTable(
      {.forward = {kMs}, .backward = {2 * kMs}, .backwardInput = {}, .backwardWeight = {}, .latency = kMs, .transfer = 0, .overlap = {}},
      2);
  const Trace eager = simulate(lower(generate("gpipe", {2, 2, 4})), table);
  table.stages[1].backward += 50;
  const Verdict verdict = judge(eager, simulate(lower(generate("1f1b", {2, 2, 4})), table));
  ASSERT_GT(verdict.comparison.makespanError, 0.05);
  ASSERT_TRUE(mainCause(verdict.comparison).has_value());
  EXPECT_FALSE(verdict.main.has_value()) << verdict.main->group;
  EXPECT_EQ(verdictText(verdict).find(';'), std::string::npos) << verdictText(verdict);
}

TEST(Verdict, NamesWhatGoesOnBesideComputingWhereThatIsMore) {
  // Every action takes as long as predicted, but begins later by a fifth of its time.
  Trace measured = predictedTrace();
  for (Span& span : measured.spans) {
    const Ns late = span.start / 5;
    span.start += late;
    span.end += late;
  }
  const Verdict verdict = judge(predictedTrace(), measured, replayedMakespan(rows(), costs(), measured));
  EXPECT_EQ(verdict.replayed, 15 * kMs);
  // The last action, B of 2 ms, then begins at 13 · 1.2 ms.
  EXPECT_EQ(
      verdictText(verdict),
      "Measured 17.3 % slower than predicted (17.6 ms, not 15.0 ms); most of it beside computing, in messages and the engine: +2.60 ms.");
}

TEST(Verdict, DoesNotBlameAGroupThatOthersMakeUpFor) {
  // Stage 0 is quicker by nearly as much as stage 1 is slower: 4 · 1 ms and 4 · 1.01 ms.
  CostTable table = costs();
  table.stages[0].backward -= kMs;
  table.stages[1].backward += kMs + 10'000;
  const std::string words = verdictText(judge(predictedTrace(), simulate(rows(), table)));
  EXPECT_TRUE(words.find("; largest difference: B of stage 1, +4.04 ms.") != std::string::npos) << words;
}

TEST(Verdict, CountsTimesWhereAPercentageWouldHaveThreeDigits) {
  CostTable table = costs();
  for (StageCost& stage : table.stages) {
    stage.forward *= 3;
    stage.backward *= 3;
  }
  EXPECT_TRUE(verdictText(judge(predictedTrace(), simulate(rows(), table)))
                  .starts_with("Measured 3.0 times as long as predicted (45.0 ms, not 15.0 ms); most of it: B of stage 0, +16.0 ms"));
}

TEST(Verdict, OfAWholeAndASplitBackwardSaysHowTheyAreMatched) {
  CostTable table = costs();
  for (StageCost& stage : table.stages) stage.backwardInput = kMs, stage.backwardWeight = 2 * kMs;  // 1 ms more than B
  const Trace split = simulate(generate("zb-h1", {2, 2, 4}), table), whole = predictedTrace();
  EXPECT_EQ(mainCause(compare(whole, split)).value().group, "B (I + W) of stage 0");
  EXPECT_EQ(mainCause(compare(whole, split)).value().contribution, 4 * (1 + 2 - 2) * kMs);
  const std::string words = verdictText(judge(whole, split), "plan A", "plan B", Happened::No);
  EXPECT_TRUE(
      words.ends_with(" 8 whole backwards (B) are matched with the other's input gradients (I), and their times compared with I + W."))
      << words;
}

TEST(Verdict, OfTwoPredictionsIsNotInThePast) {
  const Trace predicted = predictedTrace(), slower = slowerTrace(kMs);
  EXPECT_EQ(verdictText(judge(predicted, slower), "plan A", "plan B", Happened::No),
            "Plan B is 26.7 % slower than plan A (19.0 ms, not 15.0 ms); most of it: B of stage 1, +4.00 ms.");
  EXPECT_EQ(verdictText(judge(predicted, predicted), "plan A", "plan B", Happened::No), "Plan B takes as long as plan A (15.0 ms).");
}

TEST(Verdict, CountsActionsThatOneOfTwoRunsLacks) {
  const Trace other = simulate(lower(generate("1f1b", {2, 2, 3})), costs());
  const std::string words = verdictText(judge(predictedTrace(), other), "run 1", "run 2");
  EXPECT_TRUE(words.ends_with(" 4 actions are in one of them only.")) << words;  // F and B of one microbatch on two ranks
}

}  // namespace
}  // namespace pw
