#include "simulator/costs/layer_chain.h"

#include <algorithm>
#include <utility>

#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

constexpr const char *kOverheadName = "action_overhead_ns", *kSendName = "send_overhead_ns",
                     *kOptimizerName = "optimizer_ns_per_byte";  ///< of the table, at its first layer

/// A type with a gradient and one byte per element, so that tensors have any number of bytes.
TensorMeta bytesTensor(std::vector<SymbolicInt> sizes, bool trained = false) { return {DType::Float8, std::move(sizes), trained, {}}; }

ValueId addValue(ModelGraph& graph, const std::string& name, ValueOrigin origin, TensorMeta tensor) {
  Value value;
  value.name = name;
  value.origin = origin;
  value.tensor = std::move(tensor);
  graph.values.push_back(std::move(value));
  return ValueId(graph.values.size() - 1);
}

/// The modules around a layer, and the layer itself.
std::vector<ModuleFrame> framesOf(const Layer& layer) {
  std::vector<ModuleFrame> frames{{"", "Layers"}};
  for (std::size_t dot = 0; !layer.module.empty() && dot != std::string::npos;) {
    dot = layer.module.find('.', dot + 1);
    frames.push_back({layer.module.substr(0, dot), "Module"});
  }
  if (frames.back().path != layer.name) frames.push_back({layer.name, ""});
  frames.back().className = "Layer";
  return frames;
}

}  // namespace

ModelGraph chainOf(const LayerTable& table, const std::string& path) {
  ModelGraph graph;
  graph.name = table.name;
  graph.files = {path};
  ValueId before = addValue(graph, "input", ValueOrigin::Input, bytesTensor({{table.microbatch, ""}, {0, ""}}));
  graph.inputs = {before};
  graph.nodes.reserve(table.layers.size());
  graph.parameters.reserve(table.layers.size());
  graph.values.reserve(2 * table.layers.size() + 1);
  for (const Layer& layer : table.layers) {
    const ValueId parameter = addValue(graph, "p_" + layer.name, ValueOrigin::Parameter, bytesTensor({{layer.parameters.value, ""}}, true));
    graph.parameters.push_back({layer.name + ".parameters", parameter, "", std::nullopt, true});
    Node node;
    node.target = kLayerTarget;
    node.inputs.reserve(kLayerNumbers.size() + 5);
    node.inputs = {{"input", before}, {"parameters", parameter}};
    for (const LayerNumber& of : kLayerNumbers) {
      if (of.key != kKeptIfRecomputed || layer.kept != Layer::kNotSaid) node.inputs.push_back({std::string(of.key), of.of(layer)});
    }
    if (graph.nodes.empty() && table.sendOverhead != 0) node.inputs.push_back({kSendName, table.sendOverhead.value});
    if (!layer.module.empty()) node.inputs.push_back({"module", layer.module});
    if (graph.nodes.empty())
      node.inputs.insert(node.inputs.end(), {{kOverheadName, table.actionOverhead.value}, {kOptimizerName, table.optimizerNsPerByte}});
    node.modules = framesOf(layer);
    before = addValue(graph, layer.name, ValueOrigin::Node, bytesTensor({{layer.output.value, ""}}));
    graph.values.back().producer = NodeId(graph.nodes.size());
    node.outputs = {before};
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = {before};
  graph.outputNames = {"output"};
  return graph;
}

LayerTable tableOf(const ModelGraph& chain) {
  LayerTable table{chain.name, exportedBatch(chain), 0, 0, {}};
  for (const Node& node : chain.nodes) {
    Layer& layer = table.layers.emplace_back();
    layer.name = chain.value(node.outputs.front()).name;
    auto number = kLayerNumbers.begin();  // they are in this order
    for (const NamedArgument& argument : node.inputs) {
      if (argument.name == kOverheadName) table.actionOverhead = Ns(std::get<std::int64_t>(argument.value));
      if (argument.name == kSendName) table.sendOverhead = Ns(std::get<std::int64_t>(argument.value));
      if (argument.name == kOptimizerName) table.optimizerNsPerByte = std::get<double>(argument.value);
      if (argument.name == "module") layer.module = std::get<std::string>(argument.value);
      if (number == kLayerNumbers.end() || argument.name != number->key) continue;
      number->set(layer, std::get<std::int64_t>(argument.value));
      ++number;
    }
  }
  return table;
}

std::optional<Bytes> keptIfRecomputed(const Node& layer) {
  for (const NamedArgument& argument : layer.inputs) {
    if (argument.name != kKeptIfRecomputed) continue;
    return Bytes(std::get<std::int64_t>(argument.value));
  }
  return std::nullopt;
}

bool mayRecompute(const ModelGraph& chain) {
  return std::ranges::all_of(chain.nodes, [](const Node& node) { return keptIfRecomputed(node).has_value(); });
}

Profile profileOf(const ModelGraph& chain) {
  const LayerTable table = tableOf(chain);
  Profile profile;
  profile.model = table.name;
  profile.microbatch = table.microbatch;
  profile.actionOverhead = table.actionOverhead;
  profile.sendOverhead = table.sendOverhead;
  profile.optimizerNsPerByte = table.optimizerNsPerByte;
  for (const Layer& layer : table.layers) {
    NodeCost cost;
    cost.forward = layer.forward;
    cost.backward = layer.input + layer.weight;
    cost.weight = layer.weight;
    cost.saved = layer.activations;
    cost.heldForWeight = layer.afterInput;
    cost.optimizer = layer.optimizer;
    profile.nodes.push_back(cost);
    profile.sent.push_back(layer.sent);
  }
  return profile;
}

}  // namespace pw
