#include "simulator/model/graph_facts.h"

#include <gtest/gtest.h>

#include "simulator/partition/partition.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

Node nodeOf(const std::string& target, std::vector<NamedArgument> inputs = {}) { return {target, std::move(inputs), {}, false, {}, ""}; }
Node aten(const std::string& name, std::vector<NamedArgument> inputs = {}) {
  return nodeOf("torch.ops.aten." + name + ".default", std::move(inputs));
}

TEST(OperatorName, IsTheAtenNameWithoutOverloadOrTheWholeTarget) {
  EXPECT_EQ(operatorName(nodeOf("torch.ops.aten.add.Tensor")), "add");
  EXPECT_EQ(operatorName(nodeOf("torch.ops.aten.relu_.default")), "relu_");
  EXPECT_EQ(operatorName(nodeOf("_operator.mul")), "_operator.mul");
  EXPECT_EQ(operatorName(nodeOf("torch.ops.custom.add.default")), "torch.ops.custom.add.default");
}

TEST(RandomOperator, DropoutDrawsOnlyInTrainingWithAProbability) {
  EXPECT_TRUE(isRandomOperator(aten("dropout", {{"p", 0.1}, {"train", true}})));
  EXPECT_TRUE(isRandomOperator(aten("dropout_", {{"p", 0.1}, {"train", true}})));
  EXPECT_FALSE(isRandomOperator(aten("dropout", {{"p", 0.0}, {"train", true}})));
  EXPECT_FALSE(isRandomOperator(aten("dropout", {{"p", 0.1}, {"train", false}})));
  EXPECT_FALSE(isRandomOperator(aten("rrelu", {{"training", false}})));
  EXPECT_TRUE(isRandomOperator(aten("scaled_dot_product_attention", {{"dropout_p", 0.5}})));
  EXPECT_FALSE(isRandomOperator(aten("scaled_dot_product_attention", {{"dropout_p", 0.0}})));
}

TEST(RandomOperator, IsKnownByItsWholeName) {
  for (const char* name :
       {"rand", "randn_like", "randint", "randint_like", "randperm", "bernoulli", "bernoulli_", "normal_", "multinomial", "uniform_"}) {
    EXPECT_TRUE(isRandomOperator(aten(name))) << name;
  }
  for (const char* name : {"poisson_nll_loss", "normalize", "relu", "linear", "uniformly"})
    EXPECT_FALSE(isRandomOperator(aten(name))) << name;
}

TEST(InPlace, IsATrailingUnderscoreOrAnAugmentedAssignment) {
  for (const char* name : {"relu_", "add_", "__iadd__", "index_put_"}) EXPECT_TRUE(isInPlace(aten(name))) << name;
  for (const char* name : {"relu", "__and__", "add"}) EXPECT_FALSE(isInPlace(aten(name))) << name;
  EXPECT_FALSE(isInPlace(nodeOf("custom_")));
}

TEST(View, ADropoutThatIsOffReturnsItsArgument) {
  EXPECT_TRUE(isView(aten("transpose")));
  EXPECT_TRUE(isView(aten("dropout", {{"p", 0.1}, {"train", false}})));
  EXPECT_FALSE(isView(aten("dropout", {{"p", 0.1}, {"train", true}})));
  EXPECT_FALSE(isView(aten("clone")));
}

TEST(ViewedBase, FollowsViewsAndChangesInPlaceToWhatWasComputed) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId base = b.op("mul", {x, x}, "base");
  const ValueId relu = b.op("relu_", {b.op("view", {base}, "view")}, "relu_");
  const ValueId last = b.op("transpose", {relu}, "last");
  const ValueId copy = b.op("clone", {last}, "copy");
  const ValueId ofInput = b.op("unsqueeze", {x}, "of_input");
  const ModelGraph graph = b.done(copy);
  EXPECT_EQ(viewedBase(graph, last), base);
  EXPECT_EQ(viewedBase(graph, copy), copy);
  EXPECT_EQ(viewedBase(graph, ofInput), x);
  const std::vector<bool> changed = changedInPlace(graph);
  EXPECT_TRUE(changed[base.index()] && changed[relu.index()] && changed[last.index()]);
  EXPECT_FALSE(changed[copy.index()] || changed[x.index()] || changed[ofInput.index()]);
}

TEST(ChangedInPlace, BatchNormMovesItsStatisticsInTrainingOnly) {
  for (const bool training : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x"), mean = b.buffer("mean"), weight = b.parameter("w");
    const ValueId y = b.call("batch_norm", {{"input", x}, {"weight", weight}, {"running_mean", mean}, {"training", training}}, "y");
    const std::vector<bool> changed = changedInPlace(b.done(y));
    EXPECT_EQ(changed[mean.index()], training);
    EXPECT_FALSE(changed[x.index()] || changed[weight.index()] || changed[y.index()]);
  }
}

