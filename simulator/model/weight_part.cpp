#include "simulator/model/weight_part.h"

#include <algorithm>
#include <optional>
#include <string>

#include "simulator/model/graph_facts.h"
#include "simulator/model/node_arguments.h"

namespace pw {
namespace {

/// One call of an operator with a weight part.
class Call {
 public:
  Call(const ModelGraph& graph, const Node& node) : graph_(graph), node_(node), op_(operatorOf(node.target)) {}

  [[nodiscard]] bool isWeight(const NamedArgument& argument) const {
    return !argument.name.empty() && std::ranges::find(op_.weights, argument.name) != op_.weights.end();
  }

  /// Of the two operands either may be the parameter, but not both.
  [[nodiscard]] bool isSymmetric() const {
    return op_.weightPart == WeightPart::Product || op_.weightPart == WeightPart::Sum || op_.weightPart == WeightPart::Factor;
  }

  /// Whether shapes and flags are such as the form takes.
  [[nodiscard]] bool fits(bool leftIsParameter) const {
    switch (op_.weightPart) {
      case WeightPart::None: return false;
      case WeightPart::Linear: return rankOf("weight") == 2U && rankOf("input") >= 1U;
      case WeightPart::AddedProduct: return isOne("beta") && isOne("alpha");
      case WeightPart::Product: return productFits(leftIsParameter);
      case WeightPart::Convolution:
      case WeightPart::AnyConvolution: return rankOf("input") && rankOf("input") == rankOf("weight") && isPaddedEvenly();
      case WeightPart::Embedding:
        return rankOf("weight") == 2U && !flagOf(node_, "scale_grad_by_freq", false) && !flagOf(node_, "sparse", false);
      case WeightPart::LayerNorm:
      case WeightPart::RmsNorm:
      case WeightPart::GroupNorm:
      case WeightPart::BatchNorm: return rankOf("weight").has_value();
      case WeightPart::Sum: return isOne("alpha") && rankOf("self") && rankOf("other");
      case WeightPart::Factor: return rankOf("self") && rankOf("other");
    }
    return false;
  }

 private:
  [[nodiscard]] const TensorMeta* tensor(std::string_view name) const {
    const auto id = valueOf(node_, name);
    return id && graph_.value(*id).tensor ? &*graph_.value(*id).tensor : nullptr;
  }
  [[nodiscard]] std::optional<std::size_t> rankOf(std::string_view name) const {
    const TensorMeta* found = tensor(name);
    return found == nullptr ? std::nullopt : std::optional(found->sizes.size());
  }
  [[nodiscard]] bool isOne(std::string_view name) const {
    const Argument* argument = argumentOf(node_, name);
    if (argument == nullptr) return true;
    const auto* number = std::get_if<double>(argument);
    return number != nullptr ? *number == 1 : integerOf(node_, name) == 1;
  }
  /// Two matrices, two batches of equal size, or anything times a matrix that is the parameter.
  [[nodiscard]] bool productFits(bool leftIsParameter) const {
    const TensorMeta *a = tensor("self"), *b = tensor(op_.weights[1]);
    if (a == nullptr || b == nullptr) return false;
    const std::size_t left = a->sizes.size(), right = b->sizes.size();
    if (left == 3 && right == 3 && a->sizes.front() == b->sizes.front()) return true;
    return right == 2 && (leftIsParameter ? left == 2 : left >= 2);
  }
  /// Padding "same" adds as much on both sides.
  [[nodiscard]] bool isPaddedEvenly() const {
    const Argument* padding = argumentOf(node_, "padding");
    const auto* mode = padding == nullptr ? nullptr : std::get_if<std::string>(padding);
    if (mode == nullptr || *mode != "same") return true;
    const Argument* given = argumentOf(node_, "dilation");
    const auto* dilation = given == nullptr ? nullptr : std::get_if<std::vector<std::int64_t>>(given);
    const auto& sizes = tensor("weight")->sizes;
    for (std::size_t d = 2; d < sizes.size(); ++d) {
      const std::int64_t step = dilation == nullptr || dilation->empty() ? 1 : (*dilation)[std::min(d - 2, dilation->size() - 1)];
      if (step * (sizes[d].hint - 1) % 2 != 0) return false;
    }
    return true;
  }

  const ModelGraph& graph_;
  const Node& node_;
  const Operator& op_;
};

bool isComplex(const Value& value) {
  if (!value.tensor) return false;
  const DType type = value.tensor->dtype;
  return type == DType::ComplexHalf || type == DType::ComplexFloat || type == DType::ComplexDouble;
}

std::int64_t elementsOf(const Value& value) {
  std::int64_t count = 1;
  for (const SymbolicInt& size : value.tensor->sizes) count *= size.hint;
  return count;
}

}  // namespace

std::vector<bool> wholeParameters(const ModelGraph& graph, const std::vector<bool>& gradient) {
  std::vector<bool> whole(graph.values.size(), false);
  for (const StateTensor& parameter : graph.parameters) whole[parameter.value.index()] = gradient[parameter.value.index()];
  for (const Node& node : graph.nodes) {
    if (!isView(node) || node.outputs.size() != 1 || node.outputIsList) continue;
    if (const std::string name = operatorName(node); name == "unfold" || name == "as_strided") continue;  // elements may be there twice
    const auto reads = readsOf(node);
    if (reads.empty() || !whole[reads.front().index()]) continue;
    const Value &from = graph.value(reads.front()), &view = graph.value(node.outputs.front());
    whole[node.outputs.front().index()] = view.tensor && from.tensor && view.tensor->dtype == from.tensor->dtype &&
                                          gradient[node.outputs.front().index()] && elementsOf(view) == elementsOf(from);
  }
  return whole;
}

WeightPart weightPartOf(const ModelGraph& graph, const Node& node, const std::vector<bool>& parameters, const std::vector<bool>& gradient) {
  const WeightPart part = operatorOf(node.target).weightPart;
  if (part == WeightPart::None || isInPlace(node)) return WeightPart::None;
  const Call call(graph, node);
  std::size_t trained = 0, others = 0;
  bool computedWeight = false, leftIsParameter = false;
  for (const NamedArgument& argument : node.inputs) {
    const auto* id = std::get_if<ValueId>(&argument.value);
    if (id == nullptr) continue;
    if (isComplex(graph.value(*id))) return WeightPart::None;
    const bool isWeight = call.isWeight(argument);
    if (parameters[id->index()]) {
      if (!isWeight) return WeightPart::None;
      ++trained;
      leftIsParameter = leftIsParameter || argument.name == "self";
    } else if (gradient[id->index()]) {
      ++others;
      computedWeight = computedWeight || isWeight;
    }
  }
  const bool symmetric = call.isSymmetric();
  // Beside the parameters one input may need a gradient, and it must be where the form expects it.
  const bool arranged = trained > 0 && others <= 1 && (symmetric ? trained == 1 : !computedWeight);
  return arranged && call.fits(leftIsParameter) ? part : WeightPart::None;
}

}  // namespace pw
