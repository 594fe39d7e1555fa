#include "simulator/partition/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "schedules/error.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"
#include "simulator/partition/stage_cutter.h"

namespace pw {

/// Facts about a graph that all its stages use.
class Cutter {
 public:
  Cutter(const ModelGraph& graph, Bindings bindings, const Profile* costs)
      : graph_(graph),
        bindings_(std::move(bindings)),
        costs_(costs),
        gradient_(needsGradient(graph)),
        recomputable_(recomputableNodes(graph)),
        computed_(computedNumbers(graph)),
        parameterOf_(indexByValue(graph, graph.parameters)),
        bufferOf_(indexByValue(graph, graph.buffers)),
        constantOf_(indexByValue(graph, graph.constants)),
        together_(keptTogether(graph)) {
    if (costs != nullptr && costs->nodes.size() != graph.nodes.size()) {
      throw UsageError(fmt::format("The profile does not belong to model {}; profile it again.", graph.name));
    }
    std::map<std::string, std::size_t> seen;
    for (std::size_t i = 0; i < graph.parameters.size(); ++i)
      firstTied_.push_back(seen.emplace(storageOf(graph.parameters[i]), i).first->second);
    for (const Node& node : graph.nodes) reads_.push_back(readsOf(node));
  }

  [[nodiscard]] std::optional<Impossible> obstacle(const std::vector<NodeId>& begins) const {
    NodeId begin(0);
    for (std::size_t s = 0; s <= begins.size(); ++s) {
      const NodeId end = s < begins.size() ? begins[s] : NodeId(graph_.nodes.size());
      if (end <= begin || end.index() > graph_.nodes.size()) {
        return Impossible{fmt::format("Stage {} of {} would be empty; choose ascending split points inside the model.", s, graph_.name)};
      }
      begin = end;
    }
    for (const KeptTogether& group : together_) {
      const auto inside = std::upper_bound(begins.begin(), begins.end(), group.first);
      if (inside == begins.end() || *inside > group.last) continue;
      const Node& node = graph_.node(group.changer);
      return Impossible{
          fmt::format("{} ({}) changes {} in place, and another stage would use it too; do not begin a stage between @{} and @{}.",
                      node.target, node.sourceLine, graph_.value(group.value).name, group.first.value + 1, group.last.value)};
    }
    return std::nullopt;
  }

  Answer<StageCut> stage(NodeId begin, NodeId end, Stage number) const {
    const std::set<ValueId> foreign = foreignTo(begin, end);
    std::set<NodeId> recomputed;
    for (const ValueId v : foreign) {
      if (recomputed.contains(graph_.value(v).producer)) continue;
      const std::set<NodeId> closure = closureOf(v, recomputed);
      if (!closure.empty() && worthRecomputing(v, closure)) recomputed.insert(closure.begin(), closure.end());
    }
    return stage(begin, end, foreign, recomputed, number);
  }

  Answer<StageCut> stage(NodeId begin, NodeId end, const std::vector<NodeId>& recomputed, Stage number) const {
    const std::set<NodeId> chosen(recomputed.begin(), recomputed.end());
    for (const NodeId node : chosen) {
      const bool before = node < begin && recomputable_[node.index()];
      const bool complete = before && std::ranges::all_of(reads_[node.index()], [&](ValueId read) {
                              const Value& value = graph_.value(read);
                              return !isMade(read) || value.origin != ValueOrigin::Node || chosen.contains(value.producer);
                            });
      if (!complete) return Impossible{fmt::format("Stage {} cannot compute operator {} again.", number.value, node.value)};
    }
    return stage(begin, end, foreignTo(begin, end), chosen, number);
  }

