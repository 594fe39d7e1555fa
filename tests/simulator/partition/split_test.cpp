#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "simulator/partition/partition.h"
#include "simulator/partition/split.h"
#include "tests/support/all_splits.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

constexpr Bytes kValue = 2 * GraphBuilder::kRow;
const Bindings kBindings{{"b", 2}};

/// Embedding, two blocks of attention and mlp with a residual across each, a head called twice, and a loss outside all modules.
ModelGraph transformer() {
  GraphBuilder b;
  ValueId x = b.input("x");
  const ValueId head = b.parameter("head.weight");
  x = b.within({"embed"}).op("linear", {x, b.parameter("embed.weight")}, "embedded");  // 0
  for (const std::string block : {"blocks.0", "blocks.1"}) {
    const ValueId a = b.within({block, block + ".attention"}).op("linear", {x, b.parameter(block + ".a")}, block + "_attention");  // 1, 4
    const ValueId sum = b.within({block}).op("add", {x, a}, block + "_sum");                                                       // 2, 5
    x = b.within({block, block + ".mlp"}).op("linear", {sum, b.parameter(block + ".m")}, block + "_mlp");                          // 3, 6
  }
  x = b.within({"head"}).op("linear", {x, head}, "head_1");  // 7
  x = b.within({}).op("relu", {x}, "relu");                  // 8
  x = b.within({"head"}).op("linear", {x, head}, "head_2");  // 9
  return b.done(b.within({}).op("sum", {x}, "loss"));        // 10
}

TEST(SplitPoints, NamesEveryModuleBoundaryWithWhatCrosses) {
  const std::vector<SplitPoint> expected{{NodeId(1), "blocks.0", kValue, 1},
                                         {NodeId(2), "blocks.0.attention:end", 2 * kValue, 2},
                                         {NodeId(3), "blocks.0.mlp", kValue, 1},
                                         {NodeId(4), "blocks.1", kValue, 1},
                                         {NodeId(5), "blocks.1.attention:end", 2 * kValue, 2},
                                         {NodeId(6), "blocks.1.mlp", kValue, 1},
                                         {NodeId(7), "head", kValue, 1},
                                         {NodeId(8), "@relu", kValue, 1},  // head:end is its last call
                                         {NodeId(9), "@head_2", kValue, 1},
                                         {NodeId(10), "head:end", kValue, 1}};
  EXPECT_EQ(splitPoints(transformer(), kBindings), expected);
}

TEST(SplitPoints, EveryNameLeadsBackToItsPlace) {
  ModelGraph graph = transformer();
  graph.splitMarkers = {NodeId(4), NodeId(9)};
  for (const SplitPoint& point : splitPoints(graph, kBindings)) EXPECT_EQ(findSplit(graph, point.name), point.begin) << point.name;
}

TEST(SplitPoints, ShowsMarkersAlsoInsideModules) {
  GraphBuilder b;
  ValueId x = b.within({"only"}).op("sin", {b.input("x")}, "one");
  b.marker();
  x = b.op("linear", {x, b.parameter("w")}, "two");
  const ModelGraph graph = b.done(x);
  EXPECT_EQ(splitPoints(graph, kBindings), (std::vector<SplitPoint>{{NodeId(1), "pipe_split (@two)", 0, 0}})) << "sin(x) is computed again";
  EXPECT_EQ(findSplit(graph, "pipe_split (@two)"), NodeId(1));
}

TEST(SplitPoints, LeavesOutPlacesThatOnlyRecomputableNodesPrecede) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId mask = b.within({"mask"}).op("sin", {x}, "mask");               // 0
  const ValueId h = b.within({"a"}).op("linear", {x, b.parameter("w")}, "h");   // 1
  const ValueId again = b.within({"b"}).op("cos", {mask}, "again");             // 2
  const ModelGraph graph = b.done(b.within({"c"}).op("add", {h, again}, "y"));  // 3
  EXPECT_EQ(splitPoints(graph, kBindings), (std::vector<SplitPoint>{{NodeId(2), "b", kValue, 1}, {NodeId(3), "c", kValue, 1}}));
  EXPECT_EQ(findSplit(graph, "a"), NodeId(1)) << "whoever names it gets it";
}

