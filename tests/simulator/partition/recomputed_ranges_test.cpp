#include "simulator/partition/recomputed_ranges.h"

#include <gtest/gtest.h>

#include "simulator/partition/stage_costs.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

const Bindings kBindings{{"b", 2}};
constexpr Bytes kValue = 32;  ///< [2, 4] floats

std::vector<std::pair<int, int>> plain(const std::vector<NodeRange>& ranges) {
  std::vector<std::pair<int, int>> result;
  for (const NodeRange& r : ranges) result.emplace_back(r.begin.value, r.end.value);
  return result;
}
using Ranges = std::vector<std::pair<int, int>>;

/// Every node: forward 10, backward 20 of which 8 are W's; saves its output, and its backward makes one gradient, frees one and what it
/// saved.
Profile profile(std::size_t nodes) {
  Profile p;
  p.microbatch = 2;
  NodeCost cost{10, 20, 0, 0, kValue, 0};
  cost.weight = 8;
  cost.heldForWeight = 2 * kValue;
  cost.forwardPeak = kValue;
  cost.backwardPeak = cost.inputPeak = kValue;
  cost.backwardChange = -kValue;
  p.nodes.assign(nodes, cost);
  p.actionOverhead = 3;
  return p;
}

StageCost wholeModel(const Recompute& recompute) {
  const ModelGraph graph = chain(3);
  Partition partition = cutGraph(graph, {}, kBindings, nullptr);
  setRecompute(graph, partition, recompute);
  return costTable(graph, partition, profile(3), {.rankOfStage = {Rank(0)}}).stages[0];
}

TEST(ModuleRanges, AreTheCallsOfAModuleOrOfItsNumberedChildren) {
  GraphBuilder b;
  ValueId x = b.input("x");
  x = b.within({"blocks.0"}).op("sin", {x}, "a");
  x = b.within({"blocks.0", "blocks.0.mlp"}).op("sin", {x}, "c");
  x = b.within({"blocks.1"}).op("sin", {x}, "d");
  x = b.within({"head"}).op("sin", {x}, "e");
  x = b.within({"blocks.0"}).op("sin", {x}, "f");
  const ModelGraph graph = b.done(x);
  EXPECT_EQ(plain(moduleRanges(graph, {"blocks"})), (Ranges{{0, 2}, {2, 3}, {4, 5}}));
  EXPECT_EQ(plain(moduleRanges(graph, {"blocks.0"})), (Ranges{{0, 2}, {4, 5}}));
  EXPECT_EQ(plain(moduleRanges(graph, {"blocks.0.mlp", "head"})), (Ranges{{1, 2}, {3, 4}}));
  EXPECT_EQ(plain(moduleRanges(graph, {"blocks.0.mlp", "blocks.0"})), (Ranges{{0, 2}, {4, 5}})) << "the outer one";
  EXPECT_EQ(usageErrorOf([&] { static_cast<void>(moduleRanges(graph, {"block"})); }),
            "Model hand has no module block to recompute; `pipewright inspect` lists its modules.");
}

TEST(SetRecompute, CutsRangesAtStageBorders) {
  GraphBuilder b;
  ValueId x = b.input("x");
  for (int i = 0; i < 4; ++i)
    x = b.within({i < 3 ? "body" : "head"}).op("linear", {x, b.parameter("w" + std::to_string(i))}, "v" + std::to_string(i));
  const ModelGraph graph = b.done(x);
  Partition partition = cutGraph(graph, {NodeId(2)}, kBindings, nullptr);
  setRecompute(graph, partition, RecomputeModules{{"body"}});
  EXPECT_EQ(plain(partition.stages[0].checkpoints), (Ranges{{0, 2}}));
  EXPECT_EQ(plain(partition.stages[1].checkpoints), (Ranges{{2, 3}}));
  setRecompute(graph, partition, RecomputeFull());
  EXPECT_EQ(plain(partition.stages[1].checkpoints), (Ranges{{2, 4}}));
  setRecompute(graph, partition, RecomputeNone());
  EXPECT_TRUE(partition.stages[0].checkpoints.empty());
}