  [[nodiscard]] Partition join(const std::vector<std::shared_ptr<const StageCut>>& stages) const {
    Partition result;
    result.stages.reserve(stages.size());
    std::vector<NodeId> begins;
    begins.reserve(stages.size());
    for (const auto& stage : stages) {
      result.stages.push_back(stage->spec);
      begins.push_back(stage->spec.begin);
    }
    for (std::size_t s = 0; s < stages.size(); ++s) {
      for (const Arrival& arrival : stages[s]->arrivals) {
        const auto from = static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), graph_.value(arrival.value).producer) -
                                                   begins.begin()) -
                          1;
        result.transfers.push_back({arrival.value, Stage(from), Stage(s), arrival.gradient, arrival.bytes});
      }
    }
    std::sort(result.transfers.begin(), result.transfers.end(),
              [](const Transfer& a, const Transfer& b) { return std::tie(a.from, a.to, a.value) < std::tie(b.from, b.to, b.value); });
    findReplicated(result);
    return result;
  }

 private:
  /// Whether it exists only where a node makes it: a tensor, or a number computed from data. Other numbers are evaluated everywhere.
  [[nodiscard]] bool isMade(ValueId v) const { return !graph_.value(v).symbolic || computed_[v.index()]; }
  [[nodiscard]] bool isLast(const StageSpec& spec) const { return spec.end.index() == graph_.nodes.size(); }

  /// Values that nodes [begin, end) use and nodes of other stages make.
  [[nodiscard]] std::set<ValueId> foreignTo(NodeId begin, NodeId end) const {
    std::set<ValueId> foreign;
    const auto look = [&](ValueId v) {
      const Value& value = graph_.value(v);
      if (isMade(v) && value.origin == ValueOrigin::Node && (value.producer < begin || value.producer >= end)) foreign.insert(v);
    };
    for (auto n = begin.index(); n < end.index(); ++n) {
      if (isAssertion(graph_.nodes[n])) continue;
      for (const ValueId v : reads_[n]) look(v);
    }
    if (end.index() == graph_.nodes.size()) {
      for (const ValueId v : graph_.outputs) look(v);
    }
    return foreign;
  }

  Answer<StageCut> stage(NodeId begin, NodeId end, const std::set<ValueId>& foreign, const std::set<NodeId>& recomputed,
                         Stage number) const {
    StageCut result;
    result.spec.begin = begin;
    result.spec.end = end;
    for (const ValueId v : foreign) {
      if (recomputed.contains(graph_.value(v).producer)) continue;
      const Answer<Arrival> arrival = arrivalOf(v, number);
      if (!arrival) return arrival.refusal();
      result.arrivals.push_back(*arrival);
    }
    result.spec.recomputed.assign(recomputed.begin(), recomputed.end());
    collectState(result.spec);
    return result;
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
      for (const ValueId read : reads_[node.index()]) {
        const Value& value = graph_.value(read);
        if (isMade(read) && value.origin == ValueOrigin::Node) open.push_back(value.producer);
      }
    }
    return closure;
  }

  [[nodiscard]] bool worthRecomputing(ValueId v, const std::set<NodeId>& closure) const {
    const auto& meta = graph_.value(v).tensor;
    if (!meta || costs_ == nullptr) return true;
    const LinkSpec& link = costs_->topology.sameNode;  // the usual one, as ranks are not known yet
    if (link.latency == 0 && link.bytesPerSecond == 0) return true;
    Ns compute = 0;
    for (const NodeId node : closure) compute += costs_->nodes[node.index()].forward;
    const std::optional<Bytes> bytes = knownBytes(*meta, bindings_);
    return !bytes || compute <= link.latency + transferTime(link, *bytes);  // one that depends on data cannot be sent at all
  }

  Answer<Arrival> arrivalOf(ValueId v, Stage to) const {
    const Value& value = graph_.value(v);
    if (value.symbolic) {
      return Impossible{
          fmt::format("Number {} depends on data and is used by stage {} after an earlier stage computes it; move the split point so that "
                      "both are in one stage.",
                      value.name, to.value)};
    }
    if (!value.tensor)
      return Impossible{fmt::format("Value {} would be sent to stage {} but is not a tensor; move the split point.", value.name, to.value)};
    const std::optional<Bytes> bytes = knownBytes(*value.tensor, bindings_);
    if (bytes) return Arrival{v, gradient_[v.index()], *bytes};
    return Impossible{
        fmt::format("Value {} has a data-dependent size and would be sent to stage {}, which cannot be planned ({}); move the split "
                    "point so that both sides are in one stage.",
                    value.name, to.value, whyUnknown(*value.tensor, bindings_))};
  }

  void collectState(StageSpec& spec) const {
    std::set<ValueId> inputs;
    std::set<std::size_t> parameters, buffers, constants;
    const auto look = [&](ValueId v) {
      if (graph_.value(v).origin == ValueOrigin::Input && !graph_.value(v).symbolic) inputs.insert(v);
      if (parameterOf_[v.index()] >= 0) parameters.insert(firstTied_[static_cast<std::size_t>(parameterOf_[v.index()])]);
      if (bufferOf_[v.index()] >= 0) buffers.insert(static_cast<std::size_t>(bufferOf_[v.index()]));
      if (constantOf_[v.index()] >= 0) constants.insert(static_cast<std::size_t>(constantOf_[v.index()]));
    };
    const auto lookAt = [&](NodeId node) {
      for (const ValueId v : reads_[node.index()]) look(v);
    };
    for (const NodeId node : spec.recomputed) lookAt(node);
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) lookAt(NodeId(n));
    if (isLast(spec)) {
      for (const ValueId v : graph_.outputs) look(v);
    }
    spec.modelInputs.assign(inputs.begin(), inputs.end());
    spec.parameters.assign(parameters.begin(), parameters.end());
    spec.buffers.assign(buffers.begin(), buffers.end());
    spec.constants.assign(constants.begin(), constants.end());
  }

  void findReplicated(Partition& result) const {
    std::vector<std::int32_t> first(graph_.parameters.size(), -1);  // the first stage with each
    std::map<std::size_t, std::vector<Stage>> holders;              // of those that several have
    for (std::size_t s = 0; s < result.stages.size(); ++s) {
      for (const std::size_t parameter : result.stages[s].parameters) {
        if (first[parameter] < 0) {
          first[parameter] = static_cast<std::int32_t>(s);
          continue;
        }
        std::vector<Stage>& stages = holders[parameter];
        if (stages.empty()) stages.emplace_back(first[parameter]);
        stages.emplace_back(s);
      }
    }
    for (const auto& [parameter, stages] : holders) {
      const StateTensor& state = graph_.parameters[parameter];
      if (!gradient_[state.value.index()]) continue;
      result.shared.push_back({state.name, storageOf(state), stages, bytesOf(*graph_.value(state.value).tensor, bindings_)});
    }
  }

  const ModelGraph& graph_;
  const Bindings bindings_;
  const Profile* costs_;
  std::vector<bool> gradient_, recomputable_, computed_;
  std::vector<int> parameterOf_, bufferOf_, constantOf_;
  std::vector<std::size_t> firstTied_;  // of each parameter, the first with the same storage
  std::vector<KeptTogether> together_;
  std::vector<std::vector<ValueId>> reads_;  // of each node
};

