#include "backends/pt2/graph.h"
#include "backends/pt2/metadata.h"
#include "backends/pt2/outputs.h"
#include "backends/pt2/state.h"

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "backends/pt2/arguments.h"
#include "schedules/error.h"

namespace pw::pt2 {
namespace {

constexpr std::int64_t kSchemaMajor = 8;
constexpr int kSubgraphDepthLimit = 16;
constexpr std::string_view kSplitTarget = "torch.ops.pippy._pipe_split.";

/// True for `torch.ops.aten.relu_.default`, `torch.ops.aten.__ior__.Tensor`: the first tensor argument changes.
bool isInPlace(std::string_view target) {
  constexpr std::string_view kPrefix = "torch.ops.";
  if (!target.starts_with(kPrefix)) {
    return false;
  }
  target.remove_prefix(kPrefix.size());
  target.remove_prefix(std::min(target.find('.') + 1, target.size()));
  const std::string_view op = target.substr(0, target.find('.'));
  return op.starts_with("__i") || (op.ends_with('_') && !op.ends_with("__"));
}

bool isState(ValueOrigin origin) {
  return origin == ValueOrigin::Parameter || origin == ValueOrigin::Buffer || origin == ValueOrigin::Constant;
}

/// Walks models/model.json once. Values are numbered in the order in which they appear.
class GraphBuilder final : private NameResolver {
 public:
  explicit GraphBuilder(const Archive& archive) : file_(archive.path) {
    graph_.name = std::filesystem::path(archive.path).stem().string();
    graph_.files = {archive.path};
  }

  void read(const Json& document) {
    const std::string where = fmt::format("{}: {}", file_, kModelEntry);
    checkVersion(document, where);
    const Json& module = member(document, "graph_module", where);
    const Json& signature = member(module, "signature", where);
    Scope scope{member(module, "graph", where)};
    for (const Json& spec : asArray(member(signature, "input_specs", where), "input_specs", where)) {
      readInput(spec, scope, where + ", input");
    }
    for (const Json& json : asArray(member(scope.graph, "nodes", where), "nodes", where)) {
      readTopNode(json, scope);
    }
    const Json& outputs = asArray(member(signature, "output_specs", where), "output_specs", where);
    const std::vector<std::string> keys = readOutputKeys(module, outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      readOutput(outputs[i], keys.empty() ? std::string() : keys[i], scope, where + ", output");
    }
    finish();
  }

  [[nodiscard]] ModelGraph& graph() { return graph_; }
  [[nodiscard]] const std::vector<bool>& isRead() const { return isRead_; }

 private:
  void checkVersion(const Json& document, const std::string& where) const {
    const Json& version = member(document, "schema_version", where);
    const std::int64_t major = asInteger(member(version, "major", where), "schema_version", where);
    const std::int64_t minor = asInteger(member(version, "minor", where), "schema_version", where);
    if (major != kSchemaMajor) {
      throw UsageError(
          fmt::format("{} is written in torch.export schema {}.{}, this version reads schema {}.x; export it again with torch "
                      "2.11 or a version near it",
                      file_, major, minor, kSchemaMajor));
    }
  }

  ValueId append(Value value) {
    const ValueId id(graph_.values.size());
    graph_.values.push_back(std::move(value));
    isRead_.push_back(false);
    current_.push_back(id);
    return id;
  }

  ValueId define(Scope& scope, Value value, const std::string& where) {
    const std::string name = value.name;
    const ValueId id = append(std::move(value));
    if (!scope.names.emplace(name, id).second) {
      damaged(where, fmt::format("gives the name `{}` a second time", name));
    }
    return id;
  }

  /// The value of a name at this point: the latest result of in-place nodes.
  ValueId latest(ValueId id) {
    while (current_[id.index()] != id) {
      current_[id.index()] = current_[current_[id.index()].index()];  // halves the path
      id = current_[id.index()];
    }
    return id;
  }

  ValueId resolve(const Scope& scope, const std::string& name, const std::string& where) override {
    const auto found = scope.names.find(name);
    if (found == scope.names.end()) {
      const auto refusal = scope.refused.find(name);
      if (refusal != scope.refused.end()) {
        throw UsageError(fmt::format("{} reads {}", where, refusal->second));
      }
      damaged(where, fmt::format("reads `{}`, which nothing before it produces", name));
    }
    const ValueId id = latest(found->second);
    const auto changed = changedInside_.find(id.value);
    if (changed != changedInside_.end()) {
      throw UsageError(
          fmt::format("{} reads `{}` after `{}` changed it in place inside a no_grad or autocast region; write the change "
                      "without an in-place operator",
                      where, name, changed->second));
    }
    isRead_[id.index()] = true;
    return id;
  }

