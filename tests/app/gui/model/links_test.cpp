#include "app/gui/model/parts/links.h"

#include <algorithm>

#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

struct Cut {
  Cut(const std::string& model, const std::vector<std::string>& names) : sample(model), readers(*sample.graph) {
    std::vector<NodeId> begins;
    for (const std::string& name : names) begins.push_back(sample.begin(name));
    partition = cutGraph(*sample.graph, begins, sample.bindings, nullptr);
    for (std::size_t s = 0; s <= begins.size(); ++s) wiring.rankOfStage.emplace_back(s);
    wiring.topology.sameNode = {1000, 1e9};  // 1 µs, and 1 byte per ns
  }
  [[nodiscard]] std::vector<Arc> arcs(ArcKind kind) const {
    std::vector<Arc> list = arcsOf(*sample.graph, readers, partition, {}, wiring);
    std::erase_if(list, [&](const Arc& a) { return a.kind != kind; });
    return list;
  }

  SampleModel sample;
  Readers readers;
  Partition partition;
  Wiring wiring;
};

TEST(Links, ASkipConnectionIsATransferPastAStage) {
  // Both splits inside a block: its input goes past conv2 to the sum after it.
  const Cut cut("resnet18_narrow", {"layer1.0.conv2", "layer1.0.bn2", "layer2"});
  const std::vector<Arc> arcs = cut.arcs(ArcKind::Sent);
  std::vector<const Transfer*> skips;
  for (const Transfer& t : cut.partition.transfers) {
    if (t.to.value > t.from.value + 1) skips.push_back(&t);
  }
  ASSERT_FALSE(skips.empty());
  ASSERT_EQ(arcs.size(), skips.size());
  for (std::size_t a = 0; a < arcs.size(); ++a) {
    EXPECT_EQ(arcs[a].values, std::vector<ValueId>{skips[a]->value});
    EXPECT_EQ(arcs[a].fromStage, skips[a]->from);
    EXPECT_EQ(arcs[a].toStage, skips[a]->to);
    EXPECT_EQ(arcs[a].from, cut.sample.graph->value(skips[a]->value).producer);
    EXPECT_GE(arcs[a].to, cut.partition.stages[2].begin);
    EXPECT_LT(arcs[a].to, cut.partition.stages[2].end);
    EXPECT_TRUE(arcs[a].text.contains("directly")) << arcs[a].text.toStdString();
    EXPECT_TRUE(arcs[a].text.contains("gradient back"));
  }
  EXPECT_TRUE(cut.arcs(ArcKind::Shared).empty());
}

TEST(Links, OnOneRankNothingOfASkipIsSent) {
  Cut cut("resnet18_narrow", {"layer1.0.conv2", "layer1.0.bn2"});
  cut.wiring.rankOfStage = {Rank(0), Rank(1), Rank(0)};
  const std::vector<Arc> arcs = cut.arcs(ArcKind::Sent);
  ASSERT_FALSE(arcs.empty());
  EXPECT_TRUE(arcs.front().text.contains("nothing is sent")) << arcs.front().text.toStdString();
}

TEST(Links, ATiedParameterJoinsItsReadersAndSaysHowItIsKeptEqual) {
  Cut cut("hf_gpt2", {"transformer.h.1", "transformer.h.2"});
  std::vector<Arc> arcs = cut.arcs(ArcKind::Shared);
  ASSERT_EQ(cut.partition.shared.size(), 1U);
  ASSERT_EQ(arcs.size(), 1U);
  EXPECT_EQ(arcs[0].from, cut.sample.tree.row(cut.sample.row("transformer.wte")).firstNode);
  EXPECT_EQ(arcs[0].to, cut.sample.begin("lm_head"));
  EXPECT_EQ(arcs[0].fromStage, Stage(0));
  EXPECT_EQ(arcs[0].toStage, Stage(2));
  EXPECT_TRUE(arcs[0].text.contains("Replicated"));
  cut.partition.shared[0].sharing = Sharing::Transmit;
  EXPECT_TRUE(cut.arcs(ArcKind::Shared)[0].text.contains("stage 0 owns"));
  cut.wiring.rankOfStage = {Rank(0), Rank(1), Rank(0)};
  EXPECT_TRUE(cut.arcs(ArcKind::Shared)[0].text.contains("one copy"));
}

TEST(Links, WhatAStageComputesAgainComesFromTheStageThatComputesItFirst) {
  const Cut cut("hf_gpt2", {"transformer.h.1", "transformer.h.2"});
  const std::vector<Arc> arcs = cut.arcs(ArcKind::Recomputed);
  std::vector<Stage> stages;
  for (std::size_t s = 0; s < 3; ++s) {
    if (!cut.partition.stages[s].recomputed.empty()) stages.emplace_back(s);
  }
  ASSERT_EQ(arcs.size(), stages.size());
  ASSERT_FALSE(arcs.empty());  // the causal mask
  for (std::size_t a = 0; a < arcs.size(); ++a) {
    EXPECT_EQ(arcs[a].toStage, stages[a]);
    EXPECT_EQ(arcs[a].fromStage, Stage(0));
    const auto& again = cut.partition.stages[stages[a].index()].recomputed;
    EXPECT_TRUE(std::find(again.begin(), again.end(), arcs[a].from) != again.end());
    EXPECT_FALSE(arcs[a].values.empty());
  }
}

TEST(Links, WhatCrossesASplitIsWhatLeadsOverIt) {
  const Cut cut("resnet18_narrow", {"layer1.0.conv2", "layer1.0.bn2", "layer2"});
  for (std::size_t split = 0; split < 3; ++split) {
    Bytes expected = 0, sum = 0;
    std::size_t count = 0;
    for (const Transfer& t : cut.partition.transfers) {
      if (t.from.index() > split || t.to.index() <= split) continue;
      expected += t.bytes;
      ++count;
    }
    const std::vector<Crossing> values = crossing(cut.partition, split, cut.wiring);
    ASSERT_EQ(values.size(), count);
    for (const Crossing& value : values) {
      sum += value.bytes;
      EXPECT_EQ(value.time, 1000 + value.bytes.value);  // of the link above
    }
    EXPECT_EQ(sum, expected);
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end(), [](const Crossing& a, const Crossing& b) { return a.bytes > b.bytes; }));
  }
  EXPECT_EQ(crossing(cut.partition, 1, cut.wiring).size(), 2U);  // conv2's result, and the block's input past it
}

TEST(Links, WithoutAMeasuredLinkTheClustersIsTaken) {
  Cluster cluster;
  cluster.topology.ranksPerNode = 2;
  cluster.topology.sameNode = {10, 1e9};
  cluster.topology.network = {1000, 1e9};
  Wiring wiring;
  wiring.topology = cluster.topology;
  wiring.rankOfStage = {Rank(0), Rank(1), Rank(2)};
  EXPECT_EQ(wiring.time(Stage(0), Stage(1), 500), 510);
  EXPECT_EQ(wiring.time(Stage(1), Stage(2), 500), 1500);                                                 // to another node
  wiring.topology = {.sameNode = {1, 5e8}, .network = {}, .ranksPerNode = 0, .ranks = {}, .links = {}};  // measured
  EXPECT_EQ(wiring.time(Stage(1), Stage(2), 500), 1001);
  EXPECT_EQ(wiring.time(Stage(1), Stage(1), 500), 0);
}

}  // namespace
}  // namespace pw::gui
