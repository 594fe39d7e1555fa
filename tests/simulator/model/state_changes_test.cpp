#include "simulator/model/state_changes.h"

#include <gtest/gtest.h>

#include "simulator/model/graph_facts.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;
using Strings = std::vector<std::string>;

/// `operator writes name`, with ` (read)` where results depend on it.
Strings changes(const ModelGraph& graph, const WrittenArguments& written = {}) {
  Strings found;
  for (const StateChange& change : stateChanges(graph, written)) {
    found.push_back(operatorName(*change.node) + " writes " + change.state->name + (change.isParameter ? ", a parameter" : "") +
                    (change.read ? " (read)" : ""));
  }
  return found;
}

TEST(StateChanges, AreThoseOfOperatorsInPlaceAlsoThroughViews) {
  GraphBuilder g;
  const ValueId x = g.input("x"), counter = g.buffer("counter"), table = g.buffer("table"), weight = g.parameter("weight");
  g.call("add_", {{"self", counter}, {"other", std::int64_t{1}}}, "more");
  const ValueId part = g.call("select", {{"self", table}, {"dim", std::int64_t{0}}, {"index", std::int64_t{0}}}, "part");
  g.call("copy_", {{"self", part}, {"src", x}}, "filled");
  g.call("clamp_", {{"self", weight}, {"min", 0.0}}, "positive");
  const ValueId own = g.call("relu", {{"self", x}}, "own");
  g.call("relu_", {{"self", own}}, "again");  // what the model computed itself
  EXPECT_EQ(changes(g.done(g.call("mul", {{"self", x}, {"other", table}}, "y"))),
            (Strings{"add_ writes counter", "copy_ writes table (read)", "clamp_ writes weight, a parameter"}));
}

TEST(StateChanges, OfPowerIterationAreInASubgraphByTheArgumentOut) {
  // As spectral_norm is traced: v = normalize(W^T u, out=v) without gradients, then W / (u . W v).
  GraphBuilder g;
  const ValueId x = g.input("x"), weight = g.parameter("weight"), u = g.buffer("u"), v = g.buffer("v");
  const TensorMeta vector = GraphBuilder::shape({4});
  const ValueId inW = g.call("clone", {{"self", weight}}, "w_inside"), inU = g.call("clone", {{"self", u}}, "u_inside"),
                inV = g.call("clone", {{"self", v}}, "v_inside");
  g.graph().nodes.clear();  // only their values are used: they stand for the sub-graph's inputs
  const ValueId turned = g.call("mv", {{"self", inW}, {"vec", inU}}, "turned", vector);
  const ValueId next = g.call("div", {{"self", turned}, {"other", turned}, {"out", inV}}, "next", vector);
  Subgraph inside{{inW, inU, inV}, {next}, g.graph().nodes};
  g.graph().nodes.clear();
  g.graph().subgraphs.push_back(inside);
  const ValueId result = g.call("torch.ops.higher_order.wrap_with_set_grad_enabled",
                                {{"", false}, {"", GraphArg{0}}, {"", weight}, {"", u}, {"", v}}, "result", vector);
  EXPECT_EQ(changes(g.done(g.call("mul", {{"self", x}, {"other", result}}, "y"))), Strings{"div writes v (read)"});
}

// nn.Embedding(max_norm=1) shortens the rows that the tokens select; a head that is tied to it reads them, one of its own does not.
TEST(StateChanges, NameAnEmbeddingThatIsShortenedAndReadByAHead) {
  const auto named = [](bool tied, bool shortens) {
    GraphBuilder g;
    const ValueId tokens = g.input("tokens"), table = g.parameter("table"), own = g.parameter("own");
    if (shortens) g.call("embedding_renorm_", {{"self", table}, {"indices", tokens}, {"max_norm", 1.0}, {"norm_type", 2.0}}, "shortened");
    const ValueId rows = g.call("embedding", {{"weight", table}, {"indices", tokens}}, "rows");
    const ModelGraph graph = g.done(g.call("linear", {{"input", rows}, {"weight", tied ? table : own}}, "y"));
    const StateTensor* found = parameterReadWhileChanged(graph);
    return found == nullptr ? std::string() : found->name;
  };
  EXPECT_EQ(named(true, true), "table");
  EXPECT_EQ(named(false, true), "");
  EXPECT_EQ(named(true, false), "");
}

