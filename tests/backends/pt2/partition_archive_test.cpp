#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backends/pt2/read.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/join.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/plan.h"
#include "simulator/plan/plan_fits.h"
#include "tests/support/partition_check.h"

namespace pw {
namespace {

ModelGraph sample(const std::string& name) { return readPt2(std::string(PW_SOURCE_DIR) + "/resources/models/" + name + ".pt2"); }

const std::vector<std::string> kSamples{"example_code", "gpt_small", "gpt_small_meta",  "gpt_split",  "hf_bert",
                                        "hf_gpt2",      "hf_llama",  "resnet18_narrow", "two_part_a", "vit_small"};

Bindings bindingsOf(const ModelGraph& graph) { return bindBatch(graph, exportedBatch(graph)); }

Partition cutAt(const ModelGraph& graph, const std::vector<NodeId>& begins, const Profile* costs = nullptr) {
  return cutGraph(graph, begins, bindingsOf(graph), costs);
}

/// Costs that make any computation dearer than any message, where `slow`, or free.
Profile profileOf(const ModelGraph& graph, bool slow) {
  Profile profile;
  profile.microbatch = exportedBatch(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) profile.nodes.push_back({slow ? Ns{1'000'000'000} : Ns{0}, 0, 0, 0, 0, 0});
  profile.topology.sameNode = {1, 1e9};
  return profile;
}

TEST(PartitionOfExampleCode, ReplicatesWhatTwoStagesReadAndSkipsAStage) {
  const ModelGraph graph = sample("example_code");
  ASSERT_EQ(graph.splitMarkers.size(), 2U);
  const Partition partition = cutAt(graph, graph.splitMarkers);
  const std::vector<Stage> early{Stage(0), Stage(1)}, late{Stage(1), Stage(2)};
  std::vector<std::pair<std::string, std::vector<Stage>>> shared;
  for (const SharedParameter& r : partition.shared) shared.emplace_back(r.name, r.stages);
  std::sort(shared.begin(), shared.end());
  EXPECT_EQ(shared,
            (std::vector<std::pair<std::string, std::vector<Stage>>>{{"lin.bias", late}, {"lin.weight", late}, {"mm_param", early}}));
  EXPECT_TRUE(std::any_of(partition.transfers.begin(), partition.transfers.end(),
                          [](const Transfer& t) { return t.from == Stage(0) && t.to == Stage(2) && t.gradient; }));
  for (const Transfer& t : partition.transfers) EXPECT_EQ(t.bytes, exportedBatch(graph) * 512 * 4) << "[batch, 512] floats";
}

TEST(PartitionOfGpt2, KeepsTheTiedEmbeddingInTheFirstAndLastStage) {
  const ModelGraph graph = sample("hf_gpt2");
  const Partition partition = cutAt(graph, {findSplit(graph, "transformer.h.1"), findSplit(graph, "transformer.ln_f")});
  ASSERT_EQ(partition.shared.size(), 1U);
  const SharedParameter& tied = partition.shared[0];
  EXPECT_TRUE(tied.name == "transformer.wte.weight" || tied.name == "lm_head.weight") << tied.name;
  EXPECT_EQ(tied.stages, (std::vector<Stage>{Stage(0), Stage(2)}));
}

TEST(PartitionOfBert, SendsActivationsOnlyAndComputesMasksAgain) {
  const ModelGraph graph = sample("hf_bert");
  const NodeId middle = findSplit(graph, "bert.encoder.layer.1");
  for (const bool slow : {false, true}) {
    const Profile costs = profileOf(graph, slow);
    const Partition partition = cutAt(graph, {middle}, &costs);
    int activations = 0;
    for (const Transfer& t : partition.transfers) {
      EXPECT_TRUE(!t.gradient || graph.value(t.value).tensor->dtype == DType::Float32);
      activations += t.gradient ? 1 : 0;
    }
    EXPECT_EQ(activations, 1) << "the hidden state";
    EXPECT_TRUE(slow || partition.transfers.size() == 1U) << "the mask is computed again";
  }
}

TEST(PartitionOfLlama, ComputesTheRotaryEmbeddingAgainUnlessItIsSlow) {
  const ModelGraph graph = sample("hf_llama");
  const NodeId middle = findSplit(graph, "model.layers.2");
  const auto isRotary = [&](NodeId n) {
    const auto& modules = graph.node(n).modules;
    return std::any_of(modules.begin(), modules.end(), [](const ModuleFrame& f) { return f.path == "model.rotary_emb"; });
  };
  const Partition again = cutAt(graph, {middle});
  EXPECT_TRUE(std::any_of(again.stages[1].recomputed.begin(), again.stages[1].recomputed.end(), isRotary));
  EXPECT_EQ(again.transfers.size(), 1U) << "the hidden state";
  const Profile slow = profileOf(graph, true);
  const Partition sent = cutAt(graph, {middle}, &slow);
  EXPECT_TRUE(sent.stages[1].recomputed.empty());
  int rotary = 0;
  for (const Transfer& t : sent.transfers) {
    if (!isRotary(graph.value(t.value).producer)) continue;
    ++rotary;
    EXPECT_FALSE(t.gradient);
  }
  EXPECT_EQ(rotary, 2) << "cosine and sine";
}

TEST(PartitionOfEverySample, IsPossibleAtEverySplitPoint) {
  for (const std::string& name : kSamples) {
    const ModelGraph graph = sample(name);
    const Profile slow = profileOf(graph, true);
    const auto points = splitPoints(graph, bindingsOf(graph));
    EXPECT_GT(points.size(), 3U) << name;
    for (const SplitPoint& point : points) {
      const std::string where = name + " at " + point.name;
      EXPECT_EQ(findSplit(graph, point.name), point.begin) << where;
      const Partition partition = cutAt(graph, {point.begin});
      SCOPED_TRACE(where);
      test::expectEveryReadAvailable(graph, partition);
      test::expectEveryReadAvailable(graph, cutAt(graph, {point.begin}, &slow));
      Bytes bytes = 0;
      for (const Transfer& t : partition.transfers) bytes += t.bytes;
      EXPECT_EQ(bytes, point.crossing) << where;
      EXPECT_EQ(static_cast<int>(partition.transfers.size()), point.values) << where;
    }
  }
}

TEST(PartitionOfEverySample, ChangesNothingInPlaceThatKeepsStagesTogether) {
  for (const std::string& name : kSamples) {
    const ModelGraph graph = sample(name);
    EXPECT_TRUE(keptTogether(graph).empty()) << name << " changes nothing in place that is read under an older name";
  }
}

TEST(PartitionOfEverySample, GivesPlansThatComeBackAndFit) {
  for (const std::string& name : kSamples) {
    const ModelGraph graph = sample(name);
    Plan plan;
    plan.modelFiles = graph.files;
    plan.modelName = graph.name;
    plan.microbatchSize = exportedBatch(graph);
    plan.batch = 4 * plan.microbatchSize;
    plan.profile = profileOf(graph, true);
    const std::vector<NodeId> begins = balancedSplits(graph, plan.profile, 3, Balance::Time);
    plan.partition = cutAt(graph, begins, &plan.profile);
    plan.splitNames.resize(begins.size(), "somewhere");
    plan.schedule = lower(generate("1f1b", {3, 3, 4}));
    plan.costs = costTable(graph, plan.partition, plan.profile, plan.schedule.placement);
    EXPECT_EQ(parsePlan(toJson(plan), "plan.json"), plan) << name;
    EXPECT_NO_THROW(requireFits(plan, graph)) << name;
    EXPECT_THROW(requireFits(plan, sample(name == "vit_small" ? "hf_bert" : "vit_small")), UsageError) << name;
  }
}

TEST(BalanceByLayers, GivesEachStageTheSameNumberOfWholeBlocks) {
  for (const auto& [name, block] :
       std::vector<std::pair<std::string, std::string>>{{"hf_llama", "model.layers.2"}, {"gpt_small", "blocks.2"}}) {
    const ModelGraph graph = sample(name);  // of four blocks
    EXPECT_EQ(balancedSplits(graph, profileOf(graph, false), 2, Balance::Layers), std::vector<NodeId>{findSplit(graph, block)}) << name;
  }
}

TEST(PartitionOfTwoParts, SplitsAtTheBorderBetweenThem) {
  const ModelGraph graph = joinGraphs({sample("two_part_a"), sample("two_part_b")});
  ASSERT_EQ(graph.splitMarkers.size(), 1U);
  const Partition partition = cutAt(graph, graph.splitMarkers);
  test::expectEveryReadAvailable(graph, partition);
  EXPECT_EQ(partition.stages[0].parameters.size() + partition.stages[1].parameters.size(), graph.parameters.size());
}

}  // namespace
}  // namespace pw
