#include "simulator/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "schedules/error.h"
#include "simulator/graph_facts.h"

namespace pw {
namespace {

/// Builds one partition; keeps what all its steps look at.
class Cutter {
 public:
  Cutter(const ModelGraph& graph, const std::vector<NodeId>& begins, const Bindings& bindings, const Profile* costs)
      : graph_(graph), bindings_(bindings), costs_(costs), gradient_(needsGradient(graph)), recomputable_(recomputableNodes(graph)), computed_(computedNumbers(graph)),
        parameterOf_(indexByValue(graph, graph.parameters)), bufferOf_(indexByValue(graph, graph.buffers)),
        constantOf_(indexByValue(graph, graph.constants)), stageOf_(graph.nodes.size()) {
    if (costs != nullptr && costs->nodes.size() != graph.nodes.size()) {
      throw UsageError(fmt::format("The profile does not belong to model {}; profile it again.", graph.name));
    }
    std::map<std::string, std::size_t> seen;
    for (std::size_t i = 0; i < graph.parameters.size(); ++i) firstTied_.push_back(seen.emplace(storageOf(graph.parameters[i]), i).first->second);
    NodeId begin(0);
    for (std::size_t s = 0; s <= begins.size(); ++s) {
      const NodeId end = s < begins.size() ? begins[s] : NodeId(graph.nodes.size());
      if (end <= begin || end.index() > graph.nodes.size()) {
        throw UsageError(fmt::format("Stage {} of {} would be empty; choose split points in ascending order, inside the model.", s, graph.name));
      }
      StageSpec spec;
      spec.begin = begin;
      spec.end = end;
      result_.stages.push_back(std::move(spec));
      for (auto n = begin.index(); n < end.index(); ++n) stageOf_[n] = Stage(s);
      begin = end;
    }
  }

  Partition cut() {
    refuseChangesAcrossCuts();
    for (std::size_t s = 0; s < result_.stages.size(); ++s) connect(Stage(s));
    std::sort(result_.transfers.begin(), result_.transfers.end(),
              [](const Transfer& a, const Transfer& b) { return std::tie(a.from, a.to, a.value) < std::tie(b.from, b.to, b.value); });
    findReplicated();
    return std::move(result_);
  }

 private:
  [[nodiscard]] Stage producerStage(ValueId v) const { return stageOf_[graph_.value(v).producer.index()]; }

  /// Whether it exists only where a node makes it: a tensor, or a number computed from data. Other numbers are evaluated everywhere.
  [[nodiscard]] bool isMade(ValueId v) const { return !graph_.value(v).symbolic || computed_[v.index()]; }

  void refuseChangesAcrossCuts() const {
    for (const KeptTogether& group : keptTogether(graph_)) {
      if (stageOf_[group.first.index()] == stageOf_[group.last.index()]) continue;
      const Node& node = graph_.node(group.changer);
      throw UsageError(fmt::format("{} ({}) changes {} in place, and another stage would use it too; let no stage begin between @{} and @{}.", node.target,
                                   node.sourceLine, graph_.value(group.value).name, group.first.value + 1, group.last.value));
    }
  }

  void connect(Stage stage) {
    StageSpec& spec = result_.stages[stage.index()];
    std::set<ValueId> foreign;
    const auto look = [&](ValueId v) {
      const Value& value = graph_.value(v);
      if (isMade(v) && value.origin == ValueOrigin::Node && producerStage(v) != stage) foreign.insert(v);
    };
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) {
      if (isAssertion(graph_.nodes[n])) continue;
      for (const ValueId v : readsOf(graph_.nodes[n])) look(v);
    }
    if (stage.index() + 1 == result_.stages.size()) {
      for (const ValueId v : graph_.outputs) look(v);
    }
    std::set<NodeId> recomputed;
    for (const ValueId v : foreign) {
      if (recomputed.contains(graph_.value(v).producer)) continue;
      const std::set<NodeId> closure = closureOf(v, recomputed);
      if (!closure.empty() && worthRecomputing(v, closure)) recomputed.insert(closure.begin(), closure.end());
    }
    for (const ValueId v : foreign) {
      if (!recomputed.contains(graph_.value(v).producer)) addTransfer(v, stage);
    }
    spec.recomputed.assign(recomputed.begin(), recomputed.end());
    collectState(stage);
  }

