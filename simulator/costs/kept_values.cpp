#include "simulator/costs/kept_values.h"

#include <algorithm>

#include "simulator/model/graph_facts.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

/// The value in whose memory each is: `viewedBases`, but for what shows repeated elements under other sizes, which takes a copy.
std::vector<ValueId> memoryBases(const ModelGraph& graph, const std::function<Bytes(ValueId)>& traced) {
  std::vector<ValueId> bases = viewedBases(graph);
  std::vector<bool> copies(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    const auto reads = readsOf(node);
    if (!isView(node) || reads.empty()) continue;
    const DimensionRule rule = operatorOf(node.target).dimensions;
    const ValueId shown = *reads.begin();
    for (const ValueId v : node.outputs) {
      if (!graph.value(v).tensor || !graph.value(shown).tensor) continue;
      if (copies[bases[shown.index()].index()]) bases[v.index()] = bases[shown.index()];
      const bool mayCopy = rule == DimensionRule::Reshape || rule == DimensionRule::Each;
      if (!mayCopy || !graph.value(bases[v.index()]).tensor || traced(v) <= traced(bases[v.index()])) continue;
      bases[v.index()] = v;
      copies[v.index()] = true;
    }
  }
  return bases;
}

class Keeping {
 public:
  Keeping(const ModelGraph& graph, const std::vector<bool>& gradient, const AutocastTypes& types,
          const std::function<Bytes(ValueId)>& computed, const std::function<Bytes(ValueId)>& traced, bool copies)
      : graph_(graph),
        gradient_(gradient),
        types_(types),
        computed_(computed),
        traced_(traced),
        copies_(copies),
        bases_(memoryBases(graph, traced)) {
    kept_.whole.resize(graph.values.size());
    kept_.bytes.resize(graph.values.size());
    kept_.by.assign(graph.values.size(), NodeId(-1));
    kept_.ofNode.resize(graph.nodes.size());
  }

  KeptValues all() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const bool passes = std::ranges::any_of(node.outputs, [&](ValueId v) { return gradient_[v.index()]; });
      if (!passes || isView(node)) continue;
      if (copies_ && operatorOf(node.target).work == Work::Attention && isRandomOperator(node))
        keepCopies(n);
      else
        keepFor(n, operatorOf(node.target).keeps);
    }
    for (std::size_t v = 0; v < kept_.whole.size(); ++v) {
      if (kept_.whole[v]) kept_.bytes[v] += computed_(ValueId(v));
    }
    return std::move(kept_);
  }

 private:
  void keepFor(std::size_t n, Keeps keeps) {
    const Node& node = graph_.nodes[n];
    const auto reads = readsOf(node);
    const auto keepInputs = [&](const auto& isKept) {
      for (const ValueId v : reads) {
        if (graph_.value(v).tensor && isKept(v)) keepInput(n, v);
      }
    };
    const auto keepResults = [&] {
      for (const ValueId v : node.outputs) keepWhole(n, v);
    };
    const auto any = [](ValueId) { return true; };
    const auto needsGradient = [&](ValueId v) { return gradient_[v.index()]; };
    switch (keeps) {
      case Keeps::Nothing: return;
      case Keeps::Inputs: return keepInputs(any);
      case Keeps::Factors:
        return keepInputs([&](ValueId v) {
          return isSquared(node, v) || std::ranges::any_of(reads, [&](ValueId w) { return w != v && gradient_[w.index()]; });
        });
      case Keeps::Result: return keepResults();
      case Keeps::InputsAndResult: keepInputs(any); return keepResults();
      case Keeps::Unknown: keepInputs(needsGradient); return keepResults();
      case Keeps::Mask: kept_.ofNode[n] += elements(node.outputs.front()); return;
      case Keeps::Places: kept_.ofNode[n] += 8 * elements(node.outputs.front()); return keepInputs(any);
      case Keeps::Logarithms:
        if (!reads.empty() && graph_.value(*reads.begin()).tensor) kept_.ofNode[n] += traced_(*reads.begin());
        return;
    }
  }

  void keepCopies(std::size_t n) {
    for (const ValueId v : readsOf(graph_.nodes[n])) {
      if (gradient_[v.index()]) kept_.ofNode[n] += computed_(v);
    }
  }

  void keepWhole(std::size_t n, ValueId v) {
    if (!isMade(v)) return;
    const std::size_t base = bases_[v.index()].index();
    if (!kept_.whole[base]) kept_.by[base] = NodeId(n);
    kept_.whole[base] = true;
  }

  static bool isSquared(const Node& node, ValueId v) {
    const auto isIt = [v](const NamedArgument& a) { return std::holds_alternative<ValueId>(a.value) && std::get<ValueId>(a.value) == v; };
    return std::ranges::count_if(node.inputs, isIt) > 1;
  }

  void keepInput(std::size_t n, ValueId v) {
    const ValueId base = bases_[v.index()];
    const bool isFloat = graph_.value(v).tensor->dtype == DType::Float32, isLower = types_.isLower[v.index()];
    const bool narrows = types_.casts[n] && isFloat && !isLower;
    const bool widens = isLower && operatorOf(graph_.nodes[n].target).autocast == Autocast::Float32;
    const Bytes copy = narrows ? traced_(v) / 2 : traced_(v);
    if (!narrows && !widens) {
      keepWhole(n, v);
    } else if (isMade(v)) {
      kept_.bytes[base.index()] += copy;
    } else if (graph_.value(base).origin == ValueOrigin::Input) {
      kept_.ofNode[n] += copy;
    }
  }

  [[nodiscard]] bool isMade(ValueId v) const {
    const Value& base = graph_.value(bases_[v.index()]);
    return base.origin == ValueOrigin::Node && base.tensor && !base.symbolic;
  }
  [[nodiscard]] Bytes elements(ValueId v) const {
    const auto& tensor = graph_.value(v).tensor;
    return tensor ? Bytes(traced_(v) / bytesPerElement(tensor->dtype)) : Bytes{0};
  }

  const ModelGraph& graph_;
  const std::vector<bool>& gradient_;
  const AutocastTypes& types_;
  const std::function<Bytes(ValueId)>&computed_, &traced_;
  bool copies_;
  std::vector<ValueId> bases_;
  KeptValues kept_;
};

}  // namespace

KeptValues keptValues(const ModelGraph& graph, const std::vector<bool>& gradient, const AutocastTypes& types,
                      const std::function<Bytes(ValueId)>& computed, const std::function<Bytes(ValueId)>& traced, bool copies) {
  return Keeping(graph, gradient, types, computed, traced, copies).all();
}

}  // namespace pw
