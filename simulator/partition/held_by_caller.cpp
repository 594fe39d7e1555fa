#include "simulator/partition/held_by_caller.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "simulator/costs/kept_values.h"
#include "simulator/model/graph_facts.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

/// Whether the gradient of the node's result is that of an input of the same size and type, in the same memory.
bool passesGradientOn(const ModelGraph& graph, const Node& node, ValueId input) {
  const Operator& op = operatorOf(node.target);
  const std::optional<TensorMeta>&from = graph.value(input).tensor, &to = graph.value(node.outputs.front()).tensor;
  if (!from || !to || from->dtype != to->dtype) return false;
  const bool mayPass = op.result == Result::Copy || op.weightPart == WeightPart::Sum || isView(node);  // a dropout that draws nothing
  if (mayPass && from->sizes == to->sizes) return true;
  return op.dimensions == DimensionRule::Reshape || op.dimensions == DimensionRule::Permute;
}

/// Where the profile frees the gradient of a value.
struct Freed {
  ValueId value;
  NodeId used;
  Bytes bytes = 0;
};

class Holding {
 public:
  Holding(const ModelGraph& graph, const Lifetimes& lifetimes, const Keepers& keepers, const StageSpec& stage)
      : graph_(graph),
        lifetimes_(lifetimes),
        keepers_(keepers),
        stage_(stage),
        isLast_(stage.end.index() == graph.nodes.size()),
        held_{nothing(), nothing(), nothing()} {}

  HeldByCaller all() {
    auto range = stage_.checkpoints.cbegin();
    for (NodeId n = stage_.begin; n < stage_.end; ++n.value) {
      while (range != stage_.checkpoints.cend() && range->end <= n) ++range;
      const bool isInRange = range != stage_.checkpoints.cend() && range->begin <= n;
      receive(n);
      for (const Life& made : lifetimes_.madeBy(n.index())) send(made, isInRange ? &*range : nullptr);
    }
    for (const auto& [of, last] : sent_) hold(last, {stage_.begin, stage_.end}, true);
    for (const ValueId value : received_) {
      addAfterBackward(value, {stage_.begin, stage_.end});
      copyGradient(value);
      const std::vector<NodeId>& holders = keepers_.holders[value.index()];
      const bool isHeldEarlier = !holders.empty() && holders.front() < stage_.begin;
      if (isHeldEarlier && holdsFor(value, {stage_.begin, stage_.end})) held_.forWeights += lifetimes_.of(value).bytes;
    }
    return std::move(held_);
  }

 private:
  [[nodiscard]] std::vector<Bytes> nothing() const { return std::vector<Bytes>(stage_.end.index() - stage_.begin.index(), 0); }
  [[nodiscard]] std::size_t placeOf(NodeId node) const { return node.index() - stage_.begin.index(); }

  /// Whether a W of the range needs the value.
  [[nodiscard]] bool holdsFor(ValueId value, const NodeRange& range) const {
    const std::vector<NodeId>& holders = keepers_.holders[value.index()];
    const auto first = std::ranges::lower_bound(holders, range.begin);
    return first != holders.end() && *first < range.end;
  }

  /// What a node reads of earlier stages.
  void receive(NodeId n) {
    for (const ValueId value : keepers_.reads[n.index()]) {
      const Life& life = lifetimes_.of(value);
      const bool isEarlier = life.bytes > 0 && life.from < stage_.begin;
      if (!isEarlier || std::ranges::find(stage_.recomputed, life.from) != stage_.recomputed.end()) continue;
      if (!received_.insert(value).second || keepers_.by[value.index()] >= NodeId(0)) continue;
      if (life.to < stage_.end) held_.afterForward[placeOf(life.to)] += life.bytes;
    }
  }

