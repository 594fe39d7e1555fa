#include "simulator/partition/held_by_caller.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "simulator/costs/kept_values.h"
#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

class Holding {
 public:
  Holding(const ModelGraph& graph, const Lifetimes& lifetimes, const Keepers& keepers, const StageSpec& stage)
      : lifetimes_(lifetimes),
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
    for (const ValueId value : received_) addAfterBackward(value, {stage_.begin, stage_.end});
    return std::move(held_);
  }

 private:
  [[nodiscard]] std::vector<Bytes> nothing() const { return std::vector<Bytes>(stage_.end.index() - stage_.begin.index(), 0); }
  [[nodiscard]] std::size_t placeOf(NodeId node) const { return node.index() - stage_.begin.index(); }

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

  /// What a node makes, in a checkpointed range or outside.
  void send(const Life& made, const NodeRange* range) {
    if (range != nullptr && made.to >= range->end && addAfterBackward(made.value, *range)) return;
    if (isLast_ || made.to < stage_.end) return;
    addAfterBackward(made.value, {stage_.begin, stage_.end});
    if (range == nullptr && keepers_.needsGradient[made.value.index()]) held_.gradients[placeOf(made.from)] += made.bytes;
  }

  /// Whether the last backward that needs a value is in the range.
  bool addAfterBackward(ValueId value, const NodeRange& range) {
    const NodeId keeper = keepers_.by[value.index()];
    const bool isThere = keeper >= range.begin && keeper < range.end;
    if (isThere) held_.afterBackward[placeOf(keeper)] += lifetimes_.of(value).bytes;
    return isThere;
  }

  const Lifetimes& lifetimes_;
  const Keepers& keepers_;
  const StageSpec& stage_;
  bool isLast_;
  std::set<ValueId> received_;
  HeldByCaller held_;
};

}  // namespace

Keepers keepersOf(const ModelGraph& graph, const AutocastTypes& types, const std::vector<ValueId>& bases) {
  Keepers keepers;
  for (const Node& node : graph.nodes) {
    std::vector<ValueId>& reads = keepers.reads.emplace_back();
    for (const ValueId v : readsOf(node)) reads.push_back(bases[v.index()]);
  }
  keepers.needsGradient = needsGradient(graph);
  const std::function<Bytes(ValueId)> any = [](ValueId) { return Bytes{1}; };  // who keeps a value does not depend on its size
  keepers.by = keptValues(graph, keepers.needsGradient, types, any, any).by;
  return keepers;
}

HeldByCaller heldByCaller(const ModelGraph& graph, const Lifetimes& lifetimes, const Keepers& keepers, const StageSpec& stage) {
  return Holding(graph, lifetimes, keepers, stage).all();
}

}  // namespace pw
