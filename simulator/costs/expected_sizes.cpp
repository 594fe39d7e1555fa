#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/costs/expected_sizes.h"
#include "simulator/costs/operator_costs.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/node_arguments.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

/// The name where the expression is one symbol and nothing else.
std::string loneSymbol(const SymbolicInt& size) {
  constexpr std::string_view kBegin = "Symbol('";
  const std::string& text = size.expression;
  const std::size_t end = text.find('\'', kBegin.size());
  if (text.rfind(kBegin, 0) != 0 || end == std::string::npos || text.find(')', end) != text.size() - 1) return {};
  return text.substr(kBegin.size(), end - kBegin.size());
}

/// Binds symbols in the order of execution.
class Expectation {
 public:
  Expectation(const ModelGraph& graph, Bindings known)
      : bindings(std::move(known)), graph_(graph), producer_(graph.values.size(), nullptr), same_(graph.values.size()) {}

  void visit(const Node& node) {
    for (const NamedArgument& argument : node.inputs) {
      if (const auto* inner = std::get_if<GraphArg>(&argument.value)) enter(node, graph_.subgraphs[inner->index]);
    }
    for (const ValueId output : node.outputs) producer_[output.index()] = &node;
    bindSizes(node);
    bindNumbers(node);
  }

  Bindings bindings;

 private:
  /// What enters and leaves a region is the same inside and outside.
  void enter(const Node& node, const Subgraph& body) {
    std::vector<ValueId> operands;
    for (const NamedArgument& argument : node.inputs) {
      if (const auto* id = std::get_if<ValueId>(&argument.value)) operands.push_back(*id);
      if (const auto* list = std::get_if<std::vector<ValueId>>(&argument.value))
        operands.insert(operands.end(), list->begin(), list->end());
    }
    const std::size_t first = operands.size() - std::min(operands.size(), body.inputs.size());  // after a predicate
    for (std::size_t i = 0; i < body.inputs.size() && first + i < operands.size(); ++i) {
      if (body.inputs[i] != operands[first + i]) same_[body.inputs[i].index()] = operands[first + i];
    }
    for (const Node& inner : body.nodes) visit(inner);
    for (std::size_t i = 0; i < node.outputs.size() && i < body.outputs.size(); ++i) same_[node.outputs[i].index()] = body.outputs[i];
  }

  void bindSizes(const Node& node) {
    for (const ValueId output : node.outputs) {
      const auto& meta = graph_.value(output).tensor;
      for (std::size_t d = 0; meta && d < meta->sizes.size(); ++d) {
        const std::string symbol = loneSymbol(meta->sizes[d]);
        if (symbol.empty() || bindings.contains(symbol)) continue;
        if (const auto count = selectedBy(node)) bind(symbol, *count);
      }
    }
  }

  /// `item` of a count.
  void bindNumbers(const Node& node) {
    const std::string name = operatorName(node);
    if (name != "item" && name != "_local_scalar_dense") return;
    for (const ValueId output : node.outputs) {
      const auto& number = graph_.value(output).symbolic;
      const std::string symbol = number ? loneSymbol(*number) : std::string();
      const auto counted = valueOf(node, "self");
      if (symbol.empty() || bindings.contains(symbol) || !counted) continue;
      if (const auto count = countIn(*counted)) bind(symbol, *count);
    }
  }

  void bind(const std::string& symbol, double count) {
    bindings[symbol] = std::max<std::int64_t>(1, std::llround(std::ceil(count - 1e-9)));
  }

  /// How many elements an operator selects.
  [[nodiscard]] std::optional<double> selectedBy(const Node& node) const {
    const std::string name = operatorName(node);
    std::optional<ValueId> mask;
    if (name == "nonzero" || name == "argwhere" || name == "nonzero_numpy") mask = valueOf(node, "self");
    if (name == "where") mask = valueOf(node, "condition");
    if (name == "masked_select") mask = valueOf(node, "mask");
    if (name == "index") mask = maskOf(node);
    if (!mask) return std::nullopt;
    const auto part = density(*mask);
    const auto all = elements(*mask);
    return part && all ? std::optional(*part * *all) : std::nullopt;
  }

