#include "backends/pt2/graph.h"
#include "backends/pt2/metadata.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "schedules/error.h"

namespace pw::pt2 {
namespace {

Json tensorArgument(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }

Json sizeOf(std::int64_t size) { return {{"as_int", size}}; }

Json meta(const std::vector<std::int64_t>& sizes) {
  Json list = Json::array(), strides = Json::array();
  std::int64_t inner = 1;
  for (std::size_t i = sizes.size(); i-- > 0; inner *= sizes[i]) strides.insert(strides.begin(), sizeOf(inner));
  for (const std::int64_t size : sizes) list.push_back(sizeOf(size));
  return {{"dtype", 7},
          {"sizes", list},
          {"requires_grad", false},
          {"device", {{"type", "cpu"}}},
          {"strides", strides},
          {"storage_offset", sizeOf(0)}};
}

/// Writes model.json texts: a parameter `p_w` (`w`), a buffer `b_c` (`c`), an input `x`, all float32 [2, 3].
class Model {
 public:
  Model() {
    json_ = {{"schema_version", {{"major", 8}, {"minor", 17}}},
             {"graph_module", {{"graph", emptyGraph()}, {"signature", {{"input_specs", Json::array()}, {"output_specs", Json::array()}}}}}};
    spec("parameter", {{"arg", {{"name", "p_w"}}}, {"parameter_name", "w"}});
    spec("buffer", {{"arg", {{"name", "b_c"}}}, {"buffer_name", "c"}, {"persistent", true}});
    spec("user_input", {{"arg", tensorArgument("x")}});
    for (const char* name : {"p_w", "b_c", "x"}) {
      graph()["tensor_values"][name] = meta({2, 3});
    }
  }

  static Json emptyGraph() {
    return {{"inputs", Json::array()},           {"outputs", Json::array()},         {"nodes", Json::array()},
            {"tensor_values", Json::object()},   {"sym_int_values", Json::object()}, {"sym_bool_values", Json::object()},
            {"sym_float_values", Json::object()}};
  }

  static Json node(const std::string& target, const std::vector<Json>& inputs, const std::vector<Json>& outputs) {
    Json list = Json::array();
    for (const Json& input : inputs) {
      list.push_back({{"name", ""}, {"arg", input}, {"kind", 1}});
    }
    Json results = Json::array();
    for (const Json& output : outputs) {
      results.push_back(output);
    }
    return {{"target", target}, {"inputs", list}, {"outputs", results}, {"metadata", Json::object()}, {"name", "n"}};
  }

  /// Appends `torch.ops.<op>(reads…) -> result`; no result where the name is empty.
  void call(const std::string& op, const std::vector<std::string>& reads, const std::string& result) {
    std::vector<Json> inputs;
    for (const std::string& read : reads) {
      inputs.push_back(tensorArgument(read));
    }
    add(node("torch.ops." + op, inputs, result.empty() ? std::vector<Json>() : std::vector<Json>{tensorArgument(result)}));
    if (!result.empty()) {
      declare(result);
    }
  }

  void add(const Json& json) { graph()["nodes"].push_back(json); }
  void declare(const std::string& name) { graph()["tensor_values"][name] = meta({2, 3}); }
  void spec(const std::string& kind, const Json& content) { signature()["input_specs"].push_back({{kind, content}}); }
  void output(const std::string& name) { signature()["output_specs"].push_back({{"user_output", {{"arg", tensorArgument(name)}}}}); }
  Json& graph() { return json_["graph_module"]["graph"]; }
  Json& signature() { return json_["graph_module"]["signature"]; }
  Json& document() { return json_; }

  [[nodiscard]] ModelGraph read() const { return buildGraph({"m.pt2", "m", {}}, {{kModelEntry, json_.dump()}}); }

