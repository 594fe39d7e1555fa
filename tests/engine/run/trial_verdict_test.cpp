// What a trial adds to the verdict that the operators' rules give.
#include "engine/run/trial_verdict.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

SplitVerdict by(Sameness same) { return {same, false, "", false, "ruled"}; }

/// Of one and two microbatches, whose gradients agree or not.
Trial trialThat(bool agrees) {
  Trial trial;
  trial.steps.resize(2);
  trial.steps.back().microbatches = 2;
  trial.steps.back().gradients.equal = agrees;
  return trial;
}

TEST(WithTrials, LeavesAVerdictWithoutTrialsAsItIs) {
  EXPECT_EQ(withTrials(by(Sameness::Unknown), {}), by(Sameness::Unknown));
  Trial refused;
  refused.refused = "no data";
  EXPECT_EQ(withTrials(by(Sameness::Yes), {refused}), by(Sameness::Yes));
}

TEST(WithTrials, SaysWhereATrialContradictsTheRules) {
  EXPECT_EQ(withTrials(by(Sameness::Yes), {trialThat(true)}).sentence, "ruled; tried, too");
  const SplitVerdict wrong = withTrials(by(Sameness::Yes), {trialThat(false)});
  EXPECT_TRUE(wrong.disagrees);
  EXPECT_EQ(wrong.same, Sameness::No);
  Trial draws = trialThat(false);
  draws.random = {"bernoulli"};
  EXPECT_EQ(withTrials(by(Sameness::Yes), {draws}), by(Sameness::Yes)) << "random draws explain it";
}

TEST(WithTrials, AnswersNoWhereTheRulesWereOpenAndTheTrialDiffers) {
  EXPECT_EQ(withTrials(by(Sameness::Unknown), {trialThat(false)}).same, Sameness::No);
  EXPECT_EQ(withTrials(by(Sameness::Unknown), {trialThat(true)}).same, Sameness::Unknown) << "one batch proves nothing";
}

TEST(WithTrials, TakesTheTrialThatWeighedNoMicrobatches) {
  Trial weighed = trialThat(true);
  weighed.lossCount = "auto";
  EXPECT_EQ(withTrials(by(Sameness::Unknown), {weighed, trialThat(false)}).same, Sameness::No);
}

}  // namespace
}  // namespace pw
