#include "simulator/partition/module_tree.h"

#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/costs/operator_flops.h"
#include "simulator/costs/profile.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"
#include "simulator/partition/partition.h"

namespace pw {
namespace {

/// What one node adds to each module around it.
struct Contribution {
  double flops = 0;
  Bytes activations = 0;
};

Contribution contributionOf(const ModelGraph& graph, const Node& node, const std::vector<bool>& gradient, const Bindings& bindings) {
  const std::optional<double> flops = forwardFlops(graph, node, bindings);
  if (!flops) return {};  // a data-dependent size: nothing is known about it; the report names it
  Contribution sum{*flops, 0};
  if (isView(node) || isInPlace(node)) return sum;
  for (const ValueId v : node.outputs) {
    const auto& meta = graph.value(v).tensor;
    if (!gradient[v.index()] || !meta) continue;
    const std::optional<Bytes> bytes = knownBytes(*meta, bindings);
    if (!bytes) return {};
    sum.activations += *bytes;
  }
  return sum;
}

std::string labelOf(const std::string& path, const std::string& around) {
  const bool inside = !around.empty() && path.size() > around.size() && path.compare(0, around.size() + 1, around + ".") == 0;
  return inside ? path.substr(around.size() + 1) : path;
}

std::int64_t elementsOf(const TensorMeta& meta) {
  std::int64_t count = 1;
  for (const SymbolicInt& size : meta.sizes) count *= size.hint;
  return count;
}

/// Modules as a tree while it grows: children in the order in which they were first executed.
struct Branch {
  ModuleSummary summary;
  std::vector<std::size_t> children;
  std::set<std::string> storages;
};

class Tree {
 public:
  explicit Tree(const ModelGraph& graph) : graph_(graph), parameterOf_(indexByValue(graph, graph.parameters)) {
    branches_.push_back({{"", graph.name, "", 0, 0, 0, 0, 0, 0}, {}, {}});
  }

  void add(const Node& node, const Contribution& contribution) {
    std::vector<std::size_t> around{0};
    std::set<std::size_t> seen{0};
    for (const ModuleFrame& frame : node.modules) {
      if (frame.path.empty()) {
        branches_[0].summary.className = frame.className;
        continue;
      }
      const std::size_t branch = find(frame, around.back());
      if (seen.insert(branch).second) around.push_back(branch);
    }
    for (const std::size_t b : around) {
      ModuleSummary& summary = branches_[b].summary;
      summary.operators += 1;
      summary.forwardFlops += contribution.flops;
      summary.activationBytes += contribution.activations;
      for (const ValueId v : readsOf(node)) {
        if (parameterOf_[v.index()] >= 0) addParameter(branches_[b], graph_.parameters[static_cast<std::size_t>(parameterOf_[v.index()])]);
      }
    }
  }

  [[nodiscard]] std::vector<ModuleSummary> flattened() {
    for (const StateTensor& parameter : graph_.parameters) addParameter(branches_[0], parameter);
    std::vector<ModuleSummary> list;
    flatten(0, list);
    return list;
  }

 private:
  std::size_t find(const ModuleFrame& frame, std::size_t around) {
    const auto [found, isNew] = indexOf_.try_emplace(frame.path, branches_.size());
    if (!isNew) return found->second;
    const ModuleSummary& outer = branches_[around].summary;
    ModuleSummary summary{frame.path, labelOf(frame.path, outer.path), frame.className, outer.depth + 1, 0, 0, 0, 0, 0};
    branches_[around].children.push_back(branches_.size());
    branches_.push_back({std::move(summary), {}, {}});
    return found->second;
  }

  void addParameter(Branch& branch, const StateTensor& parameter) const {
    const auto& meta = graph_.value(parameter.value).tensor;
    if (!meta || !branch.storages.insert(storageOf(parameter)).second) return;
    branch.summary.parameters += elementsOf(*meta);
    branch.summary.parameterBytes += bytesOf(*meta, {});
  }

  void flatten(std::size_t branch, std::vector<ModuleSummary>& list) const {
    list.push_back(branches_[branch].summary);
    for (const std::size_t child : branches_[branch].children) flatten(child, list);
  }

  const ModelGraph& graph_;
  std::vector<int> parameterOf_;
  std::vector<Branch> branches_;
  std::map<std::string, std::size_t> indexOf_;
};

std::string dimension(const SymbolicInt& size, const std::string& batch) {
  if (size.expression.empty()) return fmt::format("{}", size.hint);
  const std::optional<LinearForm> form = linearForm(size);
  if (!form) return fmt::format("{}?", size.hint);  // the size at export
  const std::string symbol = form->symbol == batch ? "batch" : form->symbol;
  const std::string scaled = form->factor == 1 ? symbol : fmt::format("{}·{}", form->factor, symbol);
  if (form->constant == 0) return scaled;
  return fmt::format("{} {} {}", scaled, form->constant < 0 ? '-' : '+', form->constant < 0 ? -form->constant : form->constant);
}

}  // namespace

std::vector<ModuleSummary> moduleTree(const ModelGraph& graph, const Bindings& bindings) {
  const std::vector<bool> gradient = needsGradient(graph);
  Tree tree(graph);
  for (const Node& node : graph.nodes) tree.add(node, contributionOf(graph, node, gradient, bindings));
  return tree.flattened();
}

std::vector<std::string> dimensionLabels(const ModelGraph& graph, const TensorMeta& meta) {
  const std::string batch = batchSymbol(graph);
  std::vector<std::string> list;
  for (const SymbolicInt& size : meta.sizes) list.push_back(dimension(size, batch));
  return list;
}

std::map<std::string, std::string> tiedParameters(const ModelGraph& graph) {
  std::map<std::string, std::string> tied = graph.tiedAliases;
  std::map<std::string, std::string> holder;
  for (const StateTensor& parameter : graph.parameters) {
    if (parameter.storage.empty()) continue;
    const auto [first, isNew] = holder.try_emplace(parameter.storage, parameter.name);
    if (!isNew) tied.emplace(parameter.name, first->second);
  }
  return tied;
}

}  // namespace pw