  [[nodiscard]] std::string error() const {
    try {
      static_cast<void>(read());
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  Json json_;
};

std::string nameOf(const ModelGraph& graph, ValueId id) { return graph.value(id).name; }

std::string firstRead(const ModelGraph& graph, std::size_t node) { return nameOf(graph, readsOf(graph.nodes[node]).at(0)); }

void expectContains(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

TEST(Pt2InPlace, AChainOfChangesIsFollowedThroughEveryName) {
  Model model;
  model.call("aten.add.Tensor", {"x", "p_w"}, "a");
  model.call("aten.relu_.default", {"a"}, "b");
  model.call("aten.mul_.Tensor", {"a", "p_w"}, "c");  // changes what both `a` and `b` name
  model.call("aten.cos.default", {"b"}, "d");
  model.call("aten.__ior__.Tensor", {"d", "x"}, "e");
  model.call("aten.__or__.Tensor", {"d", "x"}, "f");
  model.output("a");
  const ModelGraph graph = model.read();
  EXPECT_EQ(firstRead(graph, 1), "a");
  EXPECT_EQ(firstRead(graph, 2), "b");
  EXPECT_EQ(firstRead(graph, 3), "c");
  EXPECT_EQ(firstRead(graph, 5), "e");
  EXPECT_EQ(nameOf(graph, graph.outputs.at(0)), "c");
}

TEST(Pt2InPlace, StateAndChangesWithoutResultKeepTheirNames) {
  Model model;
  model.call("aten.add_.Tensor", {"b_c", "x"}, "a");
  model.call("aten.mul_.Tensor", {"p_w", "x"}, "b");
  model.call("aten.zero_.default", {"x"}, "");
  model.call("aten.__and__.Tensor", {"b_c", "p_w"}, "c");
  model.call("aten.cos.default", {"x"}, "d");
  const ModelGraph graph = model.read();
  EXPECT_EQ(firstRead(graph, 3), "b_c");
  EXPECT_EQ(nameOf(graph, readsOf(graph.nodes[3]).at(1)), "p_w");
  EXPECT_EQ(firstRead(graph, 4), "x");
}

/// A no_grad region that runs `op` on its operand, reading outer `operand`.
Json region(const std::string& op, const std::string& operand) {
  Json inner = Model::emptyGraph();
  inner["inputs"].push_back(tensorArgument("x"));
  inner["tensor_values"]["x"] = meta({2, 3});
  inner["tensor_values"]["y"] = meta({2, 3});
  inner["nodes"].push_back(Model::node(op, {tensorArgument("x")}, {tensorArgument("y")}));
  inner["outputs"].push_back(tensorArgument("y"));
  return Model::node("torch.ops.higher_order.wrap_with_set_grad_enabled",
                     {{{"as_bool", false}}, {{"as_graph", {{"name", "submod"}, {"graph", inner}}}}, tensorArgument(operand)},
                     {tensorArgument("r")});
}

TEST(Pt2Subgraphs, NamesInsideAreLocal) {
  Model model;
  model.add(region("torch.ops.aten.cos.default", "x"));
  model.declare("r");
  model.call("aten.cos.default", {"x"}, "y");
  const ModelGraph graph = model.read();
  const Subgraph& inner = graph.subgraphs.at(0);
  EXPECT_EQ(std::get<GraphArg>(graph.nodes[0].inputs[1].value).index, 0U);
  EXPECT_EQ(nameOf(graph, inner.inputs.at(0)), "x");
  EXPECT_NE(inner.inputs.at(0), graph.inputs.at(0));
  EXPECT_EQ(readsOf(inner.nodes.at(0)).at(0), inner.inputs.at(0));
  EXPECT_NE(inner.outputs.at(0), graph.nodes[1].outputs.at(0));
}

TEST(Pt2Subgraphs, AnOperandChangedInsideMustNotBeReadAfterwards) {
  Model model;
  model.add(region("torch.ops.aten.relu_.default", "x"));
  model.declare("r");
  EXPECT_EQ(model.error(), "no error");
  model.call("aten.cos.default", {"x"}, "y");
  expectContains(model.error(), "`x` after");
  Model state;
  state.add(region("torch.ops.aten.relu_.default", "b_c"));
  state.declare("r");
  state.call("aten.cos.default", {"b_c"}, "y");
  EXPECT_EQ(state.error(), "no error");
}

TEST(Pt2Subgraphs, DepthIsLimitedAndStagesCannotBeginInside) {
  Model model;
  Json json = region("torch.ops.aten.cos.default", "x");
  for (int i = 0; i < 17; ++i) {
    Json outer = region("torch.ops.aten.cos.default", "x");
    outer["inputs"][1]["arg"]["as_graph"]["graph"]["nodes"].push_back(json);
    outer["inputs"][1]["arg"]["as_graph"]["graph"]["tensor_values"]["r"] = meta({2, 3});
    json = outer;
  }
  model.add(json);
  model.declare("r");
  expectContains(model.error(), "too deeply");
  Model split;
  split.add(region("torch.ops.pippy._pipe_split.default", "x"));
  expectContains(split.error(), "pipe_split() is called inside");
}

TEST(Pt2Splits, MarksAtTheEndsAndDoubleMarksDoNotMakeEmptyStages) {
  Model model;
  const Json mark = Model::node("torch.ops.pippy._pipe_split.default", {}, {});
  model.add(mark);
  model.call("aten.cos.default", {"x"}, "a");
  model.add(mark);
  model.add(mark);
  model.call("aten.cos.default", {"a"}, "b");
  model.add(mark);
  EXPECT_EQ(model.read().splitMarkers, std::vector<NodeId>{NodeId(1)});
}

TEST(Pt2Arguments, EveryKindKeepsItsValue) {
  Model model;
  model.graph()["sym_int_values"]["s"] = {{"as_expr", {{"expr_str", "Symbol('s7')"}, {"hint", {{"as_int", 2}}}}}};
  model.graph()["sym_bool_values"]["t"] = {
      {"as_expr", {{"expr_str", "StrictLessThan(Symbol('s7'), Integer(4))"}, {"hint", {{"as_bool", true}}}}}};
  model.add(Model::node("torch.ops.aten.sym_size.int", {tensorArgument("x")},
                        {{{"as_sym_int", {{"as_name", "s"}}}}, {{"as_sym_bool", {{"as_name", "t"}}}}}));
  model.add(Model::node("torch.ops.aten.any.default",
                        {{{"as_none", true}},
                         {{"as_int", -3}},
                         {{"as_ints", {1, 2}}},
                         {{"as_float", "-Infinity"}},
                         {{"as_floats", {0.5, 1}}},
                         {{"as_string", "gelu"}},
                         {{"as_strings", {"a", "b"}}},
                         {{"as_sym_int", {{"as_name", "s"}}}},
                         {{"as_sym_int", {{"as_int", 4}}}},
                         {{"as_sym_ints", Json::array({{{"as_name", "s"}}, {{"as_int", -1}}})}},
                         {{"as_scalar_type", 13}},
                         {{"as_memory_format", 2}},
                         {{"as_layout", 7}},
                         {{"as_device", {{"type", "cpu"}, {"index", nullptr}}}},
                         {{"as_bool", true}},
                         {{"as_bools", {true, false}}},
                         {{"as_sym_bool", {{"as_name", "t"}}}},
                         {{"as_optional_tensors", Json::array({tensorArgument("x"), {{"as_none", true}}})}},
                         {{"as_sym_float", {{"as_float", 2.5}}}},
                         {{"as_optional_tensor", {{"as_none", true}}}},
                         {{"as_complex", {{"real", 1.0}, {"imag", -1.0}}}},
                         {{"as_tensors", Json::array({{{"name", "p_w"}}})}}},
                        {}));
  const ModelGraph graph = model.read();
  const ValueId s = graph.nodes[0].outputs.at(0);
  const ValueId t = graph.nodes[0].outputs.at(1);
  EXPECT_EQ(graph.value(s).symbolic, (SymbolicInt{2, "Symbol('s7')"}));
  EXPECT_EQ(graph.value(t).symbolic->hint, 1);
  const ValueId x = graph.inputs.at(0);
  const ValueId w = graph.parameters.at(0).value;
  const std::vector<Argument> expected{NoneArg{},
                                       std::int64_t{-3},
                                       std::vector<std::int64_t>{1, 2},
                                       -std::numeric_limits<double>::infinity(),
                                       std::vector<double>{0.5, 1.0},
                                       std::string("gelu"),
                                       std::vector<std::string>{"a", "b"},
                                       s,
                                       std::int64_t{4},
                                       std::vector<IntOrValue>{s, std::int64_t{-1}},
                                       ScalarTypeArg{DType::BFloat16},
                                       MemoryFormatArg{2},
                                       LayoutArg{7},
                                       DeviceArg{"cpu"},
                                       true,
                                       std::vector<bool>{true, false},
                                       t,
                                       std::vector<std::optional<ValueId>>{x, std::nullopt},
                                       2.5,
                                       NoneArg{},
                                       ComplexArg{1.0, -1.0},
                                       std::vector<ValueId>{w}};
  ASSERT_EQ(graph.nodes[1].inputs.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(graph.nodes[1].inputs[i].value, expected[i]) << "argument " << i;
  }
  EXPECT_EQ(readsOf(graph.nodes[1]), (std::vector<ValueId>{s, t, x, w}));
}

TEST(Pt2Arguments, KindsWithoutAFormAreRefusedWithTheNode) {
  for (const char* kind :
       {"as_custom_obj", "as_operator", "as_nested_tensors", "as_int_lists", "as_string_to_argument", "as_something_new"}) {
    Model model;
    model.add(Model::node("torch.ops.my.op", {{{kind, Json::array()}}}, {}));
    expectContains(model.error(), "node `n` (torch.ops.my.op) has an argument of kind " + std::string(kind));
  }
}

TEST(Pt2Outputs, ListsNonesAndUnusedResultsKeepTheirPositions) {
  Model model;
  model.declare("a");
  model.declare("b");
  model.add(
      Model::node("torch.ops.aten.unbind.int", {tensorArgument("x")}, {{{"as_tensors", Json::array({{{"name", "a"}}, {{"name", "b"}}})}}}));
  model.declare("c");
  model.add(Model::node("torch.ops.aten.three.default", {tensorArgument("b")},
                        {{{"as_none", true}}, tensorArgument("three_unused_1"), tensorArgument("c")}));
  const ModelGraph graph = model.read();
  EXPECT_TRUE(graph.nodes[0].outputIsList);
  EXPECT_EQ(graph.nodes[0].outputs.size(), 2U);
  EXPECT_FALSE(graph.nodes[1].outputIsList);
  ASSERT_EQ(graph.nodes[1].outputs.size(), 3U);
  EXPECT_FALSE(graph.value(graph.nodes[1].outputs[0]).tensor);
  EXPECT_EQ(graph.value(graph.nodes[1].outputs[1]).tensor->dtype, DType::Unknown);
  EXPECT_EQ(nameOf(graph, graph.nodes[1].outputs[2]), "c");
  EXPECT_EQ(graph.value(graph.nodes[1].outputs[2]).producer, NodeId(1));
}

TEST(Pt2Errors, NameTheNodeAndTheMissingField) {
  Model model;
  model.call("aten.cos.default", {"x"}, "a");
  model.graph()["nodes"][0].erase("inputs");
  EXPECT_EQ(model.error(),
            "m.pt2: node `n` (torch.ops.aten.cos.default) has no `inputs`; the archive is damaged or of an unknown form, export it "
            "again with resources/export_model.py");
}

TEST(Pt2Errors, OrderAndUniquenessOfNamesAreChecked) {
  Model unknown;
  unknown.call("aten.cos.default", {"later"}, "a");
  expectContains(unknown.error(), "reads `later`, which nothing before it produces");
  Model twice;
  twice.call("aten.cos.default", {"x"}, "a");
  twice.call("aten.cos.default", {"x"}, "a");
  expectContains(twice.error(), "gives the name `a` a second time");
  Model untyped;
  untyped.call("aten.cos.default", {"x"}, "a");
  untyped.graph()["tensor_values"].erase("a");
  expectContains(untyped.error(), "`a` without type and size");
}

TEST(Pt2Errors, OtherSchemasFunctionalFormsAndTypesAreRefusedWithTheCure) {
  Model version;
  version.document()["schema_version"] = {{"major", 9}, {"minor", 1}};
  expectContains(version.error(), "schema 9.1, this version reads schema 8.x");
  version.document()["schema_version"] = {{"major", 8}, {"minor", 999}};
  EXPECT_EQ(version.error(), "no error");
  for (const char* kind : {"buffer_mutation", "user_input_mutation", "parameter_mutation", "gradient_to_parameter", "token"}) {
    Model model;
    model.signature()["output_specs"].push_back({{kind, {{"arg", {{"name", "x"}}}, {"buffer_name", "c"}}}});
    expectContains(model.error(), std::string("its signature lists a ") + kind + "); export it in training mode");
  }
  Model type;
  type.graph()["tensor_values"]["x"]["dtype"] = 29;
  expectContains(type.error(), "tensor `x`, has element type code 29");
}

TEST(Pt2Inputs, CustomObjectsAreRefusedOnlyWhereTheyAreRead) {
  Model model;
  model.spec("custom_obj", {{"arg", {{"name", "obj"}, {"class_fqn", "a.B"}}}, {"custom_obj_name", "o"}});
  model.spec("constant_input", {{"name", "flag"}, {"value", {{"as_bool", true}}}});
  EXPECT_EQ(model.read().inputs.size(), 1U);
  model.call("aten.cos.default", {"obj"}, "a");
  expectContains(model.error(), "an input of kind custom_obj");
}

/// A weights configuration entry for float32 [2, 3] at `path`.
Json payload(const std::string& path) {
  return {{"path_name", path}, {"is_param", true}, {"use_pickle", false}, {"tensor_meta", meta({2, 3})}};
}

TEST(Pt2State, TiedParametersShareTheirStorageAndUnreadOnesAreAliases) {
  Model model;
  model.spec("parameter", {{"arg", {{"name", "p_v"}}}, {"parameter_name", "v"}});
  model.declare("p_v");
  model.call("aten.add.Tensor", {"x", "p_w"}, "a");
  const Archive archive{"m.pt2", "m", {{"data/weights/weight_0", {100, 24}}}};
  const Json config = {{"config", {{"w", payload("weight_0")}, {"v", payload("weight_0")}, {"c", payload("weight_0")}}}};
  std::map<std::string, std::string> texts{{kModelEntry, model.document().dump()}, {kWeightsEntry, config.dump()}};
  const ModelGraph one = buildGraph(archive, texts);
  ASSERT_EQ(one.parameters.size(), 1U);
  EXPECT_EQ(one.parameters[0].storage, "0:weights/weight_0");
  EXPECT_EQ(one.parameters[0].stored, (StoredTensor{0, 100, 24, {3, 1}, 0}));
  EXPECT_EQ(one.tiedAliases, (std::map<std::string, std::string>{{"v", "w"}}));
  model.call("aten.add.Tensor", {"x", "p_v"}, "b");
  texts[kModelEntry] = model.document().dump();
  const ModelGraph both = buildGraph(archive, texts);
  ASSERT_EQ(both.parameters.size(), 2U);
  EXPECT_EQ(both.parameters[0].storage, both.parameters[1].storage);
  EXPECT_TRUE(both.tiedAliases.empty());
}

std::string stateError(const std::function<void(Json&)>& change, std::int64_t bytes = 24) {
  Model model;
  model.call("aten.add.Tensor", {"p_w", "b_c"}, "a");
  Json config = {{"config", {{"w", payload("weight_0")}, {"c", payload("weight_0")}}}};
  change(config["config"]);
  try {
    static_cast<void>(buildGraph({"m.pt2", "m", {{"data/weights/weight_0", {100, bytes}}}},
                                 {{kModelEntry, model.document().dump()}, {kWeightsEntry, config.dump()}}));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Pt2State, TensorsMustFitTheirEntries) {
  EXPECT_EQ(stateError([](Json&) {}), "no error");
  expectContains(stateError([](Json&) {}, 23), "data/weights/weight_0 has 23 bytes, 24 are needed");
  expectContains(stateError([](Json& c) { c["w"]["path_name"] = "weight_9"; }), "data/weights/weight_9 is missing");
  expectContains(stateError([](Json& c) { c["w"]["tensor_meta"]["storage_offset"]["as_int"] = 1; }), "has 24 bytes, 28 are needed");
  expectContains(stateError([](Json& c) { c["w"]["tensor_meta"]["strides"][0]["as_int"] = std::int64_t{1} << 62; }),
                 "larger than any memory");
  expectContains(stateError([](Json& c) { c["w"]["tensor_meta"]["strides"][0]["as_int"] = -3; }), "something other than a number");
  expectContains(stateError([](Json& c) { c["w"]["tensor_meta"]["dtype"] = 8; }), "contradicts the graph");
  expectContains(stateError([](Json& c) { c.erase("w"); }), "describes no bytes for `w`");
  expectContains(stateError([](Json& c) { c["w"]["use_pickle"] = true; }), "stores `w`, which the graph reads, as a pickled");
}

Json leaf() { return {{"type", nullptr}, {"context", nullptr}, {"children_spec", Json::array()}}; }

Json treeOf(const std::string& type, const Json& context, const std::vector<Json>& children) {
  return {{"type", type}, {"context", context.dump()}, {"children_spec", children}};
}

/// Names of two outputs of a model that returns `spec`.
std::vector<std::string> namesFor(const std::string& spec) {
  Model model;
  model.call("aten.relu.default", {"x"}, "a");
  model.call("aten.sin.default", {"x"}, "b");
  model.output("a");
  model.output("b");
  model.document()["graph_module"]["module_call_graph"] = Json::array({{{"fqn", ""}, {"signature", {{"out_spec", spec}}}}});
  return model.read().outputNames;
}

using Names = std::vector<std::string>;

Names namesFor(const Json& tree) { return namesFor(Json::array({1, tree}).dump()); }

TEST(Pt2OutputNames, AreTheKeysOfDictsAndDataclasses) {
  EXPECT_EQ(namesFor(treeOf("builtins.dict", {"loss", "logits"}, {leaf(), leaf()})), (Names{"loss", "logits"}));
  EXPECT_EQ(namesFor(treeOf("transformers.modeling_outputs.CausalLMOutput", {"loss", "logits"}, {leaf(), leaf()})),
            (Names{"loss", "logits"}));
  const Json dataclassKeys = Json::array({Json::array({"loss", "logits"}), Json::array({"cache"})});  // with a value, None
  EXPECT_EQ(namesFor(treeOf("model.Output", dataclassKeys, {leaf(), leaf()})), (Names{"loss", "logits"}));
  const Json list = treeOf("builtins.tuple", nullptr, {leaf(), leaf()});
  EXPECT_EQ(namesFor(treeOf("builtins.dict", Json::array({"hidden"}), {list})), (Names{"hidden.0", "hidden.1"}));
}

TEST(Pt2OutputNames, AreThoseOfTheTraceWhereKeysAreMissingOrOdd) {
  const Names trace{"a", "b"};
  EXPECT_EQ(namesFor(treeOf("builtins.tuple", nullptr, {leaf(), leaf()})), trace);
  EXPECT_EQ(namesFor(treeOf("collections.namedtuple", "model.Pair", {leaf(), leaf()})), trace);
  EXPECT_EQ(namesFor(treeOf("builtins.dict", Json::array({"one"}), {leaf(), leaf()})), trace) << "fewer keys than values";
  EXPECT_EQ(namesFor(treeOf("builtins.dict", {"a", "b", "c"}, {leaf(), leaf(), leaf()})), trace) << "more values than outputs";
  EXPECT_EQ(namesFor(treeOf("builtins.dict", Json::array({"one"}), {leaf()})), trace) << "fewer values than outputs";
  EXPECT_EQ(namesFor(treeOf("builtins.dict", {"same", "same"}, {leaf(), leaf()})), trace);
  EXPECT_EQ(namesFor(treeOf("builtins.dict", Json::array({1, 2}), {leaf(), leaf()})), trace);
  EXPECT_EQ(namesFor(treeOf("builtins.dict", Json::array({std::string(257, 'k'), "b"}), {leaf(), leaf()})), trace);
  for (const char* text :
       {"", "{", "7", "[]", "[1]", "[1, 2]", "[1, null]", "[1, {\"type\": null}]", "[1, {\"type\": 3, \"children_spec\": {}}]"}) {
    EXPECT_EQ(namesFor(std::string(text)), trace) << text;
  }
}

TEST(Pt2OutputNames, AreThoseOfTheTraceWhereKeysNestTooDeeply) {
  Json tree = treeOf("builtins.dict", {"x", "y"}, {leaf(), leaf()});
  for (int depth = 0; depth < 15; ++depth) tree = treeOf("builtins.dict", Json::array({"k"}), {tree});
  EXPECT_NE(namesFor(tree), (Names{"a", "b"}));
  EXPECT_EQ(namesFor(treeOf("builtins.dict", Json::array({"k"}), {tree})), (Names{"a", "b"}));
  EXPECT_EQ(namesFor(std::string(100000, '[')), (Names{"a", "b"}));
}

TEST(Pt2Metadata, StridesGiveTheOrderOfDimensionsInMemoryOfWhatTheGraphMakes) {
  const auto orderOf = [](const Model& model) {
    const ModelGraph graph = model.read();
    return graph.value(graph.nodes.front().outputs.front()).tensor->memoryOrder;
  };
  using Order = std::vector<std::int64_t>;
  Model model;
  model.call("aten.relu.default", {"x"}, "a");
  EXPECT_EQ(orderOf(model), Order{});
  Json &values = model.graph()["tensor_values"], permuted = Json::array({sizeOf(1), sizeOf(2)});
  values["a"]["strides"] = permuted;
  EXPECT_EQ(orderOf(model), (Order{1, 0}));
  values["x"]["strides"] = permuted;
  EXPECT_EQ(orderOf(model), Order{}) << "an input that lay permuted in the trace does not in a run, and what is made of it neither";
  values["x"]["strides"] = Json::array({sizeOf(1)});
  expectContains(model.error(), "has another number of strides than of sizes");
}

TEST(Pt2Metadata, ModuleStacksGiveFramesWhateverTheirNames) {
  EXPECT_EQ(parseModules("L__self__,,__main__.G;L__self__b.0,b.0,__main__.B"),
            (std::vector<ModuleFrame>{{"", "__main__.G"}, {"b.0", "__main__.B"}}));
  EXPECT_EQ(parseModules("L__self__,,m.G;k@1,lin@1,torch.nn.Linear").back(), (ModuleFrame{"lin", "torch.nn.Linear"}));
  EXPECT_EQ(parseModules("L['self'],,m.G[int,(a;b)];x,user@home,m.H,I").back(), (ModuleFrame{"user@home", "m.H,I"}));
  EXPECT_EQ(parseModules("L['self'],,m.G[int,(a;b)]").front().className, "m.G[int,(a;b)]");
  EXPECT_EQ(parseModules("x,b,m.B"), (std::vector<ModuleFrame>{{"", ""}, {"b", "m.B"}}));
  for (const char* strange : {"", "nonsense", ";;;", "_empty_nn_module_stack_from_metadata_hook,,", ",", "a,b;c,d,e"}) {
    EXPECT_EQ(parseModules(strange), (std::vector<ModuleFrame>{{"", ""}})) << strange;
  }
}

TEST(Pt2Metadata, TheSourceIsTheInnermostLineOutsideTorch) {
  EXPECT_EQ(
      parseSourceLine("File \"/home/me/e.py\", line 17, in forward\n    y = f(x)\n  File \"lib/e.py\", line 8, in forward\n    h = l(x)\n"
                      "  File \"/v/site-packages/torch/nn/modules/linear.py\", line 134, in forward\n    return F.linear(x)"),
      "lib/e.py:8 in forward");
  EXPECT_EQ(parseSourceLine("  File \"/a b/model.py\", line 3, in <lambda>"), "model.py:3 in <lambda>");
  EXPECT_EQ(parseSourceLine("File \"torch/nn/modules/linear.py\", line 134, in forward"), "torch/nn/modules/linear.py:134 in forward");
  EXPECT_EQ(parseSourceLine("File \"m.py\", line x, in f"), "");
  EXPECT_EQ(parseSourceLine("File \""), "");
  EXPECT_EQ(parseSourceLine(""), "");
}

}  // namespace
}  // namespace pw::pt2