  /// The one mask among an index's indices.
  [[nodiscard]] std::optional<ValueId> maskOf(const Node& node) const {
    const Argument* indices = argumentOf(node, "indices");
    std::vector<ValueId> given;
    if (const auto* list = indices == nullptr ? nullptr : std::get_if<std::vector<ValueId>>(indices)) given = *list;
    if (const auto* list = indices == nullptr ? nullptr : std::get_if<std::vector<std::optional<ValueId>>>(indices)) {
      for (const auto& one : *list) {
        if (one) given.push_back(*one);
      }
    }
    return given.size() == 1 && graph_.value(given[0]).tensor && graph_.value(given[0]).tensor->dtype == DType::Bool
               ? std::optional(given[0])
               : std::nullopt;
  }

  /// The producer of a value, through views, copies and the borders of regions.
  [[nodiscard]] const Node* source(ValueId& value) const {
    for (int steps = 0; steps < 1000; ++steps) {
      if (same_[value.index()]) {
        value = *same_[value.index()];
        continue;
      }
      const Node* node = producer_[value.index()];
      if (node == nullptr) return nullptr;
      const bool passes = isView(*node) || isCopy(*node);
      const auto from = valueOf(*node, "self");
      if (!passes || !from) return node;
      value = *from;
    }
    return nullptr;
  }

  [[nodiscard]] std::optional<double> elements(ValueId value) const {
    if (!graph_.value(value).tensor) return std::nullopt;
    const auto shape = knownShape(*graph_.value(value).tensor, bindings);
    if (!shape) return std::nullopt;
    double count = 1;
    for (const std::int64_t size : *shape) count *= static_cast<double>(size);
    return count;
  }

  /// The expected part of a mask that is set: experts are chosen evenly.
  [[nodiscard]] std::optional<double> density(ValueId value) const {
    const Node* node = source(value);
    if (node == nullptr) return std::nullopt;
    const std::string name = operatorName(*node);
    if (name == "one_hot") {
      const auto classes = integerOf(*node, "num_classes");
      return classes && *classes > 0 ? std::optional(1 / static_cast<double>(*classes)) : std::nullopt;
    }
    const auto self = valueOf(*node, "self");
    if (!self) return std::nullopt;
    if (name == "gt" || name == "ne") return integerOf(*node, "other") == 0 ? density(*self) : std::nullopt;
    if (name != "eq") return std::nullopt;
    const auto choices = choicesOf(*self);
    return choices ? std::optional(1 / *choices) : std::nullopt;
  }

  /// Among how many a value was chosen: the indices of topk and argmax.
  [[nodiscard]] std::optional<double> choicesOf(ValueId value) const {
    const Node* node = source(value);
    if (node == nullptr) return std::nullopt;
    const std::string name = operatorName(*node);
    const auto from = valueOf(*node, "self");
    if ((name != "topk" && name != "argmax" && name != "max" && name != "sort") || !from || !graph_.value(*from).tensor)
      return std::nullopt;
    const auto& sizes = graph_.value(*from).tensor->sizes;
    const auto dim = integerOf(*node, "dim").value_or(-1);
    const std::int64_t at = dim < 0 ? dim + static_cast<std::int64_t>(sizes.size()) : dim;
    if (at < 0 || at >= static_cast<std::int64_t>(sizes.size())) return std::nullopt;
    const auto choices = knownNumber(sizes[static_cast<std::size_t>(at)], bindings);
    return choices && *choices > 0 ? std::optional(static_cast<double>(*choices)) : std::nullopt;
  }

  /// The expected value of an element of a table of counts.
  [[nodiscard]] std::optional<double> countIn(ValueId value) const {
    const Node* node = source(value);
    const auto from = node == nullptr ? std::nullopt : valueOf(*node, "self");
    if (!from) return std::nullopt;
    const std::string name = operatorName(*node);
    const auto all = elements(*from);
    if (!all) return std::nullopt;
    if (name == "bincount" || name == "histc") {
      const auto bins = integerOf(*node, name == "histc" ? "bins" : "minlength");
      return bins && *bins > 0 ? std::optional(*all / static_cast<double>(*bins)) : std::nullopt;
    }
    if (name != "sum") return std::nullopt;
    const auto part = density(*from);
    const auto left = elements(node->outputs.front());
    return part && left && *left > 0 ? std::optional(*part * *all / *left) : std::nullopt;
  }

  const ModelGraph& graph_;
  std::vector<const Node*> producer_;
  std::vector<std::optional<ValueId>> same_;
};

}  // namespace

Bindings bindExpected(const ModelGraph& graph, std::int64_t microbatch) {
  Expectation expectation(graph, bindBatch(graph, microbatch));
  for (const Node& node : graph.nodes) expectation.visit(node);
  return std::move(expectation.bindings);
}

}  // namespace pw