StageCutter::StageCutter(const ModelGraph& graph, Bindings bindings, const Profile* costs)
    : cutter_(std::make_unique<const Cutter>(graph, std::move(bindings), costs)) {}
StageCutter::~StageCutter() = default;
std::optional<Impossible> StageCutter::obstacle(const std::vector<NodeId>& begins) const { return cutter_->obstacle(begins); }
Answer<StageCut> StageCutter::stage(NodeRange nodes, Stage number) const { return cutter_->stage(nodes.begin, nodes.end, number); }
Answer<StageCut> StageCutter::stage(NodeRange nodes, const std::vector<NodeId>& recomputed, Stage number) const {
  return cutter_->stage(nodes.begin, nodes.end, recomputed, number);
}
std::vector<NodeId> beginsOf(const Partition& partition) {
  std::vector<NodeId> begins;
  for (std::size_t s = 1; s < partition.stages.size(); ++s) begins.push_back(partition.stages[s].begin);
  return begins;
}

bool isShared(const Partition& partition, const StateTensor& parameter) {
  return std::ranges::find(partition.shared, storageOf(parameter), &SharedParameter::storage) != partition.shared.end();
}

Partition StageCutter::join(const std::vector<std::shared_ptr<const StageCut>>& stages) const { return cutter_->join(stages); }

std::vector<NodeRange> rangesOf(const ModelGraph& graph, const std::vector<NodeId>& begins) {
  std::vector<NodeRange> ranges;
  NodeId begin(0);
  for (std::size_t s = 0; s <= begins.size(); ++s) {
    const NodeId end = s < begins.size() ? begins[s] : NodeId(graph.nodes.size());
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

Partition cutGraph(const ModelGraph& graph, const std::vector<NodeId>& begins, const Bindings& bindings, const Profile* costs) {
  const StageCutter cutter(graph, bindings, costs);
  if (const auto no = cutter.obstacle(begins)) refuse(*no);
  std::vector<std::shared_ptr<const StageCut>> stages;
  for (const NodeRange& range : rangesOf(graph, begins))
    stages.push_back(std::make_shared<const StageCut>(cutter.stage(range, Stage(stages.size())).orThrow()));
  return cutter.join(stages);
}

}  // namespace pw
