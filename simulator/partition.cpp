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

/// Without measured costs a value is computed again when that takes at most this many nodes: position ids and causal masks take 1 to 4.
constexpr std::size_t kCheapNodes = 4;

/// Builds one partition; keeps what all its steps look at.
class Cutter {
 public:
  Cutter(const ModelGraph& graph, const std::vector<NodeId>& begins, const Bindings& bindings, const Profile* costs)
      : graph_(graph), bindings_(bindings), costs_(costs), gradient_(needsGradient(graph)), recomputable_(recomputableNodes(graph)),
        parameterOf_(indexByValue(graph, graph.parameters)), bufferOf_(indexByValue(graph, graph.buffers)),
        constantOf_(indexByValue(graph, graph.constants)), stageOf_(graph.nodes.size()) {
    NodeId begin(0);
    for (std::size_t s = 0; s <= begins.size(); ++s) {
      const NodeId end = s < begins.size() ? begins[s] : NodeId(graph.nodes.size());
      if (end <= begin) throw UsageError(fmt::format("Stage {} of {} would be empty; choose split points in ascending order.", s, graph.name));
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

  /// An operator that writes through a view changes its base, which must therefore live in the same stage.
  void refuseChangesAcrossCuts() const {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const auto reads = readsOf(node);
      if (!isInPlace(node) || reads.empty()) continue;
      const ValueId base = viewedBase(graph_, reads.front());
      if (base == reads.front() || graph_.value(base).origin != ValueOrigin::Node || producerStage(base) == stageOf_[n]) continue;
      throw UsageError(fmt::format("{} at {} writes through a view into {}, which another stage computes; move the split point.", node.target,
                                   node.sourceLine, graph_.value(base).name));
    }
  }

  void connect(Stage stage) {
    StageSpec& spec = result_.stages[stage.index()];
    std::set<ValueId> foreign;
    const auto look = [&](ValueId v) {
      const Value& value = graph_.value(v);
      if (!value.symbolic && value.origin == ValueOrigin::Node && producerStage(v) != stage) foreign.insert(v);
    };
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) {
      for (const ValueId v : readsOf(graph_.nodes[n])) look(v);
    }
    if (stage.index() + 1 == result_.stages.size()) {
      for (const ValueId v : graph_.outputs) look(v);
    }
    std::set<NodeId> recomputed;
    for (const ValueId v : foreign) {
      const std::set<NodeId> closure = closureOf(v, recomputed);
      if (!closure.empty() && worthRecomputing(v, closure)) {
        recomputed.insert(closure.begin(), closure.end());
      }
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
      if (done.contains(node) && node != graph_.value(v).producer) continue;
      if (!closure.insert(node).second) continue;
      for (const ValueId read : readsOf(graph_.node(node))) {
        const Value& value = graph_.value(read);
        if (!value.symbolic && value.origin == ValueOrigin::Node) open.push_back(value.producer);
      }
    }
    return closure;
  }

  [[nodiscard]] bool worthRecomputing(ValueId v, const std::set<NodeId>& closure) const {
    if (costs_ == nullptr || costs_->link.latency == 0) return closure.size() <= kCheapNodes;
    Ns compute = 0;
    for (const NodeId node : closure) compute += costs_->nodes.at(node.index()).forward;
    return compute <= costs_->link.latency + transferTime(costs_->link, bytesOf(*graph_.value(v).tensor, bindings_));
  }

  void addTransfer(ValueId v, Stage to) {
    const Value& value = graph_.value(v);
    if (!value.tensor) throw UsageError(fmt::format("Value {} crosses into stage {} and is no tensor; move the split point.", value.name, to.value));
    try {
      result_.transfers.push_back({v, producerStage(v), to, gradient_[v.index()], bytesOf(*value.tensor, bindings_)});
    } catch (const Error& e) {
      throw UsageError(fmt::format("Value {} would cross into stage {} with a size that depends on data ({}); move the split point.", value.name, to.value, e.what()));
    }
  }

  void collectState(Stage stage) {
    StageSpec& spec = result_.stages[stage.index()];
    std::set<ValueId> inputs;
    std::set<std::size_t> parameters, buffers, constants;
    const auto look = [&](ValueId v) {
      if (graph_.value(v).origin == ValueOrigin::Input) inputs.insert(v);
      if (parameterOf_[v.index()] >= 0) parameters.insert(firstWithStorage(static_cast<std::size_t>(parameterOf_[v.index()])));
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

  [[nodiscard]] std::size_t firstWithStorage(std::size_t index) const {
    for (std::size_t i = 0; i < index; ++i) {
      if (storageOf(graph_.parameters[i]) == storageOf(graph_.parameters[index])) return i;
    }
    return index;
  }

  void findReplicated() {
    std::map<std::size_t, std::vector<Stage>> holders;
    for (std::size_t s = 0; s < result_.stages.size(); ++s) {
      for (const std::size_t parameter : result_.stages[s].parameters) holders[parameter].push_back(Stage(s));
    }
    for (const auto& [parameter, stages] : holders) {
      const StateTensor& state = graph_.parameters[parameter];
      if (stages.size() < 2 || !gradient_[state.value.index()]) continue;
      result_.replicated.push_back({state.name, storageOf(state), stages, bytesOf(*graph_.value(state.value).tensor, bindings_)});
    }
  }

  const ModelGraph& graph_;
  const Bindings& bindings_;
  const Profile* costs_;
  std::vector<bool> gradient_, recomputable_;
  std::vector<int> parameterOf_, bufferOf_, constantOf_;
  std::vector<Stage> stageOf_;
  Partition result_;
};

}  // namespace

Partition cut(const ModelGraph& graph, const std::vector<NodeId>& begins, const Bindings& bindings, const Profile* costs) {
  return Cutter(graph, begins, bindings, costs).cut();
}

}  // namespace pw