TEST(SetRecompute, RefusesWhatWouldChangeTwice) {
  const auto errorOf = [](const std::string& op, bool buffer, bool inside) {
    GraphBuilder b;
    const ValueId x = b.input("x"), w = b.parameter("w"), count = b.buffer("count");
    const ValueId h = b.within({"a"}).op("linear", {x, w}, "h");
    const ValueId entering = buffer ? count : inside ? b.within({"m"}).op("sin", {h}, "own") : h;
    const ModelGraph graph = b.done(b.within({"m"}).op(op, {entering}, "y"));
    Partition partition = cutGraph(graph, {}, kBindings, nullptr);
    return usageErrorOf([&] { setRecompute(graph, partition, RecomputeModules{{"m"}}); });
  };
  EXPECT_NE(errorOf("relu_", false, false)
                .find("relu_ (model.py:2) changes h in place, so that it would change twice when its forward runs again"),
            std::string::npos);
  EXPECT_NE(errorOf("add_", true, false).find("add_ (model.py:2) changes count in place"), std::string::npos);
  EXPECT_EQ(errorOf("relu_", false, true), "no error") << "its own value";
  EXPECT_EQ(errorOf("relu", false, false), "no error");
}

TEST(SetRecompute, RefusesWhatALaterOperatorChanges) {
  GraphBuilder b;
  const ValueId h = b.op("linear", {b.input("x"), b.parameter("w")}, "h");
  const ValueId y = b.within({"m"}).op("sin", {h}, "y");
  b.within({"end"}).op("mul_", {h, y}, "z");
  const ModelGraph graph = b.done(y);
  Partition partition = cutGraph(graph, {}, kBindings, nullptr);
  EXPECT_NE(usageErrorOf([&] {
              setRecompute(graph, partition, RecomputeModules{{"m"}});
            }).find("mul_ (model.py:3) changes h in place, which would be different"),
            std::string::npos);
}

/// Between a microbatch's forward and its backward, others run forward.
TEST(SetRecompute, RefusesStateThatAnEarlierOperatorChanges) {
  const auto obstacleOf = [](const std::string& op, const std::vector<NamedArgument>& more, bool readsMean) {
    GraphBuilder b;
    const ValueId x = b.input("x"), mean = b.buffer("mean"), other = b.buffer("other");
    std::vector<NamedArgument> arguments{{op == "add_" ? "self" : "input", op == "add_" ? mean : x}};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (op == "batch_norm") arguments.push_back({"running_mean", mean});
    const ValueId h = b.within({"a"}).call(op, arguments, "h");
    const ModelGraph graph = b.done(b.within({"m"}).op("sub", {h, readsMean ? mean : other}, "y"));
    return std::pair(obstacleToRecompute(graph, {NodeId(1), NodeId(2)}).value_or("none"),
                     obstacleToRecompute(graph, {NodeId(0), NodeId(1)}).value_or("none"));
  };
  const std::vector<NamedArgument> training{{"training", true}}, evaluating{{"training", false}};
  EXPECT_EQ(obstacleOf("add_", {{"other", std::int64_t{1}}}, true).first,
            "add_ (model.py:1) changes mean in place, which would be different when its forward runs again");
  EXPECT_EQ(obstacleOf("batch_norm", training, true).first,
            "batch_norm (model.py:1) changes mean in place, which would be different when its forward runs again");
  EXPECT_EQ(obstacleOf("batch_norm", training, false), (std::pair<std::string, std::string>("none", "none"))) << "its own statistics";
  EXPECT_EQ(obstacleOf("batch_norm", evaluating, true), (std::pair<std::string, std::string>("none", "none"))) << "which it does not move";
}

TEST(SetRecompute, TakesTheCounterOfBatchNormForAStatistic) {
  GraphBuilder b;
  const ValueId x = b.input("x"), count = b.buffer("bn.num_batches_tracked");
  b.within({"m"}).op("add_", {count}, "next");
  const ModelGraph graph = b.done(b.within({"m"}).op("sin", {x}, "y"));
  EXPECT_FALSE(obstacleToRecompute(graph, {NodeId(0), NodeId(2)}));
}

TEST(RecomputedRanges, AddExactlyTheirForwardToTheBackwardAndToItsInputPart) {
  const StageCost kept = wholeModel(RecomputeNone()), one = wholeModel(RecomputeModules{{"blocks.1"}}), full = wholeModel(RecomputeFull());
  EXPECT_EQ(kept.forward, 3 * 10 + 3);
  EXPECT_EQ(kept.backward, 3 * 20 + 3);
  EXPECT_EQ(kept.backwardInput, 3 * 12 + 3);
  EXPECT_EQ(kept.backwardWeight, 3 * 8 + 3);
  EXPECT_EQ(one.backward, kept.backward + 10);
  EXPECT_EQ(one.backwardInput, kept.backwardInput + 10);
  EXPECT_EQ(full.backward, kept.backward + 30);
  EXPECT_EQ(full.forward, kept.forward);
  EXPECT_EQ(full.backwardWeight, kept.backwardWeight);
}