  void readInput(const Json& spec, Scope& scope, const std::string& where) {
    const Tagged tagged = asTagged(spec, "input_specs", where);
    if (tagged.kind == "user_input") {
      const Tagged argument = asTagged(member(tagged.value, "arg", where), "arg", where);
      if (argument.kind == "as_tensor" || (argument.kind.starts_with("as_sym_") && argument.value.contains("as_name"))) {
        graph_.inputs.push_back(define(scope, describe(scope, argument, ValueOrigin::Input, where), where));
      } else if (argument.kind == "as_custom_obj") {
        const std::string name = asText(member(argument.value, "name", where), "name", where);
        scope.refused.emplace(name, fmt::format("the input `{}`, a custom object; only tensors and numbers can be inputs", name));
      }
      return;
    }
    if (tagged.kind == "constant_input") {
      return;  // a Python number or None, already written into the nodes
    }
    const Json& argument = member(tagged.value, "arg", where);
    const std::string& name = asText(member(argument, "name", where), "name", where);
    if (tagged.kind == "parameter") {
      addState(graph_.parameters, ValueOrigin::Parameter, "parameter_name", tagged.value, scope, where);
    } else if (tagged.kind == "buffer") {
      addState(graph_.buffers, ValueOrigin::Buffer, "buffer_name", tagged.value, scope, where);
      const Json* persistent = optionalMember(tagged.value, "persistent", where);
      graph_.buffers.back().persistent = persistent == nullptr || asBool(*persistent, "persistent", where);
    } else if (tagged.kind == "tensor_constant") {
      addState(graph_.constants, ValueOrigin::Constant, "tensor_constant_name", tagged.value, scope, where);
      graph_.constants.back().persistent = false;
    } else {
      scope.refused.emplace(name,
                            fmt::format("`{}`, an input of kind {}, which Pipewright does not support; rewrite that part of the model "
                                        "with tensors",
                                        name, tagged.kind));
    }
  }

  void addState(std::vector<StateTensor>& states, ValueOrigin origin, const char* key, const Json& spec, Scope& scope,
                const std::string& where) {
    StateTensor state;
    state.name = asText(member(spec, key, where), key, where);
    const Tagged argument{"as_tensor", member(spec, "arg", where)};
    state.value = define(scope, describe(scope, argument, origin, where), where);
    if (!stateNames_.insert(state.name).second) {
      damaged(where, fmt::format("gives the name `{}` a second time", state.name));
    }
    states.push_back(std::move(state));
  }

  void readTopNode(const Json& json, Scope& scope) {
    const std::string where = placeOf(json);
    if (asText(member(json, "target", where), "target", where).starts_with(kSplitTarget)) {
      const NodeId begin(graph_.nodes.size());
      if (begin.value > 0 && (graph_.splitMarkers.empty() || graph_.splitMarkers.back() != begin)) {
        graph_.splitMarkers.push_back(begin);
      }
      return;
    }
    // Reserved first: values of the node and of its sub-graphs name it as their producer.
    Node node = readNode(json, scope, where, 0, NodeId(graph_.nodes.size()));
    graph_.nodes.push_back(std::move(node));
  }

  /// `model.pt2: node `view` (torch.ops.aten.view.default)`.
  std::string placeOf(const Json& json) const {
    const std::string nameless = fmt::format("{}: a node", file_);
    const std::string& target = asText(member(json, "target", nameless), "target", nameless);
    const Json* name = optionalMember(json, "name", nameless);
    return name == nullptr ? fmt::format("{}: a node ({})", file_, target)
                           : fmt::format("{}: node `{}` ({})", file_, asText(*name, "name", nameless), target);
  }

