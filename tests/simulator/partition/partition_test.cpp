#include "simulator/partition/partition.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "simulator/model/graph_facts.h"
#include "tests/support/graph_builder.h"
#include "tests/support/partition_check.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

constexpr std::int64_t kBatch = 3;
constexpr Bytes kValue = kBatch * GraphBuilder::kRow;  // bytes of a default tensor in these tests
const Bindings kBindings{{"b", kBatch}};

Partition cutAt(const ModelGraph& graph, const std::vector<int>& begins, const Profile* costs = nullptr) {
  std::vector<NodeId> nodes;
  for (const int begin : begins) nodes.emplace_back(begin);
  return cutGraph(graph, nodes, kBindings, costs);
}

/// Forward times of the nodes, over a link of this latency.
Profile profileOf(const std::vector<Ns>& forward, Ns latency) {
  Profile profile;
  for (const Ns time : forward) profile.nodes.push_back({time, 0, 0, 0, 0, 0});
  profile.topology.sameNode.latency = latency;
  return profile;
}

using Sizes = std::vector<std::size_t>;

TEST(Cut, GivesEachStageItsNodesAndWhatTheyRead) {
  const Partition partition = cutAt(chain(3), {1, 2});
  ASSERT_EQ(partition.stages.size(), 3U);
  EXPECT_EQ(partition.stages[0].modelInputs.size(), 1U);
  EXPECT_TRUE(partition.stages[1].modelInputs.empty());
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(partition.stages[s].begin, NodeId(s));
    EXPECT_EQ(partition.stages[s].end, NodeId(s + 1));
    EXPECT_EQ(partition.stages[s].parameters, Sizes{s});
  }
  const ModelGraph graph = chain(3);
  const ValueId first = graph.nodes[0].outputs[0], second = graph.nodes[1].outputs[0];
  EXPECT_EQ(partition.transfers,
            (std::vector<Transfer>{{first, Stage(0), Stage(1), true, kValue}, {second, Stage(1), Stage(2), true, kValue}}));
  EXPECT_TRUE(partition.shared.empty());
}

TEST(Cut, SendsAValueStraightToEachStageThatUsesItAndOutputsToTheLast) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId early = b.op("linear", {x, b.parameter("w")}, "early");
  const ValueId middle = b.op("relu", {early}, "middle");
  const ValueId last = b.op("add", {middle, early}, "last");
  b.output(middle);
  b.output(early);
  const Partition partition = cutAt(b.done(last), {1, 2});
  EXPECT_EQ(partition.transfers, (std::vector<Transfer>{{early, Stage(0), Stage(1), true, kValue},
                                                        {early, Stage(0), Stage(2), true, kValue},
                                                        {middle, Stage(1), Stage(2), true, kValue}}));
}

TEST(Cut, GivesTheLastStageStateThatIsAnOutputItself) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w"), table = b.buffer("table");
  const ValueId y = b.op("relu", {b.op("linear", {x, w}, "h")}, "y");
  for (const ValueId v : {x, w, table}) b.output(v);
  const Partition partition = cutAt(b.done(y), {1});
  EXPECT_EQ(partition.stages[1].parameters, Sizes{0});
  EXPECT_EQ(partition.stages[1].buffers, Sizes{0});
  EXPECT_EQ(partition.stages[1].modelInputs, std::vector<ValueId>{x});
  ASSERT_EQ(partition.shared.size(), 1U) << "both stages hold w";
}

TEST(Cut, SendsWhatNeedsNoGradientWithoutOne) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId h = b.op("linear", {x, w}, "h");
  const ValueId index = b.op("argmax", {h}, "index", GraphBuilder::rows(DType::Int64));
  const Partition partition = cutAt(b.done(b.op("add", {h, index}, "y")), {2});
  EXPECT_EQ(partition.transfers,
            (std::vector<Transfer>{{h, Stage(0), Stage(1), true, kValue}, {index, Stage(0), Stage(1), false, 2 * kValue}}));
}

