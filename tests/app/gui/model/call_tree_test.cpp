#include <QAbstractItemModelTester>

#include <algorithm>
#include <map>
#include <set>

#include "app/gui/model/tree_model.h"
#include "simulator/partition/module_tree.h"
#include "simulator/partition/split.h"
#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

class CallTreeOfSample : public testing::TestWithParam<const char*> {};

TEST_P(CallTreeOfSample, TheChildrenOfARowTileItsNodes) {
  const SampleModel sample(GetParam());
  ASSERT_EQ(sample.tree.row(0).firstNode, NodeId(0));
  ASSERT_EQ(sample.tree.row(0).endNode, NodeId(sample.graph->nodes.size()));
  for (int r = 0; r < sample.tree.size(); ++r) {
    const auto& children = sample.tree.children[static_cast<std::size_t>(r)];
    if (children.empty()) continue;
    NodeId next = sample.tree.row(r).firstNode;
    for (const int child : children) {
      EXPECT_EQ(sample.tree.row(child).parent, r);
      EXPECT_EQ(sample.tree.row(child).firstNode, next);
      EXPECT_LT(sample.tree.row(child).firstNode, sample.tree.row(child).endNode);
      next = sample.tree.row(child).endNode;
    }
    EXPECT_EQ(next, sample.tree.row(r).endNode);
  }
}

TEST_P(CallTreeOfSample, CostsOfChildrenAddUpToTheRowAround) {
  SampleModel sample(GetParam());
  const Profile profile = countingProfile(*sample.graph);
  setCosts(sample.tree, &profile);
  const auto nodes = static_cast<std::int64_t>(sample.graph->nodes.size());
  EXPECT_EQ(sample.tree.row(0).forward, nodes * (nodes + 1) / 2);
  EXPECT_EQ(sample.tree.row(0).backward, nodes * nodes);
  EXPECT_EQ(sample.tree.row(0).saved, 8 * nodes * (nodes - 1) / 2);
  for (int r = 0; r < sample.tree.size(); ++r) {
    Ns forward = 0, backward = 0;
    Bytes saved = 0;
    for (const int child : sample.tree.children[static_cast<std::size_t>(r)]) {
      forward += sample.tree.row(child).forward;
      backward += sample.tree.row(child).backward;
      saved += sample.tree.row(child).saved;
    }
    if (forward == 0) continue;
    EXPECT_EQ(forward, sample.tree.row(r).forward);
    EXPECT_EQ(backward, sample.tree.row(r).backward);
    EXPECT_EQ(saved, sample.tree.row(r).saved);
  }
}

TEST_P(CallTreeOfSample, EveryPlaceAStageMayBeginIsTheBeginningOfARow) {
  const SampleModel sample(GetParam());
  std::set<NodeId> begins;
  for (const CallRow& row : sample.tree.rows) begins.insert(row.firstNode);
  for (const SplitPoint& point : sample.points) EXPECT_TRUE(begins.contains(point.begin)) << point.name;
}

