// From a plan back to the settings that lead to it.
#include "engine/planning/plan_settings.h"

#include <gtest/gtest.h>

#include "backends/resources/resources.h"
#include "engine/planning/plan_model.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/plan/planner.h"

namespace pw::test {
namespace {

PlannedModel plannedWith(const Recompute& recompute) {
  PlanOptions options;
  options.models = {PW_SOURCE_DIR "/resources/models/gpt_small.pt2"};
  options.cluster = "cpu-workstation";
  options.ranks = 2;
  options.microbatches = 4;
  options.recompute = recompute;
  return planModel(options, {});
}

TEST(RecomputeOf, IsTheSettingThatThePlanWasMadeWith) {
  for (const Recompute& made : {Recompute(RecomputeNone()), Recompute(RecomputeFull()), Recompute(RecomputeModules{{"blocks"}})}) {
    const PlannedModel planned = plannedWith(made);
    EXPECT_EQ(recomputeOf(planned.plan, planned.graph), made) << wordsOf(made).front();
  }
}

TEST(RecomputeOf, IsNothingForACheckpointOfNoSuchSetting) {
  PlannedModel planned = plannedWith(RecomputeNone());
  StageSpec& stage = planned.plan.partition.stages.front();
  stage.checkpoints = {{stage.begin, NodeId(stage.begin.value + 1)}};
  EXPECT_EQ(recomputeOf(planned.plan, planned.graph), std::nullopt);
}

TEST(GeneratedAs, HasTheChunksOfEveryFamilyThatTrains) {
  for (const Generator& family : generators()) {
    const Shape shape{4, 4 * family.chunks, 16};
    if (!family.trains) continue;
    ASSERT_EQ(family.refusal(shape), std::nullopt) << family.name;
    for (const int replicas : {1, 2}) {
      const auto generated = generatedAs(planRows(generate(family.name, shape), replicas), replicas);
      EXPECT_EQ(generated, (GeneratedRows{family.chunks, {}})) << family.name;
    }
  }
}

TEST(GeneratedAs, FindsTheOrderOfTheRanks) {
  const std::vector<Rank> order{Rank(2), Rank(0), Rank(1)};
  EXPECT_EQ(generatedAs(planRows(generate("interleaved-1f1b", {3, 6, 6}), 1, order), 1), (GeneratedRows{2, order}));
}

TEST(GeneratedAs, IsNothingForRowsThatNoGeneratorMakes) {
  Schedule rows = planRows(generate("interleaved-1f1b", {2, 4, 4}), 1);
  EXPECT_EQ(generatedAs(rows, 2), std::nullopt) << "they sum no gradients";
  std::swap(rows.rows[0][0], rows.rows[0][1]);
  EXPECT_EQ(generatedAs(rows, 1), std::nullopt) << "in another order";
  rows = planRows(generate("interleaved-1f1b", {2, 4, 4}), 1);
  rows.placement.rankOfStage = {Rank(0), Rank(0), Rank(1), Rank(1)};
  EXPECT_EQ(generatedAs(rows, 1), std::nullopt) << "on ranks of no order";
  rows = planRows(generate("1f1b", {2, 2, 4}), 1);
  rows.name = "mine";
  EXPECT_EQ(generatedAs(rows, 1), std::nullopt) << "of another name";
}

TEST(CostSettingsOf, AreTheClusterThatThePlanWasEstimatedFor) {
  PlannedModel planned = plannedWith(RecomputeNone());
  const auto settings = costSettingsOf(planned.plan, planned.graph);
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ(settings->cluster, "cpu-workstation");
  EXPECT_EQ(settings->precision, DType::Unknown);
  EXPECT_TRUE(settings->isEstimated);
  EXPECT_TRUE(settings->isAsEstimated);
  planned.plan.profile.actionOverhead += Ns(1);
  const auto other = costSettingsOf(planned.plan, planned.graph);
  ASSERT_TRUE(other.has_value());
  EXPECT_TRUE(other->isEstimated);
  EXPECT_FALSE(other->isAsEstimated) << "an estimate has other times by now";
}

TEST(CostSettingsOf, HaveThePrecisionAndTheAttentionOfTheEstimate) {
  PlannedModel planned = plannedWith(RecomputeNone());
  planned.plan.profile =
      estimate(planned.graph, planned.plan.microbatchSize, loadCluster("h100-nvlink"), DType::BFloat16, Attention::Unfused);
  const auto settings = costSettingsOf(planned.plan, planned.graph);
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ(settings->cluster, "h100-nvlink");
  EXPECT_EQ(settings->precision, DType::BFloat16);
  EXPECT_EQ(settings->attention, Attention::Unfused);
  EXPECT_TRUE(settings->isAsEstimated);
}

TEST(CostSettingsOf, FindThePresetOfAnOlderPlanInItsHost) {
  PlannedModel planned = plannedWith(RecomputeNone());
  planned.plan.profile.machine.host = "h100-nvlink";
  planned.plan.profile.cluster.clear();
  const auto settings = costSettingsOf(planned.plan, planned.graph);
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ(settings->cluster, "h100-nvlink");
  EXPECT_TRUE(settings->isEstimated);
}

TEST(CostSettingsOf, AreOnlyTheClusterWhereTheTimesWereMeasured) {
  PlannedModel planned = plannedWith(RecomputeNone());
  planned.plan.profile.estimated = false;
  const auto settings = costSettingsOf(planned.plan, planned.graph);
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ(settings->cluster, "cpu-workstation");
  EXPECT_FALSE(settings->isEstimated);
  EXPECT_FALSE(settings->isAsEstimated);
}

TEST(CostSettingsOf, AreNothingWithoutAClusterThatIsFoundHere) {
  PlannedModel planned = plannedWith(RecomputeNone());
  planned.plan.profile.cluster = "no-such-cluster";
  EXPECT_FALSE(costSettingsOf(planned.plan, planned.graph).has_value());
  planned.plan.profile.cluster.clear();
  planned.plan.profile.estimated = false;
  EXPECT_FALSE(costSettingsOf(planned.plan, planned.graph).has_value()) << "measured here";
}

}  // namespace
}  // namespace pw::test