TEST(SplitPoints, LeavesOutPlacesWhereCutRefuses) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId h = b.within({"a"}).op("linear", {x, w}, "h");  // 0
  const ValueId found =
      b.within({"b"}).op("nonzero", {h}, "found", GraphBuilder::meta({GraphBuilder::dataDependent()}, DType::Int64));  // 1
  const ValueId base = b.within({"c"}).op("index", {h, found}, "base");                                                // 2
  const ValueId view = b.within({"d"}).op("view", {base}, "view");                                                     // 3
  b.within({"e"}).op("relu_", {base}, "relu_");                                                                        // 4
  const ModelGraph graph = b.done(b.within({"f"}).op("relu", {view}, "y"));                                            // 5
  std::vector<NodeId> legal;
  for (const SplitPoint& point : splitPoints(graph, kBindings)) legal.push_back(point.begin);
  EXPECT_EQ(legal, (std::vector<NodeId>{NodeId(1), NodeId(5)}));
  for (int n = 1; n < 6; ++n) {
    const bool isLegal = std::count(legal.begin(), legal.end(), NodeId(n)) == 1;
    EXPECT_EQ(usageErrorOf([&] { static_cast<void>(cutGraph(graph, {NodeId(n)}, kBindings, nullptr)); }) == "no error", isLegal) << n;
  }
}

TEST(SplitPoints, CrossingIsWhatATwoStageCutTransfers) {
  const ModelGraph graph = transformer();
  for (const SplitPoint& point : splitPoints(graph, kBindings)) {
    Bytes bytes = 0;
    const Partition partition = cutGraph(graph, {point.begin}, kBindings, nullptr);
    for (const Transfer& t : partition.transfers) bytes += t.bytes;
    EXPECT_EQ(bytes, point.crossing) << point.name;
    EXPECT_EQ(static_cast<int>(partition.transfers.size()), point.values) << point.name;
  }
}

TEST(FindSplit, TakesModulesTheirEndsNodesAndNumbers) {
  const ModelGraph graph = transformer();
  EXPECT_EQ(findSplit(graph, "blocks.1"), NodeId(4));
  EXPECT_EQ(findSplit(graph, "blocks.0:end"), NodeId(4));
  EXPECT_EQ(findSplit(graph, "blocks.0.attention:end"), NodeId(2));
  EXPECT_EQ(findSplit(graph, "head"), NodeId(7)) << "its first call";
  EXPECT_EQ(findSplit(graph, "head:end"), NodeId(10)) << "its last call";
  EXPECT_EQ(findSplit(graph, "@relu"), NodeId(8));
  EXPECT_EQ(findSplit(graph, "@8"), NodeId(8));
  EXPECT_EQ(findSplit(graph, "pipe_split (blocks.1)"), NodeId(4));
}

TEST(FindSplit, NamesNearModulesWhenThereIsNone) {
  const auto error = [](const std::string& name) { return usageErrorOf([&] { static_cast<void>(findSplit(transformer(), name)); }); };
  // One letter and two letters away; then the names with five more letters.
  EXPECT_NE(error("block.1").find("Model hand has no module block.1 to split at; near names: blocks.1, blocks.0, blocks.1.mlp"),
            std::string::npos);
  EXPECT_NE(error("@rely").find("no node @rely"), std::string::npos);
  for (const char* unknown : {"", ":end", "@", "@11", "blocks", "pipe_split (", "pipe_split ()"})
    EXPECT_NE(error(unknown).find("has no"), std::string::npos) << unknown;
  for (const char* outside : {"embed", "@0", "@embedded", "pipe_split (embed)"})
    EXPECT_NE(error(outside).find("empty stage"), std::string::npos) << outside;
  EXPECT_NE(usageErrorOf([] { static_cast<void>(findSplit(chain(2), "blocks.1:end")); }).find("empty stage"), std::string::npos);
}

Profile profileOf(const ModelGraph& graph) {
  Profile profile;
  profile.microbatch = 2;
  profile.nodes.resize(graph.nodes.size());
  return profile;
}

std::vector<int> numbers(const std::vector<NodeId>& ids) {
  std::vector<int> result;
  for (const NodeId id : ids) result.push_back(id.value);
  return result;
}

/// Against all cuts: stages of different speeds and of times of their own, nodes that differ a hundredfold.
TEST(Balance, IsTheBestOfAllCutsWhereStagesDifferInSpeed) {
  std::mt19937_64 random(4);
  constexpr int kNodes = 9;
  const ModelGraph graph = chain(kNodes);
  for (int t = 0; t < 300; ++t) {
    SCOPED_TRACE(t);
    const auto randomTimes = [&](Profile& profile) {
      for (NodeCost& node : profile.nodes)
        node = {oneIn(random, 3) ? draw<Ns>(random, 1'000, 10'000) : draw<Ns>(random, 10, 100), 0, 0, 0, 0, 0};
      profile.loss = {};
    };
    Profile profile = profileOf(graph), own = profile;
    randomTimes(profile);
    randomTimes(own);
    const int stages = static_cast<int>(draw(random, 2, 5));
    profile.topology.ranks.assign(static_cast<std::size_t>(stages), {});
    StageSpeeds speeds;
    for (int s = 0; s < stages; ++s) speeds.push_back({{-1, 1.0 / static_cast<double>(draw(random, 1, 4))}});
    if (oneIn(random, 2)) {
      profile.topology.ranks[0].own = {"own.json", std::make_shared<const Profile>(own)};
      speeds[0].front().costsOf = 0;
    }
    const auto heaviest = [&](const std::vector<NodeId>& begins) {
      double most = 0;
      for (std::size_t s = 0; s < speeds.size(); ++s) {
        const Profile& of = speeds[s].front().costsOf < 0 ? profile : own;
        const std::size_t from = s == 0 ? 0 : begins[s - 1].index(), to = s < begins.size() ? begins[s].index() : kNodes;
        Ns time = 0;
        for (std::size_t n = from; n < to; ++n) time += of.nodes[n].forward;
        most = std::max(most, static_cast<double>(time) * speeds[s].front().slowness);
      }
      return most;
    };
    double best = heaviest(allBegins(kNodes, stages).front());
    for (const auto& begins : allBegins(kNodes, stages)) best = std::min(best, heaviest(begins));
    EXPECT_LE(heaviest(balancedSplits(graph, profile, stages, Balance::Time, speeds)), 1.01 * best + 1);
  }
}

