#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "schedules/error.h"
#include "simulator/model/model_graph.h"

namespace pw::test {

/// Makes small model graphs by hand. Tensors are float32 [batch, 4], batch 2 at export and symbolic, unless said otherwise.
class GraphBuilder {
 public:
  static constexpr Bytes kRow = Bytes{4} * 4;  ///< bytes of one sample of a default tensor

  GraphBuilder() { graph_.name = "hand"; }

  static SymbolicInt batch() { return {2, "Symbol('b', positive=True, integer=True)"}; }
  static SymbolicInt dataDependent() { return {2, "Symbol('u0', positive=True, integer=True)"}; }
  static TensorMeta meta(std::vector<SymbolicInt> sizes, DType dtype = DType::Float32) { return {dtype, std::move(sizes), false, {}}; }
  static TensorMeta rows(DType dtype = DType::Float32) { return meta({batch(), {4, ""}}, dtype); }
  static TensorMeta shape(const std::vector<std::int64_t>& sizes, DType dtype = DType::Float32) {
    TensorMeta result = meta({}, dtype);
    for (const std::int64_t size : sizes) result.sizes.push_back({size, ""});
    return result;
  }

  ValueId input(const std::string& name, const TensorMeta& meta = rows()) {
    const ValueId id = value(name, ValueOrigin::Input, meta);
    graph_.inputs.push_back(id);
    return id;
  }
  /// A trained float32 [4, 4] parameter; `storage` ties those that share it.
  ValueId parameter(const std::string& name, const std::string& storage = "", bool trained = true, TensorMeta meta = shape({4, 4})) {
    meta.requiresGrad = trained;
    return state(graph_.parameters, name, ValueOrigin::Parameter, meta, storage);
  }
  ValueId buffer(const std::string& name, const TensorMeta& meta = shape({4})) {
    return state(graph_.buffers, name, ValueOrigin::Buffer, meta, "");
  }
  ValueId constant(const std::string& name) { return state(graph_.constants, name, ValueOrigin::Constant, shape({4}), ""); }

  /// Modules of the nodes that follow, outermost first: `within({"blocks.0", "blocks.0.mlp"})`. The class is the path without its digits.
  GraphBuilder& within(const std::vector<std::string>& paths) {
    modules_ = {{"", "Root"}};
    for (const std::string& path : paths) {
      std::string className = path;
      className.erase(std::remove_if(className.begin(), className.end(), [](char c) { return c >= '0' && c <= '9'; }), className.end());
      modules_.push_back({path, className});
    }
    return *this;
  }

  /// Appends `aten.<op>(reads…) -> name`.
  ValueId op(const std::string& op, const std::vector<ValueId>& reads, const std::string& name, const TensorMeta& meta = rows()) {
    std::vector<NamedArgument> arguments;
    arguments.reserve(reads.size());
    for (const ValueId read : reads) arguments.push_back({"", read});
    return call(op, arguments, name, meta);
  }
  ValueId call(const std::string& op, const std::vector<NamedArgument>& arguments, const std::string& name,
               const TensorMeta& meta = rows()) {
    const ValueId output = value(name, ValueOrigin::Node, meta);
    graph_.values.back().producer = NodeId(graph_.nodes.size());
    const std::string target = op.rfind("torch.", 0) == 0 ? op : "torch.ops.aten." + op + ".default";
    graph_.nodes.push_back({target, arguments, {output}, false, modules_, "model.py:" + std::to_string(graph_.nodes.size() + 1)});
    return output;
  }
  /// `wrap_with_set_grad_enabled(enabled, sub-graph, reads…) -> name`, whose sub-graph is one `aten.<op>` of these arguments.
  ValueId wrapped(bool enabled, const std::string& op, const std::vector<NamedArgument>& inner, const std::vector<ValueId>& reads,
                  const std::string& name, const TensorMeta& meta = rows()) {
    const ValueId result = value(name + "_inside", ValueOrigin::Node, meta);
    graph_.values.back().producer = NodeId(graph_.nodes.size());
    graph_.subgraphs.push_back({reads, {result}, {{"torch.ops.aten." + op + ".default", inner, {result}, false, {}, ""}}});
    std::vector<NamedArgument> arguments{{"", enabled}, {"", GraphArg{graph_.subgraphs.size() - 1}}};
    for (const ValueId read : reads) arguments.push_back({"", read});
    return call("torch.ops.higher_order.wrap_with_set_grad_enabled", arguments, name, meta);
  }
  /// A symbolic number computed by a node: `sym_size(read) -> name`.
  ValueId size(ValueId read, const std::string& name) {
    const ValueId id = call("sym_size", {{"self", read}, {"dim", std::int64_t{0}}}, name);
    graph_.values[id.index()].tensor.reset();
    graph_.values[id.index()].symbolic = batch();
    return id;
  }
  void marker() { graph_.splitMarkers.emplace_back(graph_.nodes.size()); }
  void output(ValueId id) {
    graph_.outputs.push_back(id);
    graph_.outputNames.push_back(graph_.value(id).name);
  }

  [[nodiscard]] ModelGraph done(ValueId result) {
    output(result);
    return graph_;
  }
  ModelGraph& graph() { return graph_; }

 private:
  ValueId value(const std::string& name, ValueOrigin origin, const TensorMeta& meta) {
    Value made;
    made.name = name;
    made.origin = origin;
    made.tensor = meta;
    graph_.values.push_back(made);
    return ValueId(graph_.values.size() - 1);
  }
  ValueId state(std::vector<StateTensor>& list, const std::string& name, ValueOrigin origin, const TensorMeta& meta,
                const std::string& storage) {
    const ValueId id = value(name, origin, meta);
    list.push_back({name, id, storage, std::nullopt, true});
    return id;
  }

  ModelGraph graph_;
  std::vector<ModuleFrame> modules_{{"", "Root"}};
};

/// The sentence of the UsageError that `work` throws; says so without one.
template <class Work>
std::string usageErrorOf(const Work& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

/// Layers `blocks.0` … of one trained linear each, in a row: node i reads value of node i−1 and parameter i.
inline ModelGraph chain(int layers) {
  GraphBuilder builder;
  ValueId x = builder.input("x");
  for (int i = 0; i < layers; ++i) {
    const std::string block = "blocks." + std::to_string(i);
    const ValueId weight = builder.parameter(block + ".weight");
    x = builder.within({block}).call("linear", {{"input", x}, {"weight", weight}}, "linear_" + std::to_string(i));
  }
  return builder.done(x);
}

}  // namespace pw::test
