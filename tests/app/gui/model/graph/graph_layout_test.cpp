// What flows in a model against what its partitions send, and where the graph's boxes, places and branches are.
#include "app/gui/model/graph/graph_layout.h"

#include <algorithm>
#include <set>

#include "simulator/model/graph_facts.h"
#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

const std::string kData = PW_SOURCE_DIR "/tests/data/";

/// A model with its flow and its graph, folded to the layers.
struct Drawn {
  explicit Drawn(const std::string& path, std::int64_t microbatch = 2)
      : graph(readPt2(path)), bindings(bindBatch(graph, microbatch)), points(splitPoints(graph, bindings)), flow(flowOf(graph, bindings)) {
    std::vector<NodeId> cuts;
    for (const SplitPoint& point : points) cuts.push_back(point.begin);
    tree = callTree(graph, cuts);
    open.assign(tree.rows.size(), false);
    for (const int row : openAtFirst(tree)) open[static_cast<std::size_t>(row)] = true;
    layout = layOut(tree, flow, open, metrics);
  }

  ModelGraph graph;
  Bindings bindings;
  std::vector<SplitPoint> points;
  ModelFlow flow;
  CallTree tree;
  std::vector<bool> open;
  GraphMetrics metrics;
  GraphLayout layout;
};

std::string modelPath(const std::string& name) {
  return name == "unet" || name == "branches" || name == "experts" || name == "mixed" ? kData + name + ".pt2" : samplePath(name);
}

class FlowOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, FlowOf,
                         testing::Values("gpt_small", "gpt_split", "hf_llama", "resnet18_narrow", "vit_small", "unet", "branches",
                                         "experts", "mixed"));

TEST_P(FlowOf, BytesAcrossEachLegalCutAreWhatThePartitionSends) {
  const Drawn drawn(modelPath(GetParam()));
  ASSERT_FALSE(drawn.points.empty());
  for (const SplitPoint& point : drawn.points) {
    Bytes sent = 0;
    for (const Transfer& t : cutGraph(drawn.graph, {point.begin}, drawn.bindings, nullptr).transfers) sent += t.bytes;
    EXPECT_EQ(bytesAcross(drawn.flow, {point.begin}, 0), sent) << point.name;
    EXPECT_EQ(sent, point.crossing) << point.name;
  }
}