  /// Autograd gives a received value a gradient of its own where a W holds what was passed on to it.
  void copyGradient(ValueId value) {
    const std::vector<NodeId>& readers = keepers_.readers[value.index()];
    const auto first = std::ranges::lower_bound(readers, stage_.begin), end = std::ranges::lower_bound(readers, stage_.end);
    if (end - first != 1) return;  // several are added up
    const Node& reader = graph_.node(*first);
    if (reader.outputs.size() != 1 || !passesGradientOn(graph_, reader, value)) return;
    if (keepers_.heldGradient[reader.outputs.front().index()] >= stage_.begin)
      held_.afterInput[placeOf(*first)] += lifetimes_.of(value).bytes;
  }

  /// What a node makes, in a checkpointed range or outside.
  void send(const Life& made, const NodeRange* range) {
    const NodeRange whole{stage_.begin, stage_.end};
    const bool isSent = !isLast_ && made.to >= stage_.end, leavesRange = range != nullptr && made.to >= range->end;
    if (isSent || leavesRange) holdGradient(made, isSent ? whole : *range, isSent);
    if (leavesRange && addAfterBackward(made.value, *range)) return;
    if (isSent) addAfterBackward(made.value, whole);
  }

  /// What leaves a range of a value that it changes in place.
  [[nodiscard]] ValueId lastVersion(ValueId value, const NodeRange& range) const {
    const auto versions = keepers_.versions.find(value);
    if (versions == keepers_.versions.end()) return value;
    for (const ValueId version : versions->second | std::views::reverse) {
      if (graph_.value(version).producer < range.end) return version;
    }
    return value;
  }

  /// From where the profile says that a value's gradient is free, until the range's backward is over.
  void holdGradient(const Life& made, const NodeRange& range, bool isSent) {
    const ValueId value = lastVersion(made.value, range);
    if (!keepers_.needsGradient[value.index()]) return;
    const std::vector<NodeId>& readers = keepers_.readers[value.index()];
    const auto later = std::ranges::lower_bound(readers, range.end);
    const NodeId used = later != readers.begin() ? *std::prev(later) : keepers_.usedGradient[value.index()];
    if (used < range.begin) return;
    const Freed freed{value, used, made.bytes};
    if (!isSent) return hold(freed, range, false);
    // The profile has one memory for what an addition passes on to several values, and frees it when the last of them is done with it.
    const auto [at, isNew] = sent_.try_emplace(gradientOf(value), freed);
    if (!isNew && used < at->second.used) at->second = freed;
  }

  void hold(const Freed& freed, const NodeRange& range, bool isSent) {
    const auto in = [&](std::vector<Bytes>& gradients) {
      gradients[placeOf(freed.used)] += freed.bytes;
      if (!isSent) gradients[placeOf(range.begin)] -= freed.bytes;
    };
    in(held_.afterBackward);
    if (keepers_.heldGradient[freed.value.index()] < range.begin) in(held_.afterInput);
  }

  /// The value in whose gradient's memory that of a value begins: of what the last node that reads it makes, where it passes that on.
  [[nodiscard]] ValueId gradientOf(ValueId value) const {
    for (;;) {
      const std::vector<NodeId>& readers = keepers_.readers[value.index()];
      if (readers.empty() || readers.back() < stage_.end) return value;
      const Node& last = graph_.node(readers.back());
      if (last.outputs.size() != 1 || !passesGradientOn(graph_, last, value)) return value;
      if (lifetimes_.of(last.outputs.front()).bytes != lifetimes_.of(value).bytes) return value;  // autocast makes one of them 16 bits
      value = last.outputs.front();
    }
  }

  /// Whether the last backward that needs a value is in the range.
  bool addAfterBackward(ValueId value, const NodeRange& range) {
    const NodeId keeper = keepers_.by[value.index()];
    const bool isThere = keeper >= range.begin && keeper < range.end;
    if (!isThere) return false;
    held_.afterBackward[placeOf(keeper)] += lifetimes_.of(value).bytes;
    if (keepers_.holders[value.index()].empty())  // else the profile has it until a W, too
      held_.afterInput[placeOf(keeper)] += lifetimes_.of(value).bytes;
    return true;
  }