TEST(Cut, ReplicatesParametersByStorageUnderTheFirstName) {
  GraphBuilder b;
  const ValueId x = b.input("x"), table = b.parameter("table", "s"), other = b.parameter("other"), head = b.parameter("head", "s");
  const ValueId frozen = b.parameter("frozen", "", false);
  ValueId y = b.op("linear", {b.op("linear", {x, table}, "a"), frozen}, "a2");
  y = b.op("linear", {y, other}, "b");
  y = b.op("linear", {b.op("linear", {y, head}, "c"), frozen}, "d");
  const Partition partition = cutAt(b.done(y), {2, 3});
  EXPECT_EQ(partition.stages[0].parameters, (Sizes{0, 3}));
  EXPECT_EQ(partition.stages[1].parameters, (Sizes{1}));
  EXPECT_EQ(partition.stages[2].parameters, (Sizes{0, 3})) << "head is the table";
  EXPECT_EQ(partition.shared, (std::vector<SharedParameter>{{"table", "s", {Stage(0), Stage(2)}, 4 * 4 * 4}}))
      << "what is frozen has no gradient";
}

TEST(Cut, RecomputesPositionsAndMasksWithWhatTheyRead) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w"), table = b.buffer("table");
  const ValueId mask = b.op("add", {b.op("arange", {}, "positions"), table}, "mask");  // 0, 1
  const ValueId h = b.op("linear", {x, w}, "h");                                       // 2
  const ValueId y = b.op("add", {h, mask}, "y");                                       // 3
  const ModelGraph graph = b.done(y);
  const Partition partition = cutAt(graph, {3});
  EXPECT_EQ(partition.stages[1].recomputed, (std::vector<NodeId>{NodeId(0), NodeId(1)}));
  EXPECT_EQ(partition.stages[1].buffers, Sizes{0});
  EXPECT_TRUE(partition.stages[1].parameters.empty());
  EXPECT_EQ(partition.transfers.size(), 1U);
  EXPECT_TRUE(partition.stages[0].recomputed.empty());
}

TEST(Cut, SendsInsteadWhenTheMessageIsFaster) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId slow = b.op("sin", {x}, "slow");                  // 0
  const ValueId quick = b.op("cos", {slow}, "quick");             // 1
  const ValueId h = b.op("linear", {x, w}, "h");                  // 2
  const ModelGraph graph = b.done(b.op("add", {h, quick}, "y"));  // 3
  const Profile equal = profileOf({60, 40, 1, 1}, 100), longer = profileOf({60, 41, 1, 1}, 100), unmeasured = profileOf({60, 41, 1, 1}, 0);
  EXPECT_EQ(cutAt(graph, {3}, &equal).stages[1].recomputed.size(), 2U);
  EXPECT_EQ(cutAt(graph, {3}, &unmeasured).stages[1].recomputed.size(), 2U);
  const Partition sent = cutAt(graph, {3}, &longer);
  EXPECT_TRUE(sent.stages[1].recomputed.empty());
  EXPECT_EQ(sent.transfers.size(), 2U);
  EXPECT_FALSE(sent.transfers[0].gradient);
  EXPECT_NE(usageErrorOf([&] { static_cast<void>(cutAt(chain(3), {1}, &equal)); }).find("does not belong to model hand"),
            std::string::npos);
}

TEST(Cut, NeitherSendsNorReadsSymbolicNumbers) {
  GraphBuilder b;
  const ValueId x = b.input("x"), count = b.input("count");
  b.graph().values[count.index()].symbolic = GraphBuilder::batch();
  b.graph().values[count.index()].tensor.reset();
  const ValueId h = b.op("linear", {x, b.parameter("w")}, "h");
  const ValueId size = b.size(h, "size");
  const Partition partition = cutAt(b.done(b.op("expand", {h, size, count}, "y")), {2});
  EXPECT_EQ(partition.transfers.size(), 1U);
  EXPECT_TRUE(partition.stages[1].modelInputs.empty());
  EXPECT_TRUE(partition.stages[1].recomputed.empty());
}

TEST(Cut, RefusesAValueWithADataDependentSizeByName) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId h = b.op("linear", {x, w}, "h");
  const ValueId found = b.op("nonzero", {h}, "found", GraphBuilder::meta({GraphBuilder::dataDependent()}, DType::Int64));
  const ModelGraph graph = b.done(b.op("add", {h, found}, "y"));
  EXPECT_NE(usageErrorOf([&] {
              static_cast<void>(cutAt(graph, {2}));
            }).find("Value found has a data-dependent size and would be sent to stage 1"),
            std::string::npos);
  EXPECT_NO_THROW(static_cast<void>(cutAt(graph, {1})));
}

