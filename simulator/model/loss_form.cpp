#include "simulator/model/loss_form.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <string_view>

#include "simulator/model/batch_mixing.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/node_arguments.h"
#include "simulator/model/symbolic.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

using Kind = SampleFlow::Kind;

/// How a value depends on the samples.
enum class Part : std::uint8_t { Constant, Samples, Mean, Sum, NearlySum, TargetMean, Quotient, Other, Unknown };

struct Trail {
  Part part = Part::Constant;
  const Node* node = nullptr;
  std::optional<ValueId> counted;
  std::int64_t ignored = -100;
  std::string why;
  std::optional<ValueId> sum = {};  ///< of NearlySum and its Quotient: what something was added to, or that was clamped
};

std::string_view wordOf(Part part) {
  switch (part) {
    case Part::Mean: return "a mean over the samples";
    case Part::Sum:
    case Part::NearlySum: return "a sum over the samples";
    case Part::TargetMean: return "a mean over targets";
    case Part::Quotient: return "a quotient of sums over the samples";
    case Part::Constant:
    case Part::Samples:
    case Part::Other:
    case Part::Unknown: break;
  }
  return "a number of all samples";
}

bool isFinal(Part part) { return part == Part::Other || part == Part::Unknown; }

template <std::size_t N>
bool isOneOf(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

class Tracer {
 public:
  explicit Tracer(const ModelGraph& graph)
      : graph_(graph),
        flows_(sampleFlows(graph)),
        mixings_(batchMixing(graph)),
        trails_(graph.values.size()),
        batch_(exportedBatch(graph)),
        symbolic_(!batchSymbol(graph).empty()) {
    if (symbolic_) {
      one_ = bindBatch(graph, batch_);
      two_ = bindBatch(graph, 2 * batch_);
    }
    for (const ValueId id : graph.inputs) trail(id).part = partByFlow(id);
    for (const Node& node : graph.nodes) visit(node);
  }

  [[nodiscard]] std::vector<OwnLoss> losses() {
    std::vector<OwnLoss> all;
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
      const ValueId id = graph_.outputs[o];
      const Value& value = graph_.value(id);
      const Trail& of = trail(id);
      const bool single =
          value.tensor && isDifferentiable(value.tensor->dtype) &&
          std::ranges::all_of(value.tensor->sizes, [](const SymbolicInt& s) { return s.expression.empty() && s.hint == 1; });
      if (!single || of.part == Part::Constant || of.part == Part::Samples) continue;
      all.push_back({o, formOf(of.part), of.node, of.counted, of.ignored, of.sum,
                     of.part == Part::NearlySum ? "a sum over the samples with something added or clamped" : of.why});
    }
    return all;
  }

 private:
  Trail& trail(ValueId id) { return trails_[id.index()]; }

  [[nodiscard]] Part partByFlow(ValueId id) const {
    switch (flows_[id.index()].kind) {
      case Kind::Same: return Part::Constant;
      case Kind::Numbers:
      case Kind::Along: return Part::Samples;
      case Kind::Mixed: break;
    }
    return Part::Unknown;
  }

  static LossForm formOf(Part part) {
    switch (part) {
      case Part::Mean: return LossForm::Mean;
      case Part::Sum: return LossForm::Sum;
      case Part::TargetMean: return LossForm::TargetMean;
      case Part::Quotient: return LossForm::Quotient;
      case Part::Unknown: return LossForm::Unknown;
      case Part::Constant:
      case Part::Samples:
      case Part::NearlySum:
      case Part::Other: break;
    }
    return LossForm::Other;
  }

  void visit(const Node& node) {
    for (const NamedArgument& argument : node.inputs) {
      if (const auto* inner = std::get_if<GraphArg>(&argument.value)) return enter(node, graph_.subgraphs[inner->index]);
    }
    const Trail result = trailOf(node);
    for (const ValueId id : node.outputs) {
      trail(id) = result;
      if (result.part == Part::Constant || result.part == Part::Samples)
        trail(id).part = partByFlow(id) == Part::Samples ? Part::Samples : result.part;
    }
  }

  /// What a value within a sub-graph is called outside: what it takes or returns; nothing of one that is made and used within.
  static std::optional<ValueId> nameOutside(ValueId inner, const Node& node, const Subgraph& subgraph,
                                            const std::vector<ValueId>& operands) {
    const std::size_t skipped = operands.size() - std::min(operands.size(), subgraph.inputs.size());
    for (std::size_t i = skipped; i < operands.size(); ++i) {
      if (subgraph.inputs[i - skipped] == inner) return operands[i];
    }
    for (std::size_t o = 0; o < subgraph.outputs.size() && o < node.outputs.size(); ++o) {
      if (subgraph.outputs[o] == inner) return node.outputs[o];
    }
    const auto makes = [&](const Node& within) { return std::ranges::find(within.outputs, inner) != within.outputs.end(); };
    return std::ranges::any_of(subgraph.nodes, makes) ? std::nullopt : std::optional(inner);
  }

  /// The trail of a sub-graph's output, in the names outside.
  static Trail outside(Trail inner, const Node& node, const Subgraph& subgraph, const std::vector<ValueId>& operands) {
    if (inner.counted) inner.counted = nameOutside(*inner.counted, node, subgraph, operands).value_or(*inner.counted);
    if (!inner.sum) return inner;
    inner.sum = nameOutside(*inner.sum, node, subgraph, operands);
    if (inner.sum) return inner;
    return other(node, "a sum over the samples that is made, and added to or clamped, within one region of no_grad or autocast");
  }

  void enter(const Node& node, const Subgraph& subgraph) {
    std::vector<ValueId> operands;
    for (const ValueId id : readsOf(node)) operands.push_back(id);
    const std::size_t skipped = operands.size() - std::min(operands.size(), subgraph.inputs.size());
    for (std::size_t i = skipped; i < operands.size(); ++i) trail(subgraph.inputs[i - skipped]) = trail(operands[i]);
    for (const Node& inside : subgraph.nodes) visit(inside);
    const bool plain = node.target.starts_with("torch.ops.higher_order.wrap_");
    for (std::size_t r = 0; r < node.outputs.size() && r < subgraph.outputs.size(); ++r) {
      trail(node.outputs[r]) = outside(trail(subgraph.outputs[r]), node, subgraph, operands);
      if (!plain && trail(node.outputs[r]).part > Part::Samples) trail(node.outputs[r]) = {Part::Unknown, &node, {}, -100, ""};
    }
  }

  /// What the operands are: the strongest, and whether another of them is not constant.
  struct Operands {
    std::vector<std::pair<std::string, Trail>> varying;
    bool samples = false;
  };
  Operands operandsOf(const Node& node) {
    Operands found;
    for (const NamedArgument& argument : node.inputs) {
      const auto add = [&](ValueId id) {
        if (graph_.value(id).symbolic) return;
        const Trail& of = trail(id);
        if (of.part == Part::Samples)
          found.samples = true;
        else if (of.part != Part::Constant)
          found.varying.emplace_back(argument.name, of);
      };
      if (const auto* one = std::get_if<ValueId>(&argument.value)) add(*one);
      if (const auto* many = std::get_if<std::vector<ValueId>>(&argument.value)) std::ranges::for_each(*many, add);
      if (const auto* some = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value)) {
        for (const auto& id : *some) {
          if (id) add(*id);
        }
      }
    }
    return found;
  }

  Trail trailOf(const Node& node) {
    const Operands operands = operandsOf(node);
    if (operands.varying.empty()) return operands.samples ? reduced(node) : Trail{};
    for (const auto& [name, of] : operands.varying) {
      if (isFinal(of.part)) return of;
    }
    // Numbers of all samples that meet the samples again: batch statistics. What comes of them is reported as mixing, and no mean of
    // anything.
    if (operands.samples) return other(node, std::string(wordOf(operands.varying.front().second.part)) + " used beside the samples");
    return combined(node, operands);
  }

  /// An operator on the samples: a reduction over them, or something of each.
  Trail reduced(const Node& node) {
    const auto mixing = std::ranges::find_if(mixings_, [&](const Mixing& m) { return m.node == &node; });
    if (mixing == mixings_.end()) {
      const bool lost = std::ranges::any_of(node.outputs, [&](ValueId id) { return flows_[id.index()].kind == Kind::Mixed; });
      return {lost ? Part::Unknown : Part::Samples, &node, {}, -100, ""};
    }
    if (mixing->unknown) return {Part::Unknown, &node, {}, -100, ""};
    const std::string name = operatorName(node);
    if (operatorOf(node.target).dimensions == DimensionRule::Loss) return lossOperator(node, name);
    if (name == "mean") return {Part::Mean, &node, {}, -100, ""};
    if (name == "sum" || name == "count_nonzero") return {Part::Sum, &node, {}, -100, ""};
    return other(node, name + " over the samples");
  }

  Trail lossOperator(const Node& node, const std::string& name) {
    const Argument* reduction = argumentOf(node, "reduction");
    const auto* code = reduction == nullptr ? nullptr : std::get_if<std::int64_t>(reduction);
    if (code != nullptr && *code == 2) return {Part::Sum, &node, {}, -100, ""};
    const bool counts = name == "cross_entropy_loss" || name.starts_with("nll_loss");
    if (!counts)
      return name == "ctc_loss" ? other(node, "ctc_loss, which divides by the lengths of the targets")
                                : Trail{Part::Mean, &node, {}, -100, ""};
    const Argument* weight = argumentOf(node, "weight");
    if (weight != nullptr && std::holds_alternative<ValueId>(*weight))
      return other(node, name + " with class weights, which divides by the weights of the targets");
    Trail result{Part::TargetMean, &node, {}, -100, ""};
    if (const Argument* ignored = argumentOf(node, "ignore_index"); ignored != nullptr && std::holds_alternative<std::int64_t>(*ignored)) {
      result.ignored = std::get<std::int64_t>(*ignored);
    }
    const Argument* target = argumentOf(node, "target");
    if (target == nullptr || !std::holds_alternative<ValueId>(*target)) return other(node, name);
    result.counted = std::get<ValueId>(*target);
    if (isDifferentiable(graph_.value(*result.counted).tensor->dtype))
      return {Part::Mean, &node, {}, -100, ""};  // probabilities: all count
    return result;
  }

  static Trail other(const Node& node, std::string why) { return {Part::Other, &node, {}, -100, std::move(why)}; }

  /// An operator on numbers of all samples.
  Trail combined(const Node& node, const Operands& operands) {
    std::string name = operatorName(node);
    if (isInPlace(node) && name.back() == '_') name.pop_back();
    constexpr std::array<std::string_view, 13> kKeeps = {"neg",   "negative", "sum",  "mean",          "select", "index", "cat",
                                                         "stack", "squeeze",  "copy", "masked_select", "expand", "repeat"};
    const Trail& first = operands.varying.front().second;
    const bool one = operands.varying.size() == 1;
    if (one && (isView(node) || isCopy(node) || isOneOf(kKeeps, name))) return first;
    if (name == "mul" || name == "multiply")
      return one ? scaled(node, first, true) : other(node, fmt::format("a product of {} and another", wordOf(first.part)));
    if (name == "div" || name == "divide" || name == "true_divide") return divided(node, operands);
    if (name == "add" || name == "sub" || name == "subtract" || name == "cat" || name == "stack") return added(node, operands);
    const bool cuts = name == "clamp" || name == "clamp_min" || name == "clip" || name == "maximum";
    if (one && cuts && (first.part == Part::Sum || first.part == Part::NearlySum)) return nearlySum(node, operands);
    return other(node, fmt::format("{} of {}", name, wordOf(first.part)));
  }

  /// Whether an operand is a number: 1 constant, 2 proportional to the batch, 0 neither.
  [[nodiscard]] int growth(const Node& node) const {
    const Argument* argument = argumentOf(node, "other");
    const auto* id = argument == nullptr ? nullptr : std::get_if<ValueId>(argument);
    if (id == nullptr || !graph_.value(*id).symbolic) return 1;
    if (!symbolic_) return 0;
    const auto small = knownNumber(*graph_.value(*id).symbolic, one_), large = knownNumber(*graph_.value(*id).symbolic, two_);
    if (!small || !large) return 0;  // known only when the model runs
    return *small == *large ? 1 : *large == 2 * *small ? 2 : 0;
  }

  Trail scaled(const Node& node, const Trail& number, bool times) {
    const int grows = growth(node);
    if (grows == 1) return number;
    if (grows == 2 && times && number.part == Part::Mean) return {Part::Sum, &node, {}, -100, ""};
    if (grows == 2 && !times && number.part == Part::Sum) return {Part::Mean, &node, {}, -100, ""};
    return other(node, fmt::format("{}, and the number of samples", wordOf(number.part)));
  }

  /// Something added to, or clamped of, the one operand that varies.
  static Trail nearlySum(const Node& node, const Operands& operands) {
    const auto& [name, trail] = operands.varying.front();
    const Argument* argument = argumentOf(node, name);
    const auto* id = argument == nullptr ? nullptr : std::get_if<ValueId>(argument);
    if (trail.sum || id != nullptr) return {Part::NearlySum, &node, {}, -100, "", trail.sum ? trail.sum : std::optional(*id)};
    return other(node, fmt::format("something added to {}", wordOf(trail.part)));
  }

  Trail divided(const Node& node, const Operands& operands) {
    const Trail& first = operands.varying.front().second;
    const bool isDivisor = operands.varying.front().first == "other";
    if (operands.varying.size() == 1)
      return isDivisor ? other(node, fmt::format("a number divided by {}", wordOf(first.part))) : scaled(node, first, false);
    const Trail& divisor = operands.varying.back().second;
    const Argument* divisorValue = argumentOf(node, "other");
    const bool sums = first.part == Part::Sum && (divisor.part == Part::Sum || divisor.part == Part::NearlySum);
    const bool means = first.part == Part::Mean && divisor.part == Part::Mean;
    if ((!sums && !means) || divisorValue == nullptr)
      return other(node, fmt::format("{} divided by {}", wordOf(first.part), wordOf(divisor.part)));
    Trail result{Part::Quotient, &node, std::get<ValueId>(*divisorValue), -100, "", divisor.sum};
    if (means) result.counted.reset();  // would have to be weighed by the samples, too
    return result;
  }

  Trail added(const Node& node, const Operands& operands) {
    const Trail& first = operands.varying.front().second;
    const bool hasConstant = operands.varying.size() < 2;
    for (const auto& [name, next] : operands.varying) {
      const bool same = next.part == first.part && next.counted == first.counted && next.ignored == first.ignored && next.sum == first.sum;
      if (!same)
        return other(node, fmt::format("{} and {} added", wordOf(first.part), next.part == first.part ? "another" : wordOf(next.part)));
    }
    if (hasConstant && (first.part == Part::Sum || first.part == Part::NearlySum)) return nearlySum(node, operands);
    return first;
  }

  const ModelGraph& graph_;
  std::vector<SampleFlow> flows_;
  std::vector<Mixing> mixings_;
  std::vector<Trail> trails_;
  std::int64_t batch_;
  bool symbolic_;
  Bindings one_, two_;
};

}  // namespace

