#include "simulator/costs/operator_costs.h"
#include "simulator/costs/expected_sizes.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>

#include "simulator/costs/operator_flops.h"
#include "simulator/costs/profile.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

bool hasSubgraph(const Node& node) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [](const NamedArgument& a) { return std::holds_alternative<GraphArg>(a.value); });
}

std::string shortName(const Node& node) {
  static const std::string higherOrder = "torch.ops.higher_order.";
  return node.target.rfind(higherOrder, 0) == 0 ? node.target.substr(higherOrder.size()) : operatorName(node);
}

/// Collects entries in the order of their first calls.
class Collector {
 public:
  Collector(const ModelGraph& graph, const Bindings& bindings) : graph_(graph), bindings_(bindings) {}

  void visit(const Node& node, const std::string& around) {
    const std::string module = node.modules.empty() || node.modules.back().path.empty() ? around : node.modules.back().path;
    switch (countingOf(node)) {
      case Counting::ByFlops:
      case Counting::ByBytes:
        if (dependsOnData(node)) add(node, module, "its size is data-dependent");
        break;
      case Counting::BySubgraph:
        if (node.target == "torch.ops.higher_order.while_loop")
          add(node, module, "one iteration counted: the number of iterations is unknown");
        break;
      case Counting::Nothing: break;
      case Counting::Unknown: add(node, module, "no rule for its cost"); break;
    }
    for (const NamedArgument& argument : node.inputs) {
      const auto* inner = std::get_if<GraphArg>(&argument.value);
      if (inner == nullptr) continue;
      for (const Node& nested : graph_.subgraphs[inner->index].nodes) visit(nested, module);
    }
  }

  std::vector<NotCounted> list;

 private:
  [[nodiscard]] bool dependsOnData(const Node& node) const {
    const auto isUnknown = [&](ValueId v) {
      const Value& value = graph_.value(v);
      return value.tensor && !value.symbolic && !knownBytes(*value.tensor, bindings_);
    };
    return !forwardFlops(graph_, node, bindings_) || std::ranges::any_of(node.outputs, isUnknown) ||
           (!isView(node) && std::ranges::any_of(readsOf(node), isUnknown));
  }

  void add(const Node& node, const std::string& module, const char* why) {
    const std::string op = shortName(node);
    const auto [found, isNew] = places_.try_emplace({op, module, why}, list.size());
    isNew ? static_cast<void>(list.push_back({op, module, why, 1})) : static_cast<void>(++list[found->second].count);
  }

  const ModelGraph& graph_;
  const Bindings& bindings_;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places_;
};

}  // namespace

Counting countingOf(const Node& node) {
  if (node.target.rfind("torch.ops.", 0) != 0 || isAssertion(node)) return Counting::Nothing;
  if (hasSubgraph(node)) return Counting::BySubgraph;
  const Operator& op = operatorOf(node.target);
  if (op.result == Result::ViewWhenOff && isView(node)) return Counting::Nothing;
  switch (op.work) {
    case Work::Unknown: return Counting::Unknown;
    case Work::Nothing: return Counting::Nothing;
    case Work::Memory: return Counting::ByBytes;
    case Work::Product:
    case Work::SummedProduct:
    case Work::GroupedProduct:
    case Work::Chain:
    case Work::TensorDot:
    case Work::Bilinear:
    case Work::Einsum:
    case Work::Convolution:
    case Work::Attention:
    case Work::Recurrent:
    case Work::Bag:
    case Work::Transform: break;
  }
  return Counting::ByFlops;
}

std::vector<NotCounted> notCounted(const ModelGraph& graph, std::int64_t microbatch) {
  const Bindings bindings = bindExpected(graph, microbatch);
  Collector collector(graph, bindings);
  for (const Node& node : graph.nodes) collector.visit(node, "");
  return std::move(collector.list);
}

std::string notCountedText(const std::vector<NotCounted>& list, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), most); ++i) {
    const NotCounted& one = list[i];
    text += fmt::format("{}{}{}{} ({})", i == 0 ? "not counted: " : ", ", one.count > 1 ? fmt::format("{} × ", one.count) : "", one.op,
                        one.module.empty() ? "" : " in " + one.module, one.why);
  }
  if (list.size() > most) text += fmt::format(", and {} more", list.size() - most);
  return text;
}

}  // namespace pw
