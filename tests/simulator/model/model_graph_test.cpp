#include "simulator/model/model_graph.h"
#include "simulator/model/join.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <limits>
#include <set>

#include "backends/pt2/read.h"
#include "schedules/error.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

std::string symbol(const std::string& name) { return "Symbol('" + name + "', positive=True, integer=True)"; }

std::int64_t valueOf(const std::string& expression, const Bindings& bindings = {{"s", 5}, {"t", -3}}) {
  return evaluate({0, expression}, bindings);
}

std::string errorOf(const std::string& expression) {
  const Bindings bindings{{"s", 5}, {"t", -3}};
  const std::string why = whyUnknown(SymbolicInt{0, expression}, bindings);
  EXPECT_EQ(knownNumber({0, expression}, bindings).has_value(), why.empty()) << expression;
  try {
    static_cast<void>(valueOf(expression));
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), why);
    return why;
  }
  return "no error";
}

void expectContains(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

TEST(Evaluate, LiteralsNeedNoBindings) {
  EXPECT_EQ(evaluate({7, ""}, {}), 7);
  EXPECT_EQ(valueOf("Integer(-12)"), -12);
  EXPECT_EQ(valueOf("42"), 42);
  EXPECT_EQ(valueOf("Integer(9223372036854775807)"), kLargest);
  EXPECT_EQ(valueOf("Integer(-9223372036854775808)"), std::numeric_limits<std::int64_t>::min());
}

TEST(Evaluate, KnowsTheFunctionsOfSizeExpressions) {
  const std::string s = symbol("s");
  const std::string t = symbol("t");
  EXPECT_EQ(valueOf(s), 5);
  EXPECT_EQ(valueOf("Add(Integer(1), " + s + ", " + t + ")"), 3);
  EXPECT_EQ(valueOf("Mul(Integer(8), Add(Integer(-1), " + s + "))"), 32);
  EXPECT_EQ(valueOf("Pow(" + s + ", Integer(3))"), 125);
  EXPECT_EQ(valueOf("Pow(Integer(0), Integer(0))"), 1);
  EXPECT_EQ(valueOf("Max(Integer(1), " + s + ", " + t + ")"), 5);
  EXPECT_EQ(valueOf("Min(Integer(1), " + s + ", " + t + ")"), -3);
  EXPECT_EQ(valueOf("StrictLessThan(" + t + ", " + s + ")"), 1);
  EXPECT_EQ(valueOf("Equality(" + t + ", " + s + ")"), 0);
}

TEST(Evaluate, DividesAndTakesRemaindersLikePython) {
  // Python: 5 // 2 == 2, -3 // 2 == -2, -3 % 2 == 1, 5 % -3 == -1, ceil(-3 / 2) == -1
  EXPECT_EQ(valueOf("FloorDiv(" + symbol("s") + ", Integer(2))"), 2);
  EXPECT_EQ(valueOf("FloorDiv(" + symbol("t") + ", Integer(2))"), -2);
  EXPECT_EQ(valueOf("Mod(" + symbol("t") + ", Integer(2))"), 1);
  EXPECT_EQ(valueOf("PythonMod(" + symbol("s") + ", " + symbol("t") + ")"), -1);
  EXPECT_EQ(valueOf("CeilDiv(" + symbol("s") + ", Integer(2))"), 3);
  EXPECT_EQ(valueOf("CeilDiv(" + symbol("t") + ", Integer(2))"), -1);
  EXPECT_EQ(valueOf("Mod(Integer(-9223372036854775808), Integer(-1))"), 0);
}

TEST(Evaluate, RefusesWhatItCannotKnowAndNamesIt) {
  expectContains(errorOf(symbol("u0")), "needs `u0`, which no input size gives");
  expectContains(errorOf("Sqrt(Integer(4), Integer(4))"), "uses `Sqrt`");
  expectContains(errorOf("FloorDiv(Integer(1), Integer(0))"), "divides by zero");
  expectContains(errorOf("Mod(Integer(1), Integer(0))"), "divides by zero");
  expectContains(errorOf("Pow(Integer(2), Integer(-1))"), "negative power");
  for (const char* large : {"Pow(Integer(2), Integer(63))", "Mul(Integer(9223372036854775807), Integer(2))", "Integer(9223372036854775808)",
                            "Add(Integer(9223372036854775807), Integer(1))", "FloorDiv(Integer(-9223372036854775808), Integer(-1))"}) {
    expectContains(errorOf(large), "exceeds 64 bits");
  }
  for (const char* broken : {"Symbol(", "Symbol('s'", "Symbol(s)", "Add(", "Add()", "Add(Integer(1)", "Integer()", "Integer(x)",
                             "Integer(1) 2", "s0 + 1", ",", "-", ")", "Mod(Integer(1))"}) {
    expectContains(errorOf(broken), "the size expression `");
  }
}

TEST(Evaluate, DeepNestingIsRefusedWithoutExhaustingTheStack) {
  std::string deep;
  for (int i = 0; i < 200000; ++i) {
    deep += "Add(";
  }
  expectContains(errorOf(deep), "nested too deeply");
  EXPECT_LT(errorOf(deep).size(), 400U);
}

TEST(DTypes, SizesAndNamesFollowTorch) {
  EXPECT_EQ(bytesPerElement(DType::BFloat16), 2);
  EXPECT_EQ(bytesPerElement(DType::Bool), 1);
  EXPECT_EQ(bytesPerElement(DType::ComplexDouble), 16);
  EXPECT_EQ(nameOf(DType::Float32), "float32");
  EXPECT_EQ(nameOf(DType::ComplexHalf), "complex32");
  EXPECT_TRUE(isDifferentiable(DType::BFloat16));
  EXPECT_FALSE(isDifferentiable(DType::Int64));
  EXPECT_FALSE(isDifferentiable(DType::Bool));
}

TEST(Sizes, BytesAreElementsTimesTheirSizeAndNeverOverflow) {
  const TensorMeta meta{DType::Float16, {{2, symbol("s")}, {3, ""}}, true, {}};
  EXPECT_EQ(shapeOf(meta, {{"s", 7}}), (std::vector<std::int64_t>{7, 3}));
  EXPECT_EQ(bytesOf(meta, {{"s", 7}}), 7 * 3 * 2);
  EXPECT_EQ(bytesOf({DType::Float64, {}, false, {}}, {}), 8);
  EXPECT_EQ(bytesOf({DType::Float64, {{kLargest, ""}, {kLargest, ""}, {0, ""}}, false, {}}, {}), 0);
  EXPECT_THROW(static_cast<void>(bytesOf({DType::Float64, {{kLargest, ""}}, false, {}}, {})), Error);
  EXPECT_THROW(static_cast<void>(shapeOf(meta, {{"s", -1}})), Error);
}

TEST(Sizes, AndStridesGiveTheOrderInMemory) {
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(memoryOrderOf({2, 3, 4}, {12, 4, 1}), Numbers{});
  EXPECT_EQ(memoryOrderOf({2, 3, 4}, {12, 1, 3}), (Numbers{0, 2, 1}));
  EXPECT_EQ(memoryOrderOf({17, 2, 64}, {64, 1088, 1}), (Numbers{1, 0, 2}));
  EXPECT_EQ(memoryOrderOf({2, 8, 5, 5}, {200, 1, 40, 8}), (Numbers{0, 2, 3, 1})) << "channels last";
  EXPECT_EQ(memoryOrderOf({1, 3, 4}, {1, 4, 1}), Numbers{}) << "strides of single elements mean nothing";
  EXPECT_EQ(memoryOrderOf({1, 3, 4}, {12, 1, 3}), (Numbers{0, 2, 1}));
  EXPECT_EQ(memoryOrderOf({2, 3}, {1, 4}), (Numbers{1, 0})) << "with gaps";
  EXPECT_EQ(memoryOrderOf({2, 3}, {4, 1}), Numbers{}) << "with gaps";
  EXPECT_EQ(memoryOrderOf({2, 3}, {0, 1}), Numbers{}) << "expanded";
  EXPECT_EQ(memoryOrderOf({2, 3}, {1, 0}), Numbers{}) << "expanded: strides of repeated elements say nothing";
  EXPECT_EQ(memoryOrderOf({3, 2}, {1, -3}), Numbers{});
  EXPECT_EQ(memoryOrderOf({0, 3}, {1, 0}), Numbers{});
  EXPECT_EQ(memoryOrderOf({kLargest, kLargest, 2}, {kLargest, 1, 7}), (Numbers{0, 2, 1})) << "more elements than can be counted";
  EXPECT_EQ(memoryOrderOf({}, {}), Numbers{});
}

TEST(Sizes, ThatDependOnDataAreUnknownAndSayWhy) {
  const TensorMeta meta{DType::Float16, {{3, ""}, {2, symbol("u0")}}, true, {}};
  EXPECT_EQ(knownShape(meta, {}), std::nullopt);
  EXPECT_EQ(knownBytes(meta, {}), std::nullopt);
  expectContains(whyUnknown(meta, {}), "needs `u0`, which no input size gives");
  EXPECT_EQ(knownShape(meta, {{"u0", 5}}), (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(knownBytes(meta, {{"u0", 5}}), 3 * 5 * 2);
  EXPECT_EQ(whyUnknown(meta, {{"u0", 5}}), "");
  EXPECT_EQ(knownBytes(meta, {{"u0", -5}}), std::nullopt);
  expectContains(whyUnknown(meta, {{"u0", -5}}), "a tensor size is negative");
  const TensorMeta large{DType::Float64, {{kLargest, ""}}, false, {}};
  EXPECT_TRUE(knownShape(large, {})) << "only its bytes are beyond 64 bits";
  EXPECT_EQ(knownBytes(large, {}), std::nullopt);
  expectContains(whyUnknown(large, {}), "is larger than any memory");
}

TEST(LinearForms, AreOfOneSymbolAndNothingElse) {
  const std::string s = symbol("s");
  const auto form = linearForm({0, "Add(Integer(3), Mul(Integer(2), " + s + "))"});
  ASSERT_TRUE(form);
  EXPECT_EQ(form->symbol, "s");
  EXPECT_EQ(form->factor, 2);
  EXPECT_EQ(form->constant, 3);
  for (const std::string& other : {"Pow(" + s + ", Integer(2))", "Add(" + s + ", " + symbol("t") + ")", "Sqrt(" + s + ")", "Add(" + s})
    EXPECT_FALSE(linearForm({0, other})) << other;
  EXPECT_EQ(symbolsOf({0, "Add(" + s + ", " + symbol("t") + ", " + s + ")"}), (std::set<std::string>{"s", "t"}));
}

/// A graph of inputs only.
ModelGraph graphOf(const std::vector<TensorMeta>& inputs) {
  ModelGraph graph;
  graph.name = "m";
  for (const TensorMeta& meta : inputs) {
    graph.inputs.emplace_back(graph.values.size());
    graph.values.push_back({"x" + std::to_string(graph.values.size()), ValueOrigin::Input, {}, meta, std::nullopt});
  }
  graph.outputs = graph.inputs;
  for (const ValueId output : graph.outputs) graph.outputNames.push_back(graph.value(output).name);
  return graph;
}

TensorMeta floats(const std::vector<SymbolicInt>& sizes) { return {DType::Float32, sizes, false, {}}; }

TEST(Join, KeepsNamesOfOutputsAndRenamesThoseOfTheTrace) {
  ModelGraph first = graphOf({floats({{2, ""}}), floats({{2, ""}})}), second = first;
  EXPECT_EQ(joinGraphs({first, second}).outputNames, first.outputNames) << "its values are those of the part before";
  second.outputNames[0] = "loss";
  EXPECT_EQ(joinGraphs({first, second}).outputNames, (std::vector<std::string>{"loss", "x1"}));
  second.values.push_back({"x0", ValueOrigin::Parameter, {}, floats({{2, ""}}), std::nullopt});  // a name that both parts use
  second.outputs[1] = ValueId(2);
  second.outputNames[1] = "x0";
  const ModelGraph joined = joinGraphs({first, second});
  EXPECT_EQ(joined.outputNames, (std::vector<std::string>{"loss", joined.value(joined.outputs[1]).name}));
  EXPECT_EQ(joined.outputNames[1], "part1.x0");
}

TEST(Batch, TheFirstSymbolicLeadingDimensionIsTheBatch) {
  const ModelGraph graph =
      graphOf({floats({}), floats({{9, ""}}), floats({{2, symbol("b")}, {16, symbol("length")}}), floats({{4, symbol("c")}})});
  EXPECT_EQ(batchSymbol(graph), "b");
  EXPECT_EQ(exportedBatch(graph), 2);
  EXPECT_EQ(bindBatch(graph, 8), (Bindings{{"b", 8}, {"length", 16}, {"c", 4}}));
  EXPECT_THROW(static_cast<void>(bindBatch(graph, 0)), UsageError);
}

TEST(Batch, IsInAnotherDimensionWhereNoLeadingOneIsSymbolic) {
  // [T, B, D], and a state [layers, B, H]; one input alone has a symbolic length.
  const ModelGraph graph = graphOf(
      {floats({{7, ""}, {3, symbol("length")}}), floats({{9, ""}, {2, symbol("b")}, {5, ""}}), floats({{1, ""}, {2, symbol("b")}})});
  EXPECT_EQ(batchSymbol(graph), "b");
  EXPECT_EQ(exportedBatch(graph), 2);
  EXPECT_EQ(bindBatch(graph, 8), (Bindings{{"b", 8}, {"length", 3}}));
}

TEST(Batch, AMultipleOfASymbolIsSolvedForIt) {
  const ModelGraph graph = graphOf({floats({{4, "Mul(Integer(2), " + symbol("h") + ")"}})});
  EXPECT_EQ(bindBatch(graph, 10), (Bindings{{"h", 5}}));
  EXPECT_THROW(static_cast<void>(bindBatch(graph, 9)), UsageError);
}

TEST(Batch, AnInputsSizeThatNobodyCanEvaluateIsRefused) {
  for (const char* broken : {"Sqrt(Symbol('b'))", "Add(Integer(1), Symbol('b')", "Symbol('b') 3"}) {
    const ModelGraph graph = graphOf({{DType::Float32, {{2, broken}, {16, ""}}, false, {}}});
    EXPECT_THROW(static_cast<void>(bindBatch(graph, 2)), Error) << broken;
  }
}

TEST(Batch, AFixedBatchAcceptsOnlyItself) {
  const ModelGraph graph = graphOf({floats({{3, ""}, {5, ""}})});
  EXPECT_EQ(batchSymbol(graph), "");
  EXPECT_EQ(exportedBatch(graph), 3);
  EXPECT_TRUE(bindBatch(graph, 3).empty());
  EXPECT_THROW(static_cast<void>(bindBatch(graph, 4)), UsageError);
}

TEST(Reads, EachValueOnceInArgumentOrder) {
  Node node;
  const ValueId a(0);
  const ValueId b(1);
  const ValueId c(2);
  node.inputs = {{"", std::vector<std::optional<ValueId>>{c, std::nullopt}},
                 {"", a},
                 {"", std::vector<IntOrValue>{a, std::int64_t{0}, b}},
                 {"", std::int64_t{3}},
                 {"", std::vector<ValueId>{b, c}}};
  EXPECT_EQ(readsOf(node), (std::vector<ValueId>{c, a, b}));
}

std::string joinError(const ModelGraph& first, const ModelGraph& second) {
  try {
    static_cast<void>(joinGraphs({first, second}));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Join, BordersMustAgreeInCountTypeAndSize) {
  const ModelGraph first = graphOf({floats({{2, symbol("s")}, {5, ""}})});
  EXPECT_EQ(joinError(first, graphOf({floats({{4, symbol("z")}, {5, ""}})})), "no error");  // another batch at export is no difference
  expectContains(joinError(first, graphOf({floats({{2, symbol("z")}, {6, ""}})})), "dimension 1 is 5 for a batch of 2, expected 6");
  expectContains(joinError(first, graphOf({floats({{2, ""}, {5, ""}})})), "dimension 0 is 4 for a batch of 4, expected 2");
  expectContains(joinError(first, graphOf({{DType::Float16, {{2, symbol("z")}, {5, ""}}, false, {}}})), "it is float32, expected float16");
  expectContains(joinError(first, graphOf({floats({{2, symbol("z")}})})), "it has 2 dimensions, expected 1");
  expectContains(joinError(first, graphOf({floats({{2, symbol("z")}, {5, ""}}), floats({})})),
                 "gives 1 outputs, but part 1 (m) takes 2 inputs");
  EXPECT_THROW(static_cast<void>(joinGraphs({})), UsageError);
}

TEST(Join, TwoArchivesBecomeOneGraphWithAMarkerBetween) {
  const std::string folder = std::string(PW_SOURCE_DIR) + "/resources/models/";
  const ModelGraph a = readPt2(folder + "two_part_a.pt2");
  const ModelGraph b = readPt2(folder + "two_part_b.pt2");
  const ModelGraph joined = joinGraphs({a, b});
  EXPECT_EQ(joined.name, "two_part_a+two_part_b");
  EXPECT_EQ(joined.files, (std::vector<std::string>{a.files[0], b.files[0]}));
  ASSERT_EQ(joined.nodes.size(), a.nodes.size() + b.nodes.size());
  EXPECT_EQ(joined.values.size(), a.values.size() + b.values.size() - 1);  // the border is one value
  EXPECT_EQ(joined.splitMarkers, std::vector<NodeId>{NodeId(a.nodes.size())});
  EXPECT_EQ(joined.parameters.size(), a.parameters.size() + b.parameters.size());
  EXPECT_EQ(joined.inputs, a.inputs);
  EXPECT_EQ(batchSymbol(joined), batchSymbol(a));

  std::vector<std::string> names;
  for (const StateTensor& parameter : joined.parameters) {
    names.push_back(parameter.name);
    const bool isSecond = parameter.stored->file == 1;
    EXPECT_TRUE(parameter.storage.starts_with(isSecond ? "1:weights/" : "0:weights/")) << parameter.storage;
    EXPECT_EQ(parameter.name.starts_with("part1.") || parameter.name.starts_with("norm.") || parameter.name.starts_with("head."), isSecond);
  }
  EXPECT_EQ(std::count(names.begin(), names.end(), "part0.block.mlp.up.weight"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "part1.block.mlp.up.weight"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "embed.weight"), 1);

  const Bindings seven = bindBatch(joined, 7);
  EXPECT_EQ(shapeOf(*joined.value(joined.outputs.at(0)).tensor, seven), (std::vector<std::int64_t>{7, 16, 64}));
  for (std::size_t i = 0; i < joined.nodes.size(); ++i) {
    for (const ValueId id : readsOf(joined.nodes[i])) {
      const Value& value = joined.value(id);
      EXPECT_TRUE(value.origin != ValueOrigin::Node || value.producer.index() < i) << value.name;
      EXPECT_TRUE(!value.tensor || knownBytes(*value.tensor, seven)) << value.name;
    }
  }
}

TEST(Join, OnePartStaysAsItIs) {
  const ModelGraph graph = readPt2(std::string(PW_SOURCE_DIR) + "/resources/models/hf_llama.pt2");
  EXPECT_EQ(joinGraphs({graph}), graph);
}

TEST(Join, SizesThatDependOnDataStayApart) {
  ModelGraph first = graphOf({floats({{2, symbol("s")}})});
  ModelGraph second = graphOf({floats({{2, symbol("s")}})});
  for (ModelGraph* part : {&first, &second}) {
    part->values.push_back({"rows", ValueOrigin::Node, {}, floats({{0, symbol("u0")}}), std::nullopt});
  }
  const ModelGraph joined = joinGraphs({first, second});
  EXPECT_EQ(joined.values.at(1).tensor->sizes.at(0).expression, symbol("u0"));
  EXPECT_EQ(joined.values.at(2).tensor->sizes.at(0).expression, symbol("part1.u0"));
}

}  // namespace
}  // namespace pw