  Node readNode(const Json& json, Scope& scope, const std::string& where, int depth, NodeId producer) {
    Node node;
    node.target = asText(member(json, "target", where), "target", where);
    if (node.target.starts_with(kSplitTarget)) {
      throw UsageError(
          fmt::format("{}: pipe_split() is called inside a no_grad or autocast region, where no stage can begin; call it "
                      "outside",
                      file_));
    }
    for (const Json& input : asArray(member(json, "inputs", where), "inputs", where)) {
      const std::string& name = asText(member(input, "name", where), "name", where);
      const Tagged argument = asTagged(member(input, "arg", where), "arg", where);
      if (argument.kind == "as_graph") {
        node.inputs.push_back({name, readSubgraph(argument.value, where, depth + 1, producer)});
      } else {
        node.inputs.push_back({name, readArgument(argument, scope, *this, where)});
      }
    }
    readOutputs(asArray(member(json, "outputs", where), "outputs", where), scope, node, where, producer);
    noteChanges(node, where);
    if (const Json* metadata = optionalMember(json, "metadata", where)) {
      const Json* modules = optionalMember(*metadata, "nn_module_stack", where);
      node.modules = parseModules(modules == nullptr ? std::string() : asText(*modules, "nn_module_stack", where));
      const Json* trace = optionalMember(*metadata, "stack_trace", where);
      node.sourceLine = parseSourceLine(trace == nullptr ? std::string() : asText(*trace, "stack_trace", where));
    } else {
      node.modules = parseModules({});
    }
    return node;
  }

  void readOutputs(const Json& outputs, Scope& scope, Node& node, const std::string& where, NodeId producer) {
    for (const Json& output : outputs) {
      const Tagged tagged = asTagged(output, "outputs", where);
      if (tagged.kind == "as_tensors" || tagged.kind == "as_optional_tensors") {
        if (outputs.size() != 1) {
          throw UsageError(
              fmt::format("{} returns a list among other results, which Pipewright does not support; rewrite that part of "
                          "the model",
                          where));
        }
        node.outputIsList = true;
        for (const Json& element : asArray(tagged.value, tagged.kind, where)) {
          const Tagged item = tagged.kind == "as_tensors" ? Tagged{"as_tensor", element} : asTagged(element, tagged.kind, where);
          node.outputs.push_back(addOutput(item, scope, where, producer));
        }
      } else {
        node.outputs.push_back(addOutput(tagged, scope, where, producer));
      }
    }
  }

  ValueId addOutput(const Tagged& output, Scope& scope, const std::string& where, NodeId producer) {
    Value value = describe(scope, output, ValueOrigin::Node, where);
    value.producer = producer;
    return value.name.empty() ? append(std::move(value)) : define(scope, std::move(value), where);
  }

  GraphArg readSubgraph(const Json& argument, const std::string& where, int depth, NodeId producer) {
    if (depth > kSubgraphDepthLimit) {
      damaged(where, "nests sub-graphs too deeply");
    }
    Scope scope{member(argument, "graph", where)};
    Subgraph subgraph;
    for (const Json& input : asArray(member(scope.graph, "inputs", where), "inputs", where)) {
      subgraph.inputs.push_back(addOutput(asTagged(input, "inputs", where), scope, where, producer));
    }
    for (const Json& json : asArray(member(scope.graph, "nodes", where), "nodes", where)) {
      subgraph.nodes.push_back(readNode(json, scope, placeOf(json), depth, producer));
    }
    for (const Json& output : asArray(member(scope.graph, "outputs", where), "outputs", where)) {
      const Argument value = readArgument(asTagged(output, "outputs", where), scope, *this, where);
      const auto* id = std::get_if<ValueId>(&value);
      subgraph.outputs.push_back(id != nullptr ? *id : append(describe(scope, Tagged{"as_none", output}, ValueOrigin::Node, where)));
    }
    graph_.subgraphs.push_back(std::move(subgraph));
    return {graph_.subgraphs.size() - 1};
  }

  /// Gives a new name to what an in-place node or a sub-graph changes.
  void noteChanges(const Node& node, const std::string& where) {
    const std::vector<ValueId> reads = readsOf(node);
    const auto tensor = std::find_if(reads.begin(), reads.end(), [&](ValueId id) { return graph_.value(id).tensor.has_value(); });
    if (isInPlace(node.target) && tensor != reads.end()) {
      changed_.insert(tensor->value);
      if (!isState(graph_.value(*tensor).origin) && !node.outputs.empty() && graph_.value(node.outputs.front()).tensor) {
        current_[tensor->index()] = node.outputs.front();
      }
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (const auto* argument = std::get_if<GraphArg>(&node.inputs[i].value)) {
        noteSubgraphChanges(graph_.subgraphs[argument->index], operandsAfter(node, i), where);
      }
    }
  }