TEST(NeedsGradient, FollowsTrainedParametersThroughFloatingPointValues) {
  GraphBuilder b;
  const ValueId x = b.input("x"), trained = b.parameter("w"), frozen = b.parameter("frozen", "", false);
  const ValueId fromFrozen = b.op("linear", {x, frozen}, "from_frozen");
  const ValueId hidden = b.op("linear", {x, trained}, "hidden");
  const ValueId index = b.op("argmax", {hidden}, "index", GraphBuilder::rows(DType::Int64));
  const ValueId looked = b.op("embedding", {frozen, index}, "looked");
  const ValueId detached = b.op("detach", {hidden}, "detached");
  const ValueId noGrad = b.wrapped(false, "mul", {{"", hidden}, {"", hidden}}, {hidden}, "no_grad");
  const ValueId grad = b.wrapped(true, "mul", {{"", hidden}, {"", hidden}}, {hidden}, "grad");
  const std::vector<bool> needs = needsGradient(b.done(grad));
  for (const ValueId v : {trained, hidden, grad}) EXPECT_TRUE(needs[v.index()]) << v.value;
  for (const ValueId v : {x, frozen, fromFrozen, index, looked, detached, noGrad}) EXPECT_FALSE(needs[v.index()]) << v.value;
}

TEST(NeedsGradient, WhatIsWrittenThroughAViewReachesTheViewed) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId computed = b.op("linear", {x, w}, "computed");
  const ValueId canvas = b.op("zeros_like", {x}, "canvas");
  const ValueId written = b.op("copy_", {b.op("select", {canvas}, "column"), computed}, "written");
  const ValueId after = b.op("mul", {canvas, x}, "after");
  const std::vector<bool> needs = needsGradient(b.done(after));
  EXPECT_TRUE(needs[written.index()] && needs[canvas.index()] && needs[after.index()]);
  EXPECT_FALSE(needs[x.index()]);
}

TEST(UnreachedParameters, AreThoseThatTheLossGivesNoGradient) {
  GraphBuilder b;
  const ValueId x = b.input("x"), used = b.parameter("used"), unused = b.parameter("unused"), before = b.parameter("before");
  const ValueId written = b.parameter("written"), frozen = b.parameter("frozen", "", false);
  b.op("linear", {x, unused}, "unused_head");
  const ValueId detached = b.op("detach", {b.op("linear", {x, before}, "hidden")}, "detached");
  const ValueId canvas = b.op("zeros_like", {x}, "canvas");
  b.op("copy_", {b.op("select", {canvas}, "column"), b.op("linear", {x, written}, "computed")}, "filled");
  const ValueId both = b.op("add", {b.op("linear", {detached, used}, "seen"), b.op("linear", {canvas, frozen}, "late")}, "both");
  EXPECT_EQ(unreachedParameters(b.done(both), both), (std::vector<std::string>{"unused", "before"}));
}

TEST(Recomputable, IsWhatDependsOnInputsBuffersAndConstantsOnly) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w"), frozen = b.parameter("frozen", "", false), table = b.buffer("table"),
                moved = b.buffer("moved");
  b.op("arange", {}, "0_positions");
  b.op("add", {table, b.constant("c")}, "1_mask");
  b.op("linear", {x, w}, "2_trained");
  b.op("linear", {x, frozen}, "3_frozen");
  b.call("dropout", {{"", x}, {"p", 0.5}, {"train", true}}, "4_random");
  b.op("add_", {moved, x}, "5_changes");
  b.op("mul", {moved, x}, "6_reads_changed");
  b.wrapped(false, "mul", {{"", x}, {"", x}}, {x}, "7_rotary");
  b.wrapped(false, "rand_like", {{"", x}}, {x}, "8_random_inside");
  const ValueId scratch = b.op("clone", {x}, "9_scratch");
  b.wrapped(false, "add_", {{"", scratch}, {"", x}}, {scratch}, "10_changes_inside");
  const ValueId size = b.size(x, "11_size");
  const ValueId last = b.op("full", {size}, "12_of_size");
  const std::vector<bool> expected{true, true, false, false, false, false, false, true, false, false, false, true, true};
  EXPECT_EQ(recomputableNodes(b.done(last)), expected);
}

TEST(KeptTogether, JoinsAValueWithTheChangeThatItsOlderNamesSee) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId base = b.op("mul", {x, x}, "base");        // 0
  const ValueId view = b.op("view", {base}, "view");       // 1
  const ValueId idle = b.op("mul", {x, x}, "idle");        // 2
  b.op("relu_", {base}, "relu_");                          // 3
  const ValueId late = b.op("add", {view, idle}, "late");  // 4: sees relu_ through the view
  const ValueId plain = b.op("relu_", {late}, "plain");    // 5: nobody reads `late` any more
  const ModelGraph graph = b.done(plain);
  EXPECT_EQ(keptTogether(graph), (std::vector<KeptTogether>{{NodeId(0), NodeId(3), NodeId(3), base}}));
}

TEST(KeptTogether, JoinsAllReadersOfABufferThatIsChanged) {
  GraphBuilder b;
  const ValueId x = b.input("x"), counter = b.buffer("counter"), quiet = b.buffer("quiet");
  const ValueId a = b.op("add", {x, counter}, "a");  // 0
  const ValueId c = b.op("add", {a, quiet}, "c");    // 1
  b.op("add_", {counter, x}, "counter_");            // 2
  const ValueId d = b.op("add", {c, quiet}, "d");    // 3
  EXPECT_EQ(keptTogether(b.done(d)), (std::vector<KeptTogether>{{NodeId(0), NodeId(2), NodeId(2), counter}}));
}

TEST(IndexByValue, FindsStateByItsValue) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w"), v = b.parameter("v");
  const ModelGraph graph = b.done(b.op("linear", {x, v}, "y"));
  const std::vector<int> index = indexByValue(graph, graph.parameters);
  EXPECT_EQ(index[x.index()], -1);
  EXPECT_EQ(index[w.index()], 0);
  EXPECT_EQ(index[v.index()], 1);
}

}  // namespace
}  // namespace pw::test