TEST(Cut, RecomputesWhatCannotBeSentForItsSize) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId found = b.op("nonzero", {x}, "found", GraphBuilder::meta({GraphBuilder::dataDependent()}, DType::Int64));
  const ValueId h = b.op("linear", {x, w}, "h");
  const Profile slow = profileOf({1'000'000, 1, 1}, 1);
  EXPECT_EQ(cutAt(b.done(b.op("add", {h, found}, "y")), {2}, &slow).stages[1].recomputed, std::vector<NodeId>{NodeId(0)});
}

TEST(Cut, RefusesToSeparateAChangeInPlaceFromThoseWhoSeeIt) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId base = b.op("linear", {x, b.parameter("w")}, "base");  // 0
  const ValueId view = b.op("view", {base}, "view");                   // 1
  b.op("relu_", {base}, "relu_");                                      // 2
  const ModelGraph graph = b.done(b.op("add", {view, x}, "y"));        // 3
  for (const int begin : {1, 2}) {
    EXPECT_NE(usageErrorOf([&] { static_cast<void>(cutAt(graph, {begin})); }).find("relu_.default (model.py:3) changes base in place"),
              std::string::npos);
  }
  EXPECT_EQ(cutAt(graph, {3}).transfers.size(), 1U) << "the view is sent after the change";
}

TEST(Cut, AllowsAStageToBeginInPlace) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId base = b.op("linear", {x, b.parameter("w")}, "base");
  const ValueId relu = b.op("relu_", {b.op("view", {base}, "view")}, "relu_");
  const ModelGraph graph = b.done(relu);
  EXPECT_EQ(cutAt(graph, {1}).transfers.size(), 1U);
  EXPECT_EQ(cutAt(graph, {2}).transfers.size(), 1U);
}

TEST(Cut, RefusesEmptyStages) {
  for (const std::vector<int>& begins : std::vector<std::vector<int>>{{0}, {3}, {2, 2}, {2, 1}, {100}, {-1}}) {
    EXPECT_NE(usageErrorOf([&] { static_cast<void>(cutAt(chain(3), begins)); }).find("would be empty"), std::string::npos);
  }
  EXPECT_EQ(cutAt(chain(3), {}).stages.size(), 1U);
}

/// A graph of up to 30 nodes over earlier values, inputs and state, with operators of every kind the cutter treats apart.
ModelGraph randomGraph(std::mt19937_64& random) {
  GraphBuilder b;
  std::vector<ValueId> values{b.input("x"),  b.input("y"),   b.parameter("w"), b.parameter("t", "shared"), b.parameter("u", "shared"),
                              b.buffer("c"), b.constant("k")};
  const auto any = [&] { return values[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(values.size()) - 1))]; };
  const std::int64_t nodes = draw(random, 3, 30);
  const std::vector<std::string> operators{"add", "view", "mul", "linear", "argmax", "arange", "bernoulli"};
  for (std::int64_t n = 0; n < nodes; ++n) {
    const std::string& op = operators[static_cast<std::size_t>(draw(random, 0, 6))];
    const auto meta = op == "argmax" ? GraphBuilder::rows(DType::Int64) : GraphBuilder::rows();
    std::vector<ValueId> reads;
    if (op != "arange") reads = {any(), any()};
    values.push_back(oneIn(random, 12) ? b.size(any(), "v" + std::to_string(n)) : b.op(op, reads, "v" + std::to_string(n), meta));
  }
  if (oneIn(random, 3)) b.output(any());
  return b.done(values.back());
}

TEST(Cut, LeavesNoReadUnansweredInRandomGraphs) {
  constexpr std::uint64_t kSeed = 20261;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    const ModelGraph graph = randomGraph(random);
    std::set<int> begins;
    const std::int64_t cuts = draw(random, 0, 4);
    for (std::int64_t c = 0; c < cuts; ++c)
      begins.insert(static_cast<int>(draw(random, 1, static_cast<std::int64_t>(graph.nodes.size()) - 1)));
    const Partition partition = cutAt(graph, {begins.begin(), begins.end()});
    expectEveryReadAvailable(graph, partition);
    const std::vector<bool> needs = needsGradient(graph), anywhere = recomputableNodes(graph);
    for (const Transfer& t : partition.transfers) {
      EXPECT_EQ(t.gradient, needs[t.value.index()]);
      EXPECT_FALSE(anywhere[graph.value(t.value).producer.index()]);
    }
    if (HasFailure()) FAIL() << "case " << i;
  }
}

}  // namespace
}  // namespace pw::test