  static std::vector<ValueId> operandsAfter(const Node& node, std::size_t graphArgument) {
    std::vector<ValueId> operands;
    for (std::size_t i = graphArgument + 1; i < node.inputs.size(); ++i) {
      if (const auto* id = std::get_if<ValueId>(&node.inputs[i].value)) {
        operands.push_back(*id);
      } else if (const auto* list = std::get_if<std::vector<ValueId>>(&node.inputs[i].value)) {
        operands.insert(operands.end(), list->begin(), list->end());
      }
    }
    return operands;
  }

  void noteSubgraphChanges(const Subgraph& subgraph, const std::vector<ValueId>& operands, const std::string& where) {
    for (std::size_t i = 0; i < subgraph.inputs.size(); ++i) {
      if (!changed_.contains(subgraph.inputs[i].value)) {
        continue;
      }
      if (operands.size() != subgraph.inputs.size()) {
        throw UsageError(
            fmt::format("{} changes an operand in place inside its region; write the change without an in-place operator", where));
      }
      changed_.insert(operands[i].value);
      if (!isState(graph_.value(operands[i]).origin)) {
        changedInside_.emplace(operands[i].value, where);
      }
    }
  }

  void readOutput(const Json& spec, const std::string& key, Scope& scope, const std::string& where) {
    const Tagged tagged = asTagged(spec, "output_specs", where);
    if (tagged.kind != "user_output" && tagged.kind != "loss_output") {
      throw UsageError(
          fmt::format("{} was exported in a functional form (its signature lists a {}); export it in training mode, without "
                      "run_decompositions(), for example with resources/export_model.py",
                      file_, tagged.kind));
    }
    const Json& argument = member(tagged.value, "arg", where);
    const Tagged output = tagged.kind == "loss_output" ? Tagged{"as_tensor", argument} : asTagged(argument, "arg", where);
    const Argument value = readArgument(output, scope, *this, where);
    if (const auto* id = std::get_if<ValueId>(&value)) {
      graph_.outputs.push_back(*id);
      graph_.outputNames.push_back(key.empty() ? graph_.value(*id).name : key);
    }
  }

  /// Frames of nodes without a module stack get the root's class name; a marker after the last node is removed.
  void finish() {
    std::string root;
    for (const Node& node : graph_.nodes) {
      if (!node.modules.front().className.empty()) {
        root = node.modules.front().className;
        break;
      }
    }
    for (Node& node : graph_.nodes) {
      if (node.modules.front().className.empty()) {
        node.modules.front().className = root;
      }
    }
    if (!graph_.splitMarkers.empty() && graph_.splitMarkers.back().index() == graph_.nodes.size()) {
      graph_.splitMarkers.pop_back();
    }
  }

  std::string file_;
  ModelGraph graph_;
  std::vector<bool> isRead_;
  std::vector<ValueId> current_;  ///< by value: itself, or the output of the in-place node that changed it
  std::unordered_set<std::int32_t> changed_;
  std::unordered_map<std::int32_t, std::string> changedInside_;
  std::unordered_set<std::string> stateNames_;
};

}  // namespace

namespace {

/// Stages get their inputs and weights in order. Where the trace's lay permuted (channels last), so may what operators made of them, and
/// that says nothing of a run.
void forgetOrdersThatBeginOutside(ModelGraph& graph) {
  const auto isPermuted = [](const Value& value) {
    return value.origin != ValueOrigin::Node && value.tensor && !value.tensor->memoryOrder.empty();
  };
  if (std::ranges::none_of(graph.values, isPermuted)) return;
  for (Value& value : graph.values) {
    if (value.tensor) value.tensor->memoryOrder.clear();
  }
}

}  // namespace

ModelGraph buildGraph(const Archive& archive, const std::map<std::string, std::string>& texts) {
  GraphBuilder builder(archive);
  builder.read(parseJson(texts.at(kModelEntry), fmt::format("{}: {}", archive.path, kModelEntry)));
  attachState(builder.graph(), archive, texts, builder.isRead());
  forgetOrdersThatBeginOutside(builder.graph());
  return std::move(builder.graph());
}

}  // namespace pw::pt2