TEST_P(CallTreeOfSample, ModulesCalledOnceHaveTheParametersInspectShows) {
  const SampleModel sample(GetParam());
  std::map<std::string, int> calls;
  for (const CallRow& row : sample.tree.rows) calls[row.path] += row.isModule ? 1 : 0;
  int compared = 0;
  for (const ModuleSummary& module : moduleTree(*sample.graph, sample.bindings)) {
    const int row = sample.row(module.path);
    ASSERT_GE(row, 0) << module.path;
    if (calls[module.path] > 1) continue;
    EXPECT_EQ(sample.tree.row(row).parameters, module.parameters) << module.path;
    EXPECT_EQ(sample.tree.row(row).parameterBytes, module.parameterBytes) << module.path;
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

TEST_P(CallTreeOfSample, TheItemModelKeepsQtsRules) {
  SampleModel sample(GetParam());
  TreeModel model;
  const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::Fatal);
  const int rows = sample.tree.size();
  model.setTree(sample.tree);
  const Profile profile = countingProfile(*sample.graph);
  model.setProfile(&profile);
  model.setTree({});
  model.setTree(sample.tree);
  for (int r = 0; r < rows; ++r) EXPECT_EQ(model.rowOf(model.indexOf(r)), r);
}

INSTANTIATE_TEST_SUITE_P(Samples, CallTreeOfSample, testing::ValuesIn(kSamples), [](const auto& p) { return std::string(p.param); });

std::vector<std::string> shownAtFirst(const CallTree& tree) {
  const std::vector<int> open = openAtFirst(tree);
  std::vector<std::string> labels;
  for (int r = 0; r < tree.size();) {
    const bool isOpen = std::find(open.begin(), open.end(), r) != open.end();
    if (tree.row(r).isModule) labels.push_back(tree.row(r).label);
    r = isOpen ? r + 1 : tree.row(r).end;
  }
  return labels;
}

TEST(CallTree, IsOpenDownToTheNumberedLayersAtFirst) {
  EXPECT_EQ(shownAtFirst(SampleModel("gpt_small").tree),
            (std::vector<std::string>{"gpt_small", "embed", "position", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "norm", "head"}));
  EXPECT_EQ(shownAtFirst(SampleModel("vit_small").tree),
            (std::vector<std::string>{"vit_small", "conv_proj", "encoder", "dropout", "layers", "encoder_layer_0", "encoder_layer_1",
                                      "encoder_layer_2", "encoder_layer_3", "ln", "heads"}));
}

TEST(CallTree, HasARowForEachCallOfAModule) {
  const SampleModel sample("resnet18_narrow");  // each block calls its relu after the first norm and after the sum
  const int first = sample.row("layer1.0.relu", 0), second = sample.row("layer1.0.relu", 1);
  ASSERT_GE(first, 0);
  ASSERT_GE(second, 0);
  EXPECT_LT(sample.tree.row(first).endNode, sample.tree.row(second).firstNode);
  EXPECT_EQ(sample.row("layer1.0.relu", 2), -1);
}

TEST(CallTree, OperatorsBetweenCallsAreRowsNamedByThem) {
  const SampleModel sample("gpt_small");  // x = x + attention(norm(x)); x = x + mlp(norm(x))
  std::vector<std::string> labels;
  for (const int child : sample.tree.children[static_cast<std::size_t>(sample.row("blocks.1"))])
    labels.push_back(sample.tree.row(child).label);
  EXPECT_EQ(labels, (std::vector<std::string>{"attention_norm", "attention", "add", "mlp_norm", "mlp", "add"}));
  EXPECT_TRUE(sample.tree.children[static_cast<std::size_t>(sample.row("blocks.1.mlp.up"))].empty());
}

TEST(CallTree, ACutInsideAModuleMakesItsPartsRows) {
  const SampleModel plain("gpt_small");
  const NodeId inside(plain.tree.row(plain.row("blocks.0.attention.query_key_value")).endNode.value + 2);
  std::vector<NodeId> cuts = plain.cuts;
  cuts.insert(std::lower_bound(cuts.begin(), cuts.end(), inside), inside);
  const CallTree tree = callTree(*plain.graph, cuts);
  EXPECT_EQ(tree.size(), plain.tree.size() + 1);
  EXPECT_EQ(tree.row(tree.rowOfNode[inside.index()]).firstNode, inside);
}

TEST(CallTree, BarsCompareLayersAndWhatIsAroundThemHasNone) {
  SampleModel sample("gpt_small");
  Profile profile = countingProfile(*sample.graph);
  for (NodeCost& cost : profile.nodes) cost = {};
  profile.nodes[sample.begin("blocks.0").index()].forward = 100;
  profile.nodes[sample.begin("blocks.1").index()].forward = 400;
  setCosts(sample.tree, &profile);
  const BarScale scale = barScale(sample.tree);
  EXPECT_EQ(scale.time, 400);
  EXPECT_TRUE(scale.isAround[0]);
  TreeModel model;
  model.setTree(sample.tree);
  EXPECT_EQ(model.indexOf(0, TreeModel::Forward).data(TreeModel::FractionRole), -1.0);
  EXPECT_EQ(model.indexOf(sample.row("blocks.0"), TreeModel::Forward).data(TreeModel::FractionRole), 0.25);
  EXPECT_EQ(model.indexOf(sample.row("blocks.1"), TreeModel::Forward).data(TreeModel::FractionRole), 1.0);
}

TEST(CallTree, FindsByLabelClassAndPath) {
  const SampleModel sample("gpt_small");
  const auto pathsOf = [&](const std::string& text) {
    std::set<std::string> paths;
    for (const int row : findRows(sample.tree, text)) paths.insert(sample.tree.row(row).path);
    return paths;
  };
  EXPECT_EQ(pathsOf("BLOCKS.2"), std::set<std::string>{"blocks.2"});  // not all that is inside
  EXPECT_EQ(pathsOf("0.mlp.u"), std::set<std::string>{"blocks.0.mlp.up"});
  EXPECT_EQ(pathsOf("embedding"), (std::set<std::string>{"embed", "position"}));
  EXPECT_TRUE(pathsOf("").empty());
  EXPECT_TRUE(pathsOf("conv").empty());
}

TEST(CallTree, WithoutAProfileOrWithAnotherModelsAllCostsAreZero) {
  SampleModel sample("gpt_small");
  const Profile other = countingProfile(*SampleModel("vit_small").graph);
  for (const Profile* profile : {static_cast<const Profile*>(nullptr), &other}) {
    setCosts(sample.tree, profile);
    EXPECT_EQ(sample.tree.row(0).forward, 0);
    EXPECT_EQ(sample.tree.row(0).saved, 0);
  }
}

}  // namespace
}  // namespace pw::gui