// What autograd keeps of a table that renorm shortens, by how it is read; `inside`: in a region with or without gradients.
TEST(StateChanges, OfATableMatterOnlyToWhatKeepsItForItsBackward) {
  const NamedArgument maxNorm{"max_norm", 1.0}, normType{"norm_type", 2.0};
  const auto isNamed = [&](const auto& read) {
    GraphBuilder g;
    const ValueId tokens = g.input("tokens", GraphBuilder::rows(DType::Int64)), table = g.parameter("table");
    g.wrapped(false, "embedding_renorm_", {{"self", table}, {"indices", tokens}, maxNorm, normType}, {table, tokens}, "shortened");
    const ValueId rows = g.call("embedding", {{"weight", table}, {"indices", tokens}}, "rows");
    return parameterReadWhileChanged(g.done(read(g, tokens, table, rows))) != nullptr;
  };
  EXPECT_FALSE(isNamed([](GraphBuilder&, ValueId, ValueId, ValueId rows) { return rows; }));
  EXPECT_FALSE(isNamed([](GraphBuilder& g, ValueId, ValueId table, ValueId rows) {  // for a log
    g.output(g.call("norm", {{"self", g.call("detach", {{"self", table}}, "detached")}}, "size"));
    return rows;
  }));
  for (const bool gradients : {true, false}) {  // a tied head in a region
    EXPECT_EQ(isNamed([&](GraphBuilder& g, ValueId, ValueId table, ValueId rows) {
                return g.wrapped(gradients, "linear", {{"input", rows}, {"weight", table}}, {rows, table}, "y");
              }),
              gradients);
  }
  for (const bool trained : {true, false}) {  // weights of the samples, whose gradient is made of the table's rows
    EXPECT_EQ(isNamed([&](GraphBuilder& g, ValueId tokens, ValueId table, ValueId rows) {
                const ValueId weights = g.parameter("weights", "", trained);
                const ValueId bags =
                    g.call("embedding_bag", {{"weight", table}, {"indices", tokens}, {"offsets", tokens}, {"per_sample_weights", weights}},
                           "bags");
                return g.call("add", {{"self", rows}, {"other", bags}}, "y");
              }),
              trained);
  }
}

// counter += 1, x * counter and a view of it show what changes; a table that nothing writes into and a trained weight do not.
TEST(StateChanges, ShowInTheBuffersTheirViewsAndWhatIsWrittenInPlace) {
  GraphBuilder g;
  const ValueId x = g.input("x"), weight = g.parameter("weight"), counter = g.buffer("counter"), table = g.buffer("table");
  const ValueId next = g.call("add_", {{"self", counter}, {"other", 1.0}}, "next");
  const ValueId view = g.call("unsqueeze", {{"self", next}, {"dim", std::int64_t{0}}}, "view");
  const ValueId shorter = g.call("clamp_", {{"self", weight}, {"min", 0.0}}, "shorter");
  const ValueId y = g.call("mul", {{"self", x}, {"other", view}}, "y");
  const std::vector<bool> shows = showsChangedState(g.done(g.call("add", {{"self", y}, {"other", table}}, "z")));
  for (const ValueId shown : {counter, next, view}) EXPECT_TRUE(shows[shown.index()]) << shown.value;
  for (const ValueId other : {x, weight, table, shorter, y}) EXPECT_FALSE(shows[other.index()]) << other.value;
}

TEST(StateChanges, OfRunningStatisticsAreOnlyKept) {
  const auto norm = [](const std::string& op, const std::string& flag, bool on) {
    GraphBuilder g;
    const ValueId x = g.input("x"), mean = g.buffer("mean"), var = g.buffer("var");
    return changes(g.done(g.call(op, {{"input", x}, {"running_mean", mean}, {"running_var", var}, {flag, on}}, "y")));
  };
  EXPECT_EQ(norm("instance_norm", "use_input_stats", true), (Strings{"instance_norm writes mean", "instance_norm writes var"}));
  EXPECT_EQ(norm("batch_norm", "training", true), (Strings{"batch_norm writes mean", "batch_norm writes var"}));
  EXPECT_EQ(norm("instance_norm", "use_input_stats", false), Strings());
  EXPECT_EQ(norm("batch_norm", "training", false), Strings());
}

TEST(StateChanges, OfCustomOperatorsAreThoseOfTheirSchema) {
  GraphBuilder g;
  const ValueId x = g.input("x"), memory = g.buffer("memory");
  const ModelGraph graph = g.done(g.call("torch.ops.mine.remember.default", {{"x", x}, {"memory", memory}}, "y"));
  EXPECT_EQ(changes(graph), Strings());
  EXPECT_EQ(
      changes(graph, [](const std::string& target) { return target == "torch.ops.mine.remember.default" ? Strings{"memory"} : Strings(); }),
      Strings{"torch.ops.mine.remember.default writes memory (read)"});
}

}  // namespace
}  // namespace pw