TEST(RecomputedRanges, KeepWhatEntersAndLeavesAndHoldTheRestDuringTheBackward) {
  const StageCost kept = wholeModel(RecomputeNone()), full = wholeModel(RecomputeFull());
  // The input and three outputs. A backward has one gradient more at most: it makes one where it frees one and an output.
  EXPECT_EQ(kept.activationBytes, 4 * kValue);
  EXPECT_EQ(kept.forwardPeak, 4 * kValue);
  EXPECT_EQ(kept.backwardPeak, kValue);
  // W holds two values of each node, more than I could free.
  EXPECT_EQ(kept.freedByInput, 0);
  EXPECT_EQ(kept.addedByInput, 2 * kValue);
  // The input and the model's output; its forward has two values of its own at once.
  EXPECT_EQ(full.activationBytes, 2 * kValue);
  EXPECT_EQ(full.forwardPeak, 3 * kValue);
  // Three outputs again, and the gradient that the last node makes; that of the model's output is the loss's, which costs nothing here.
  EXPECT_EQ(full.backwardPeak, 4 * kValue);
}

TEST(RecomputedRanges, KeepOfTheModelsOutputsThatOfTheLoss) {
  ModelGraph graph = chain(3);
  graph.outputs.push_back(graph.nodes[1].outputs.front());  // the first remains what the loss is made of
  graph.outputNames.push_back(graph.value(graph.outputs.back()).name);
  Partition partition = cutGraph(graph, {}, kBindings, nullptr);
  setRecompute(graph, partition, RecomputeFull());
  const StageCost cost = costTable(graph, partition, profile(3), {.rankOfStage = {Rank(0)}}).stages[0];
  EXPECT_EQ(cost, wholeModel(RecomputeFull()));
}

TEST(StageFold, TakesThePeakOfAnInputGradientWhereWeightsWaitForW) {
  const ModelGraph graph = chain(3);
  const Partition partition = cutGraph(graph, {}, kBindings, nullptr);
  Profile p = profile(3);
  p.nodes[0].inputPeak = 0;  // its input needs no gradient: the whole backward computes the weight's alone
  p.nodes[0].backwardPeak = 20 * kValue;
  const StageCost cost = costTable(graph, partition, p, {.rankOfStage = {Rank(0)}}).stages[0];
  EXPECT_EQ(cost.backwardPeak, 18 * kValue) << "two nodes have freed one value each";
  EXPECT_LT(cost.inputPeak, 10 * kValue);
}

/// A stage that changes in place what it receives works on a copy; one that receives what was changed before does not.
TEST(StageFold, CountsTheCopyOfAReceivedValueThatIsChangedInPlace) {
  const auto activationsOf = [](const char* first, const char* second) {
    GraphBuilder b;
    const ValueId made = b.op("linear", {b.input("x"), b.parameter("w")}, "made"), changed = b.op(first, {made}, "changed");
    b.output(b.op(second, {changed}, "last"));
    const ModelGraph graph = b.graph();
    const Partition partition = cutGraph(graph, {NodeId(2)}, kBindings, nullptr);
    return costTable(graph, partition, profile(3), {.rankOfStage = {Rank(0), Rank(1)}}).stages[1].activationBytes;
  };
  const Bytes plain = activationsOf("relu", "relu");
  EXPECT_EQ(plain, 2 * kValue) << "what it receives and its output";
  EXPECT_EQ(activationsOf("relu", "relu_"), plain + kValue);
  EXPECT_EQ(activationsOf("relu_", "relu"), plain);
}