TEST(Balance, TimeCountsTheBackwardAndTheLoss) {
  const ModelGraph graph = chain(4);
  Profile profile = profileOf(graph);
  for (NodeCost& node : profile.nodes) node = {10, 20, 0, 0, 0, 0};
  EXPECT_EQ(numbers(balancedSplits(graph, profile, 2, Balance::Time)), std::vector<int>{2});
  profile.loss = {20, 40, 0, 0, 0, 0};  // as much as two layers: 90 against 30 + 60
  EXPECT_EQ(numbers(balancedSplits(graph, profile, 2, Balance::Time)), std::vector<int>{3});
  EXPECT_TRUE(balancedSplits(graph, profile, 1, Balance::Time).empty());
}

TEST(Balance, ParametersAndMemoryCountATiedParameterOnce) {
  GraphBuilder b;
  ValueId x = b.input("x");
  x = b.within({"a"}).op("linear", {x, b.parameter("a", "tied")}, "a_");
  x = b.within({"b"}).op("linear", {x, b.parameter("b")}, "b_");
  x = b.within({"c"}).op("linear", {x, b.parameter("c")}, "c_");
  const ModelGraph graph = b.done(b.within({"d"}).op("linear", {x, b.parameter("d", "tied")}, "d_"));
  Profile profile = profileOf(graph);
  // Parameter bytes 64, 64, 64, 0: two against one is best in both orders, and the earlier cut wins at equal crossing.
  EXPECT_EQ(numbers(balancedSplits(graph, profile, 2, Balance::Parameters)), std::vector<int>{1});
  profile.nodes[3].saved = 64 * 2;  // as much as parameter and gradient
  EXPECT_EQ(numbers(balancedSplits(graph, profile, 2, Balance::Memory)), std::vector<int>{2});
}

TEST(Balance, KeepsAChangeInPlaceWithWhatItChanges) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId h = b.within({"a"}).op("linear", {x, b.parameter("v")}, "h");  // 0
  const ValueId other = b.within({"b"}).op("sin", {h}, "other");               // 1
  const ValueId sum = b.within({"c"}).op("add_", {h, other}, "sum");           // 2
  const ModelGraph graph = b.done(b.within({"d"}).op("relu", {sum}, "y"));     // 3
  Profile profile = profileOf(graph);
  for (NodeCost& node : profile.nodes) node = {10, 20, 0, 0, 0, 0};
  EXPECT_EQ(numbers(balancedSplits(graph, profile, 2, Balance::Time)), std::vector<int>{3}) << "before node 2 both would weigh the same";
  EXPECT_EQ(numbers(balancedSplits(graph, profile, 3, Balance::Time)), (std::vector<int>{1, 3})) << "where no other places are left";
}

TEST(Balance, LayersCountsOutermostNumberedModulesOfTheMostFrequentClass) {
  GraphBuilder b;
  ValueId x = b.input("x");
  for (int i = 0; i < 4; ++i) {
    const std::string block = "blocks." + std::to_string(i);
    const int inner = i == 0 ? 5 : 1;  // `blocks.0.mlp.0` … are more in number and do not count
    for (int k = 0; k < inner; ++k) {
      x = b.within({block, block + ".mlp." + std::to_string(k)})
              .op("linear", {x, b.parameter(block + std::to_string(k))}, "v" + std::to_string(10 * i + k));
    }
  }
  const ModelGraph graph = b.done(b.within({}).op("relu", {x}, "y"));
  EXPECT_EQ(numbers(balancedSplits(graph, profileOf(graph), 4, Balance::Layers)), (std::vector<int>{5, 6, 7}));
}

