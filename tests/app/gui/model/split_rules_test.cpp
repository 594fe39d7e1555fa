#include "app/gui/model/parts/split_rules.h"

#include "simulator/model/graph_facts.h"
#include "simulator/partition/split.h"
#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

SplitRules rulesOf(const SampleModel& sample) { return {sample.graph, sample.points, 2}; }

Design designOf(const std::string& schedule, int ranks, std::vector<NodeId> begins) {
  Design design;
  design.request.schedule = schedule;
  design.request.ranks = ranks;
  design.request.begins = std::move(begins);
  return design;
}

TEST(SplitRules, ThePlacesNextToOneAreThoseBeforeAndAfterInTheList) {
  const SampleModel sample("gpt_small");
  const SplitRules rules = rulesOf(sample);
  EXPECT_EQ(rules.next(sample.points[3].begin, 1), sample.points[4].begin);
  EXPECT_EQ(rules.next(sample.points[3].begin, -1), sample.points[2].begin);
  EXPECT_EQ(rules.next(sample.points.front().begin, -1), std::nullopt);
  EXPECT_EQ(rules.next(sample.points.back().begin, 1), std::nullopt);
  EXPECT_EQ(rules.next(NodeId(0), 1), sample.points.front().begin);
  EXPECT_EQ(rules.name(sample.begin("blocks.2")), "blocks.2");
}

TEST(SplitRules, SayWhyNoStageBeginsWhereMemoryIsChangedInPlace) {
  // The second relu_ of a block changes the sum in place; a later reader of the sum keeps all between them in one stage.
  SampleModel sample("resnet18_narrow");
  const NodeId changer = sample.tree.row(sample.row("layer1.0.relu", 1)).firstNode;
  const NodeId reader = sample.tree.row(sample.row("layer1.1.bn1")).firstNode;
  ModelGraph graph = *sample.graph;
  ASSERT_TRUE(isInPlace(graph.node(changer)));
  const ValueId sum = readsOf(graph.node(changer)).front();
  graph.nodes[reader.index()].inputs.push_back({"", sum});
  const auto changed = std::make_shared<const ModelGraph>(graph);
  const SplitRules rules(changed, splitPoints(graph, sample.bindings), 2);
  const NodeId made = graph.value(sum).producer;
  for (NodeId node(made.value + 1); node <= changer; node = NodeId(node.value + 1)) {
    EXPECT_EQ(rules.point(node), nullptr);
    EXPECT_TRUE(rules.obstacle(node).contains("relu_") && rules.obstacle(node).contains("in place")) << rules.obstacle(node).toStdString();
  }
  EXPECT_TRUE(rules.obstacle(sample.begin("layer2")).isEmpty());
  EXPECT_FALSE(rules.obstacle(NodeId(0)).isEmpty());
  EXPECT_FALSE(rules.obstacle(NodeId(graph.nodes.size())).isEmpty());
}

TEST(SplitRules, AStageAfterWhatIsComputedAgainAnywayIsRefused) {
  const SampleModel sample("hf_gpt2");  // begins with what depends on the inputs' sizes alone
  ASSERT_GT(sample.points.front().begin.value, 1);
  EXPECT_TRUE(rulesOf(sample).obstacle(NodeId(1)).contains("recompute all of this"));
}

TEST(SplitRules, ASplitStaysBetweenItsNeighbours) {
  const SampleModel sample("gpt_small");
  const SplitRules rules = rulesOf(sample);
  const std::vector<NodeId> begins{sample.begin("blocks.1"), sample.begin("blocks.2"), sample.begin("blocks.3")};
  EXPECT_TRUE(rules.refusalToMove(begins, 1, sample.begin("blocks.2.mlp")).isEmpty());
  EXPECT_TRUE(rules.refusalToMove(begins, 1, begins[1]).isEmpty());
  EXPECT_TRUE(rules.refusalToMove(begins, 1, begins[0]).startsWith("Stage 1 would be empty"));
  EXPECT_TRUE(rules.refusalToMove(begins, 1, begins[2]).startsWith("Stage 2 would be empty"));
  EXPECT_TRUE(rules.refusalToMove(begins, 1, sample.begin("head")).startsWith("Stage 2 would be empty"));
  EXPECT_FALSE(rules.refusalToMove(begins, 3, begins[2]).isEmpty());
}

TEST(SplitRules, ASplitMoreIsARankMore) {
  const SampleModel sample("gpt_small");
  const Design design = designOf("1f1b", 2, {sample.begin("blocks.2")});
  const StageChange change = withSplit(design, rulesOf(sample), sample.begin("blocks.1"));
  EXPECT_TRUE(change.refusal.isEmpty()) << change.refusal.toStdString();
  EXPECT_EQ(change.ranks, 3);
  EXPECT_EQ(change.begins, (std::vector<NodeId>{sample.begin("blocks.1"), sample.begin("blocks.2")}));
  EXPECT_FALSE(withSplit(design, rulesOf(sample), sample.begin("blocks.2")).refusal.isEmpty());
  const StageChange less = withoutSplit(design, 0);
  EXPECT_TRUE(less.refusal.isEmpty());
  EXPECT_EQ(less.ranks, 1);
  EXPECT_TRUE(less.begins.empty());
}

TEST(SplitRules, ChunksStaySoStagesMustDivideByThem) {
  const SampleModel sample("gpt_small");
  const std::vector<NodeId> begins{sample.begin("blocks.1"), sample.begin("blocks.2"), sample.begin("blocks.3")};
  const StageChange change = withSplit(designOf("zbv", 2, begins), rulesOf(sample), sample.begin("head"));
  EXPECT_TRUE(change.refusal.contains("cannot be 5")) << change.refusal.toStdString();
  EXPECT_TRUE(change.refusal.contains("4 or 6"));
  Design three = designOf("interleaved-1f1b", 2, {begins[0], begins[1], begins[2], sample.begin("norm"), sample.begin("head")});
  three.request.chunks = 3;
  EXPECT_FALSE(withoutSplit(three, 0).refusal.isEmpty());
  three.request.chunks = 1;
  EXPECT_EQ(withoutSplit(three, 0).ranks, 5);
}

TEST(SplitRules, AShapeTheScheduleHasNotIsRefusedInItsWords) {
  const SampleModel sample("gpt_small");
  const Design design = designOf("dualpipe", 2, {sample.begin("blocks.2")});  // wants an even number of ranks
  EXPECT_TRUE(withSplit(design, rulesOf(sample), sample.begin("blocks.1")).refusal.contains("even"));
}

TEST(SplitRules, RowsFromAFileKeepTheirNumberOfStages) {
  const SampleModel sample("gpt_small");
  Design design = designOf("custom", 2, {sample.begin("blocks.2")});
  auto rows = std::make_shared<Schedule>();
  rows->placement.rankOfStage = {Rank(0), Rank(1)};
  design.customRows = rows;
  EXPECT_TRUE(withSplit(design, rulesOf(sample), sample.begin("blocks.1")).refusal.contains("exactly 2 stages"));
  EXPECT_FALSE(withoutSplit(design, 0).refusal.isEmpty());
}

}  // namespace
}  // namespace pw::gui