  /// Nodes to compute `v` from inputs and constants, without those in `done`; empty when it cannot be computed so.
  [[nodiscard]] std::set<NodeId> closureOf(ValueId v, const std::set<NodeId>& done) const {
    std::set<NodeId> closure;
    std::vector<NodeId> open{graph_.value(v).producer};
    while (!open.empty()) {
      const NodeId node = open.back();
      open.pop_back();
      if (!recomputable_[node.index()]) return {};
      if (done.contains(node) || !closure.insert(node).second) continue;
      for (const ValueId read : readsOf(graph_.node(node))) {
        const Value& value = graph_.value(read);
        if (isMade(read) && value.origin == ValueOrigin::Node) open.push_back(value.producer);
      }
    }
    return closure;
  }

  [[nodiscard]] bool worthRecomputing(ValueId v, const std::set<NodeId>& closure) const {
    const auto& meta = graph_.value(v).tensor;
    if (!meta || costs_ == nullptr || (costs_->link.latency == 0 && costs_->link.bytesPerSecond == 0)) return true;
    Ns compute = 0;
    for (const NodeId node : closure) compute += costs_->nodes[node.index()].forward;
    try {
      return compute <= costs_->link.latency + transferTime(costs_->link, bytesOf(*meta, bindings_));
    } catch (const Error&) {
      return true;  // a size that depends on data cannot be sent at all
    }
  }

  void addTransfer(ValueId v, Stage to) {
    const Value& value = graph_.value(v);
    if (value.symbolic) {
      throw UsageError(fmt::format("Number {} depends on data and is used by stage {} after stage {} computes it; move the split point so that both are in one stage.",
                                   value.name, to.value, producerStage(v).value));
    }
    if (!value.tensor) throw UsageError(fmt::format("Value {} crosses into stage {} and is no tensor; move the split point.", value.name, to.value));
    try {
      result_.transfers.push_back({v, producerStage(v), to, gradient_[v.index()], bytesOf(*value.tensor, bindings_)});
    } catch (const Error& e) {
      throw UsageError(fmt::format("Value {} has a size that depends on data and would cross into stage {}, which cannot be planned ({}); move the split point so that both sides are in "
                                   "one stage.",
                                   value.name, to.value, e.what()));
    }
  }

  void collectState(Stage stage) {
    StageSpec& spec = result_.stages[stage.index()];
    std::set<ValueId> inputs;
    std::set<std::size_t> parameters, buffers, constants;
    const auto look = [&](ValueId v) {
      if (graph_.value(v).origin == ValueOrigin::Input && !graph_.value(v).symbolic) inputs.insert(v);
      if (parameterOf_[v.index()] >= 0) parameters.insert(firstTied_[static_cast<std::size_t>(parameterOf_[v.index()])]);
      if (bufferOf_[v.index()] >= 0) buffers.insert(static_cast<std::size_t>(bufferOf_[v.index()]));
      if (constantOf_[v.index()] >= 0) constants.insert(static_cast<std::size_t>(constantOf_[v.index()]));
    };
    const auto lookAt = [&](NodeId node) {
      for (const ValueId v : readsOf(graph_.node(node))) look(v);
    };
    for (const NodeId node : spec.recomputed) lookAt(node);
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) lookAt(NodeId(n));
    if (stage.index() + 1 == result_.stages.size()) {
      for (const ValueId v : graph_.outputs) look(v);
    }
    spec.modelInputs.assign(inputs.begin(), inputs.end());
    spec.parameters.assign(parameters.begin(), parameters.end());
    spec.buffers.assign(buffers.begin(), buffers.end());
    spec.constants.assign(constants.begin(), constants.end());
  }

  void findReplicated() {
    std::map<std::size_t, std::vector<Stage>> holders;
    for (std::size_t s = 0; s < result_.stages.size(); ++s) {
      for (const std::size_t parameter : result_.stages[s].parameters) holders[parameter].push_back(Stage(s));
    }
    for (const auto& [parameter, stages] : holders) {
      const StateTensor& state = graph_.parameters[parameter];
      if (stages.size() < 2 || !gradient_[state.value.index()]) continue;
      result_.shared.push_back({state.name, storageOf(state), stages, bytesOf(*graph_.value(state.value).tensor, bindings_)});
    }
  }

  const ModelGraph& graph_;
  const Bindings& bindings_;
  const Profile* costs_;
  std::vector<bool> gradient_, recomputable_, computed_;
  std::vector<int> parameterOf_, bufferOf_, constantOf_;
  std::vector<std::size_t> firstTied_;  // of each parameter, the first with the same storage
  std::vector<Stage> stageOf_;
  Partition result_;
};

}  // namespace

Partition cut(const ModelGraph& graph, const std::vector<NodeId>& begins, const Bindings& bindings, const Profile* costs) {
  return Cutter(graph, begins, bindings, costs).cut();
}

}  // namespace pw