TEST(Balance, LayersOfASequentialHaveNumbersForNames) {
  GraphBuilder b;
  ValueId x = b.input("x");
  for (int i = 0; i < 4; ++i) x = b.within({std::to_string(i)}).op("linear", {x, b.parameter(std::to_string(i))}, "v" + std::to_string(i));
  const ModelGraph graph = b.done(x);
  EXPECT_EQ(numbers(balancedSplits(graph, profileOf(graph), 2, Balance::Layers)), std::vector<int>{2});
}

TEST(Balance, CutsBetweenOperatorsWhenModulesDoNotSuffice) {
  GraphBuilder b;
  ValueId x = b.input("x");
  for (int i = 0; i < 3; ++i) x = b.op("linear", {x, b.parameter("w" + std::to_string(i))}, "v" + std::to_string(i));
  const ModelGraph graph = b.done(x);
  EXPECT_EQ(numbers(balancedSplits(graph, profileOf(graph), 3, Balance::Layers)), (std::vector<int>{1, 2}));
  EXPECT_NE(
      usageErrorOf([&] { static_cast<void>(balancedSplits(graph, profileOf(graph), 4, Balance::Time)); }).find("cannot be cut into 4"),
      std::string::npos);
  EXPECT_NE(usageErrorOf([&] { static_cast<void>(balancedSplits(graph, profileOf(graph), 0, Balance::Time)); }).find("at least 1"),
            std::string::npos);
  EXPECT_NE(usageErrorOf([&] { static_cast<void>(balancedSplits(graph, profileOf(chain(2)), 2, Balance::Time)); }).find("does not belong"),
            std::string::npos);
}

Bytes crossingOf(const ModelGraph& graph, const std::vector<NodeId>& begins) {
  const auto points = splitPoints(graph, kBindings);
  Bytes bytes = 0;
  for (const NodeId begin : begins)
    bytes += std::find_if(points.begin(), points.end(), [&](const SplitPoint& p) { return p.begin == begin; })->crossing;
  return bytes;
}

double heaviest(const Profile& profile, const std::vector<NodeId>& begins) {
  double worst = 0, stage = 0;
  for (std::size_t n = 0; n < profile.nodes.size(); ++n) {
    if (std::find(begins.begin(), begins.end(), NodeId(n)) != begins.end()) stage = 0;
    stage += static_cast<double>(profile.nodes[n].forward + profile.nodes[n].backward);
    worst = std::max(worst, stage);
  }
  return worst;
}

/// Every choice of begins, by counting through bit masks.
std::vector<std::vector<NodeId>> allCuts(std::size_t nodes, int stages) {
  std::vector<std::vector<NodeId>> cuts;
  for (unsigned mask = 0; mask < (1U << (nodes - 1)); ++mask) {
    std::vector<NodeId> begins;
    for (std::size_t n = 1; n < nodes; ++n) {
      if ((mask >> (n - 1)) & 1U) begins.emplace_back(n);
    }
    if (static_cast<int>(begins.size()) == stages - 1) cuts.push_back(begins);
  }
  return cuts;
}

TEST(Balance, IsOptimalAgainstAllCutsOfRandomModels) {
  constexpr std::uint64_t kSeed = 20262;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    const int nodes = static_cast<int>(draw(random, 2, 9)), stages = static_cast<int>(draw(random, 2, std::min(nodes, 5)));
    GraphBuilder b;
    std::vector<ValueId> values{b.input("x")};
    const ValueId w = b.parameter("w");
    for (int n = 0; n < nodes; ++n) {
      const ValueId other = values[static_cast<std::size_t>(draw(random, 0, n))];
      values.push_back(b.within({"m" + std::to_string(n)}).op("addmm", {values.back(), other, w}, "v" + std::to_string(n)));
    }
    const ModelGraph graph = b.done(values.back());
    Profile profile = profileOf(graph);
    for (NodeCost& node : profile.nodes) node.forward = oneIn(random, 2) ? draw<Ns>(random, 0, 10) : draw<Ns>(random, 990, 1010);
    double best = 1e18;
    const auto cuts = allCuts(graph.nodes.size(), stages);
    for (const auto& begins : cuts) best = std::min(best, heaviest(profile, begins));
    Bytes fewest = 1'000'000;
    for (const auto& begins : cuts) {
      if (heaviest(profile, begins) <= best * 1.01) fewest = std::min(fewest, crossingOf(graph, begins));
    }
    const std::vector<NodeId> chosen = balancedSplits(graph, profile, stages, Balance::Time);
    ASSERT_EQ(static_cast<int>(chosen.size()), stages - 1) << "case " << i;
    EXPECT_LE(heaviest(profile, chosen), best * 1.01) << "case " << i;
    EXPECT_EQ(crossingOf(graph, chosen), fewest) << "case " << i;
  }
}

}  // namespace
}  // namespace pw::test