/// An operator that keeps its result frees it in the whole model's backward; as the output of a stage, or of a checkpointed range, it stays
/// until that backward returns.
TEST(StageFold, HoldsOutputsThatTheirOperatorsBackwardGivesBack) {
  const auto peakOf = [](const char* last, bool recompute) {
    GraphBuilder b;
    const ValueId made = b.op("linear", {b.input("x"), b.parameter("w")}, "made");
    const ModelGraph graph = b.done(b.op("linear", {b.op(last, {made}, "sent"), b.parameter("v")}, "y"));
    Partition partition = cutGraph(graph, {NodeId(2)}, kBindings, nullptr);
    if (recompute) setRecompute(graph, partition, RecomputeFull());
    Profile p = profile(3);
    p.nodes[0].backwardPeak = p.nodes[0].inputPeak = 20 * kValue;  // after that of the last
    return costTable(graph, partition, p, {.rankOfStage = {Rank(0), Rank(1)}}).stages[0].backwardPeak;
  };
  EXPECT_EQ(peakOf("tanh", false), peakOf("sin", false) + kValue);
  EXPECT_EQ(peakOf("tanh", true), peakOf("sin", true) + kValue);
}

/// Costs of the second stage of x → linear → OP → linear, cut before the operator: its activations, and what its I and B need.
StageCost secondStage(const char* op, const Profile& p) {
  GraphBuilder b;
  const ValueId made = b.op("linear", {b.input("x"), b.parameter("w")}, "made");
  const ModelGraph graph = b.done(b.op("linear", {b.op(op, {made}, "own"), b.parameter("v")}, "y"));
  const Partition partition = cutGraph(graph, {NodeId(1)}, kBindings, nullptr);
  return costTable(graph, partition, p, {.rankOfStage = {Rank(0), Rank(1)}}).stages[1];
}

/// A tanh does not keep its input, so the whole model frees that after it: `saved` is less by it. The stage holds what it received.
TEST(StageFold, HoldsWhatItReceivedWhereTheModelFreesIt) {
  Profile p = profile(3);
  const Bytes kept = secondStage("sin", p).activationBytes;
  p.nodes[1].saved -= kValue;
  EXPECT_EQ(secondStage("tanh", p).activationBytes, kept);
  p = profile(3);
  p.computing.precision = DType::BFloat16;
  p.nodes[0].flops = p.nodes[2].flops = 1;
  const Bytes inHalf = secondStage("sin", p).activationBytes;
  p.nodes[1].saved -= kValue / 2;  // a product's result has 16 bits
  EXPECT_EQ(secondStage("tanh", p).activationBytes, inHalf);
}

/// A square product's backward makes a gradient as large as the one that it gives back.
TEST(StageFold, KnowsThatAGradientIsGivenBackWhereBytesStayTheSame) {
  const auto peakOf = [](Bytes change) {
    GraphBuilder b;
    const ValueId made = b.op("linear", {b.op("linear", {b.input("x"), b.parameter("u")}, "first"), b.parameter("w")}, "made");
    const ModelGraph graph = b.done(b.op("linear", {made, b.parameter("v")}, "y"));
    Profile p = profile(3);
    p.nodes[1].backwardChange = change;
    p.nodes[0].backwardPeak = 20 * kValue;
    return costTable(graph, cutGraph(graph, {NodeId(2)}, kBindings, nullptr), p, {.rankOfStage = {Rank(0), Rank(1)}})
        .stages[0]
        .backwardPeak;
  };
  EXPECT_EQ(peakOf(0), peakOf(1) - 1) << "the caller holds that gradient while the first node runs";
}

/// Two outputs: the whole model adds the gradients of the skip up in the memory of the first. The caller holds what came for the skip, so
/// that the sum takes other memory.
TEST(StageFold, HoldsTheGradientOfEachOutputFromWhereItIsGivenBack) {
  const auto peakOf = [](bool skips) {
    GraphBuilder b;
    const ValueId skip = b.op("linear", {b.input("x"), b.parameter("u")}, "skip"), made = b.op("linear", {skip, b.parameter("w")}, "made");
    const ValueId next = b.op("linear", {made, b.parameter("v")}, "next");
    const ModelGraph graph = b.done(skips ? b.op("add", {next, skip}, "y") : b.op("sin", {next}, "y"));
    Profile p = profile(4);
    p.nodes[0].backwardPeak = 20 * kValue;
    return costTable(graph, cutGraph(graph, {NodeId(2)}, kBindings, nullptr), p, {.rankOfStage = {Rank(0), Rank(1)}})
        .stages[0]
        .backwardPeak;
  };
  EXPECT_EQ(peakOf(true), peakOf(false) + 3 * kValue) << "the skip, its gradient, and the sum with that of what is made of it";
}

}  // namespace
}  // namespace pw::test