std::vector<OwnLoss> ownLosses(const ModelGraph& graph) { return Tracer(graph).losses(); }

std::optional<OwnLoss> ownLossOf(const ModelGraph& graph, ValueId output) {
  for (const OwnLoss& loss : ownLosses(graph)) {
    if (graph.outputs[loss.output] == output) return loss;
  }
  return std::nullopt;
}

std::string lossBias(const ModelGraph& graph, const OwnLoss& loss) {
  const std::string& name = graph.outputNames[loss.output];
  const auto weighed = [&](const std::string& over, const std::string& many) {
    return fmt::format(
        "{} is {} of each microbatch, and a step averages these by samples: where a microbatch holds a tenth fewer {} than the average, "
        "each of its {} "
        "weighs 11 % more than in a loss over the whole batch; --loss-count auto weighs them equally",
        name, over, many, many);
  };
  switch (loss.form) {
    case LossForm::Mean: return "";
    case LossForm::Sum:
      return fmt::format(
          "{} is a sum over the samples, and a step averages those of its microbatches: loss and gradients are those of the whole batch "
          "divided by the number of microbatches",
          name);
    case LossForm::TargetMean: return weighed(fmt::format("the mean over the targets that are not {}", loss.ignored), "such targets");
    case LossForm::Quotient:
      return loss.counted ? weighed("a quotient of two sums over the samples", "counted elements")
                          : fmt::format("{} is a quotient of two means over the samples of each microbatch, not of the whole batch", name);
    case LossForm::Other:
      return fmt::format(
          "{} is computed from {}: that of the whole batch does not follow from those of its microbatches, of which a step takes the mean",
          name, loss.why);
    case LossForm::Unknown:
      return fmt::format("how {} of a batch follows from those of its microbatches, of which a step takes the mean, is not known", name);
  }
  return "";
}

}  // namespace pw