  const ModelGraph& graph_;
  const Lifetimes& lifetimes_;
  const Keepers& keepers_;
  const StageSpec& stage_;
  bool isLast_;
  std::set<ValueId> received_;
  std::map<ValueId, Freed> sent_;  ///< by the value in whose gradient's memory theirs begins: of those values the one that is done last
  HeldByCaller held_;
};

/// By value: the nodes that give it a gradient.
std::vector<std::vector<NodeId>> gradientReaders(const ModelGraph& graph, const std::vector<bool>& needsGradient) {
  std::vector<std::vector<NodeId>> readers(graph.values.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (std::ranges::none_of(node.outputs, [&](ValueId v) { return needsGradient[v.index()]; })) continue;
    for (const ValueId v : readsOf(node)) {
      std::vector<NodeId>& list = readers[v.index()];
      if (needsGradient[v.index()] && (list.empty() || list.back() != NodeId(n))) list.emplace_back(n);
    }
  }
  return readers;
}

/// Follows gradients through additions and views. What an input of one gets from others, too, is added up in other memory.
void followGradients(const ModelGraph& graph, const std::vector<bool>& splits, Keepers& keepers) {
  keepers.heldGradient.assign(graph.values.size(), NodeId(-1));
  keepers.usedGradient.assign(graph.values.size(), NodeId(-1));
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    NodeId held = splits[n] ? NodeId(n) : NodeId(-1), used(n);
    if (node.outputs.size() == 1) {
      for (const ValueId v : readsOf(node)) {
        const std::vector<NodeId>& readers = keepers.readers[v.index()];
        const auto self = std::ranges::lower_bound(readers, NodeId(n));
        if (self == readers.end() || *self != NodeId(n) || graph.value(v).origin != ValueOrigin::Node || !passesGradientOn(graph, node, v))
          continue;
        held = std::max(held, keepers.heldGradient[v.index()]);
        if (self + 1 != readers.end()) continue;  // added to that of a later reader
        used = std::min(used, self != readers.begin() ? *std::prev(self) : keepers.usedGradient[v.index()]);
      }
    }
    for (const ValueId made : node.outputs) {
      keepers.heldGradient[made.index()] = held;
      keepers.usedGradient[made.index()] = used;
    }
  }
}

}  // namespace

Keepers keepersOf(const ModelGraph& graph, const AutocastTypes& types, const std::vector<ValueId>& bases, const std::vector<bool>& splits,
                  bool onCpu) {
  Keepers keepers;
  for (const Node& node : graph.nodes) {
    std::vector<ValueId>& reads = keepers.reads.emplace_back();
    for (const ValueId v : readsOf(node)) reads.push_back(bases[v.index()]);
  }
  keepers.needsGradient = needsGradient(graph);
  const std::function<Bytes(ValueId)> any = [](ValueId) { return Bytes{1}; };  // who keeps a value does not depend on its size
  keepers.by = keptValues(graph, keepers.needsGradient, types, any, any, onCpu).by;
  keepers.holders.resize(graph.values.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!splits[n] || operatorOf(graph.nodes[n].target).weightPart == WeightPart::Sum) continue;
    for (const ValueId base : keepers.reads[n]) {
      std::vector<NodeId>& holders = keepers.holders[base.index()];
      if (holders.empty() || holders.back() != NodeId(n)) holders.emplace_back(n);
    }
  }
  for (const Node& node : graph.nodes) {
    if (!isInPlace(node) || node.outputs.empty()) continue;
    const ValueId made = node.outputs.front();
    if (bases[made.index()] != made) keepers.versions[bases[made.index()]].push_back(made);
  }
  keepers.readers = gradientReaders(graph, keepers.needsGradient);
  followGradients(graph, splits, keepers);
  return keepers;
}

HeldByCaller heldByCaller(const ModelGraph& graph, const Lifetimes& lifetimes, const Keepers& keepers, const StageSpec& stage) {
  return Holding(graph, lifetimes, keepers, stage).all();
}

}  // namespace pw
