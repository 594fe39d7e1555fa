// Whether two plans cut a model alike.
#include "simulator/plan/model_cut.h"

#include <gtest/gtest.h>

#include <utility>

namespace pw {
namespace {

Partition cutAt(int node) {
  Partition partition;
  partition.stages.resize(2);
  partition.stages[0].end = partition.stages[1].begin = NodeId(node);
  return partition;
}

Plan planOf(std::string model, Partition partition) {
  Plan plan;
  plan.modelName = std::move(model);
  plan.partition = std::move(partition);
  return plan;
}

TEST(ModelCut, IsTheSameWhereStagesBeginAtTheSameNodesOfOneModel) {
  const auto cut = [](const std::string& model, int node) { return cutOf(planOf(model, cutAt(node))); };
  EXPECT_EQ(splitsOf(cut("gpt", 4), cut("gpt", 4)), Splits::Same);
  EXPECT_EQ(splitsOf(cut("gpt", 4), cut("gpt", 5)), Splits::Other);
  EXPECT_EQ(splitsOf(cut("gpt", 4), cut("vit", 4)), Splits::Other);
  EXPECT_EQ(splitsOf(cut("gpt", 4), cutOf(cutAt(4), std::nullopt)), Splits::Same) << "which model is not known";
  EXPECT_EQ(splitsOf(cut("gpt", 4), std::nullopt), Splits::Same) << "of another tool";
  EXPECT_EQ(cutOf(Plan()), std::nullopt) << "without a model";
}

TEST(ModelCut, CountsTheSplitsOfAllReplicas) {
  Plan plan = planOf("gpt", cutAt(4));
  const auto even = cutOf(plan);
  plan.cuts.emplace();
  plan.cuts->replicas = {{cutAt(4), {}, {}}, {cutAt(4), {}, {}}};
  EXPECT_EQ(cutOf(plan), even);
  plan.cuts->replicas[1].partition = cutAt(5);
  EXPECT_EQ(splitsOf(cutOf(plan), even), Splits::Other);
  EXPECT_EQ(splitsOf(cutOf(plan), cutOf(plan)), Splits::Same);
}

}  // namespace
}  // namespace pw