/// Values on edges from a box before the cut to one behind it, each once, without those that are not sent.
TEST_P(FlowOf, EdgesAcrossACutBetweenBoxesCarryWhatThePartitionSends) {
  const Drawn drawn(modelPath(GetParam()));
  const std::vector<bool> anywhere = recomputableNodes(drawn.graph);
  int compared = 0;
  for (const SplitPoint& point : drawn.points) {
    const GraphLayout& layout = drawn.layout;
    const int behind = layout.boxOfNode[point.begin.index()];
    if (layout.boxOfNode[point.begin.index() - 1] == behind) continue;  // inside a folded box
    std::set<ValueId> carried, sent;
    for (const FlowEdge& edge : layout.edges) {
      if (edge.from >= behind || edge.to < behind || edge.from == 0) continue;
      for (const ValueId v : edge.values) {
        if (!anywhere[drawn.graph.value(v).producer.index()]) carried.insert(v);
      }
    }
    for (const Transfer& t : cutGraph(drawn.graph, {point.begin}, drawn.bindings, nullptr).transfers) sent.insert(t.value);
    EXPECT_EQ(carried, sent) << point.name;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST_P(FlowOf, BytesAcrossSeveralCutsAreWhatThePartitionSends) {
  const Drawn drawn(modelPath(GetParam()));
  const std::size_t n = drawn.points.size();
  ASSERT_GT(n, 0U);
  const std::set<std::size_t> places{n / 4, n / 2, n - 1};  // a small model has fewer than three
  std::vector<NodeId> begins;
  for (const std::size_t place : places) begins.push_back(drawn.points[place].begin);
  const Partition partition = cutGraph(drawn.graph, begins, drawn.bindings, nullptr);
  for (std::size_t split = 0; split < begins.size(); ++split) {
    Bytes sent = 0;
    for (const Transfer& t : partition.transfers) sent += t.from.index() <= split && t.to.index() > split ? t.bytes : 0;
    EXPECT_EQ(bytesAcross(drawn.flow, begins, split), sent) << split;
  }
}

TEST(GraphLayout, GptIsAChainOfItsBlocksWithOneTensorBetweenThem) {
  const Drawn drawn(samplePath("gpt_small"));
  const ModelGraph& graph = drawn.graph;
  std::vector<int> blocks;
  for (std::size_t b = 0; b < drawn.layout.boxes.size(); ++b) {
    const int row = drawn.layout.boxes[b].row;
    if (row >= 0 && drawn.tree.row(row).path.starts_with("blocks.")) blocks.push_back(static_cast<int>(b));
  }
  ASSERT_EQ(blocks.size(), 4U) << "folded to the blocks";
  // The hidden state: the meta data of what block 0 gives to block 1, 2 samples.
  for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
    const int edge = drawn.layout.next[static_cast<std::size_t>(blocks[i])];
    ASSERT_GE(edge, 0);
    const FlowEdge& flow = drawn.layout.edges[static_cast<std::size_t>(edge)];
    ASSERT_EQ(flow.values.size(), 1U);
    EXPECT_EQ(flow.bytes, bytesOf(*graph.value(flow.values[0]).tensor, drawn.bindings));
    EXPECT_TRUE(flow.sent);
  }
}

TEST(GraphLayout, SkipsOfAUNetAreBranchesBesideTheBoxes) {
  const Drawn drawn(kData + "unet.pt2");
  int skips = 0;
  for (const GraphBranch& branch : drawn.layout.branches) {
    for (const std::size_t e : branch.edges) {
      EXPECT_EQ(drawn.layout.edges[e].from, branch.from);
      EXPECT_GT(drawn.layout.edges[e].to, branch.from + 1);
      skips += drawn.layout.edges[e].sent ? 1 : 0;
    }
    EXPECT_EQ(branch.last, drawn.layout.edges[branch.edges.back()].to);
  }
  EXPECT_GT(skips, 0);
  for (std::size_t a = 0; a < drawn.layout.branches.size(); ++a) {
    for (std::size_t b = a + 1; b < drawn.layout.branches.size(); ++b) {
      const GraphBranch &one = drawn.layout.branches[a], &other = drawn.layout.branches[b];
      EXPECT_FALSE(one.lane == other.lane && one.lane + 1 < drawn.metrics.lanes && one.from < other.last && other.from < one.last);
    }
  }
}

/// A model of so many layers that skip all that is between the first and the last of them, the next ones, and so on.
TEST(GraphLayout, ManyNestedSkipsHaveALaneEach) {
  constexpr int kSkips = 30, kLayers = 2 * kSkips + 1;
  CallTree tree;
  tree.rows.resize(kLayers + 1);
  tree.rows[0].end = kLayers + 1;
  tree.rows[0].endNode = NodeId(kLayers);
  ModelFlow flow;
  flow.nodes = kLayers;
  flow.bytes.assign(kLayers, Bytes(8));
  for (int n = 0; n < kLayers; ++n) {
    CallRow& row = tree.rows[static_cast<std::size_t>(n) + 1];
    row.parent = 0, row.depth = 1, row.end = n + 2;
    row.firstNode = NodeId(n), row.endNode = NodeId(n + 1);
    tree.rowOfNode.push_back(n + 1);
    if (n < kSkips) flow.uses.push_back({ValueId(n), n, kLayers - 1 - n, true});
  }
  const GraphLayout layout = layOut(tree, flow, std::vector<bool>(tree.rows.size(), false), GraphMetrics());
  ASSERT_EQ(layout.branches.size(), std::size_t{kSkips});
  std::set<int> lanes;
  for (const GraphBranch& branch : layout.branches) lanes.insert(branch.lane);
  EXPECT_EQ(lanes.size(), std::size_t{kSkips});
}

TEST(GraphLayout, PlacesAreBetweenBoxesAndEachLegalOneIsFoundAtItsHeight) {
  const Drawn drawn(samplePath("gpt_small"));
  const GraphLayout& layout = drawn.layout;
  for (std::size_t b = 1; b + 1 < layout.boxes.size(); ++b) {
    const NodeId first = drawn.tree.row(layout.boxes[b].row).firstNode;
    EXPECT_DOUBLE_EQ(layout.yOf(first), layout.boxes[b].top - drawn.metrics.gap / 2);
    EXPECT_EQ(layout.nearest(layout.yOf(first) + 3), first);
    EXPECT_EQ(layout.boxAt(layout.boxes[b].middle()), static_cast<int>(b));
    EXPECT_EQ(layout.boxAt(layout.boxes[b].top - 3), -1);
  }
  // A place inside a folded block is inside its box, and no place that a drag finds.
  const NodeId inside = findSplit(drawn.graph, "blocks.1.mlp");
  const GraphBox& block = layout.box(layout.boxOfNode[inside.index()]);
  EXPECT_GT(layout.yOf(inside), block.top);
  EXPECT_LT(layout.yOf(inside), block.bottom());
  EXPECT_NE(layout.nearest(layout.yOf(inside)), inside);
}

TEST(GraphLayout, AnUnfoldedBlockIsAFrameAroundItsParts) {
  Drawn drawn(samplePath("gpt_small"));
  int block = -1;
  for (int r = 0; r < drawn.tree.size(); ++r) block = drawn.tree.row(r).path == "blocks.1" && drawn.tree.row(r).isModule ? r : block;
  ASSERT_GE(block, 0);
  drawn.open[static_cast<std::size_t>(block)] = true;
  const GraphLayout layout = layOut(drawn.tree, drawn.flow, drawn.open, drawn.metrics);
  ASSERT_EQ(layout.frames.size(), drawn.layout.frames.size() + 1);
  const auto frame = std::ranges::find(layout.frames, block, &GraphFrame::row);
  ASSERT_NE(frame, layout.frames.end());
  std::size_t inside = 0;
  for (const GraphBox& box : layout.boxes) {
    const bool within = box.row > block && box.row < drawn.tree.row(block).end;
    EXPECT_EQ(within, box.top > frame->top && box.bottom() < frame->bottom);
    inside += within ? 1 : 0;
  }
  EXPECT_EQ(inside, drawn.tree.children[static_cast<std::size_t>(block)].size());
  EXPECT_DOUBLE_EQ(layout.yOf(drawn.tree.row(block).firstNode), frame->top - drawn.metrics.gap / 2) << "above the frame, not in it";
}

TEST(GraphLayout, NoModelIsNoGraph) {
  const GraphLayout layout = layOut({}, {}, {}, {});
  EXPECT_TRUE(layout.boxes.empty());
  EXPECT_EQ(layout.boxAt(10), -1);
  EXPECT_EQ(layout.nearest(10), NodeId(0));
  EXPECT_EQ(layout.yOf(NodeId(3)), 0);
}

}  // namespace
}  // namespace pw::gui
