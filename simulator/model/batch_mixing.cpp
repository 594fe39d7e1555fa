#include "simulator/model/batch_mixing.h"

#include <algorithm>
#include <map>
#include <optional>

#include "simulator/model/batch.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/mixing_rules.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

using Kind = SampleFlow::Kind;

constexpr std::int64_t kPrime = 1009;  // sizes that are multiples of it are derived from the batch
constexpr const char* kCounts = "computes with the number of samples";

/// Arguments that enter into an operator's arithmetic, unlike sizes and positions.
bool isOperand(const std::string& name) { return name == "other" || name == "value" || name == "exponent" || name == "alpha"; }

bool isOne(const Value& value) {
  return value.tensor && std::ranges::all_of(value.tensor->sizes, [](const SymbolicInt& s) { return s.expression.empty() && s.hint == 1; });
}

class Walk {
 public:
  explicit Walk(const ModelGraph& graph)
      : graph_(graph),
        symbolic_(!batchSymbol(graph).empty()),
        batch_(exportedBatch(graph) * (symbolic_ ? kPrime : 1)),
        bindings_(bindBatch(graph, batch_)),
        exported_(bindBatch(graph, exportedBatch(graph))),
        flows_(graph.values.size()),
        readers_(graph.values.size()) {
    for (const ValueId id : graph.inputs) flows_[id.index()] = flowOfInput(id);
  }

  void run() {
    if (batch_ < 1) return;
    for (const Node& node : graph_.nodes) visit(node);
    for (Mixing& mixing : found_) markOwnLoss(mixing);
  }

  std::vector<Mixing> takeMixings() { return std::move(found_); }
  std::vector<SampleFlow> takeFlows() { return std::move(flows_); }

 private:
  SampleFlow& flowOf(ValueId id) { return flows_[id.index()]; }

  [[nodiscard]] SampleFlow flowOfInput(ValueId id) const {
    const auto extents = extentsOf(graph_.value(id), bindings_);
    if (!extents) return {};
    const auto fixed = symbolic_ ? std::nullopt : batchAxisBySize(graph_, id);
    for (std::size_t d = 0; d < extents->size(); ++d) {
      const std::int64_t size = (*extents)[d];
      if (symbolic_ ? size > 0 && size % batch_ == 0 : size == batch_ && fixed && fixed->dimension == d)
        return {Kind::Along, {d, 1, size / batch_}};
    }
    return {};
  }

  void visit(const Node& node) {
    for (const ValueId id : readsOf(node)) readers_[id.index()].push_back(&node);
    bool enters = false;
    for (auto inner = node.inputs.begin(); inner != node.inputs.end(); ++inner) {
      const auto* graph = std::get_if<GraphArg>(&inner->value);
      if (graph == nullptr) continue;
      enter(node, graph_.subgraphs[graph->index], inner - node.inputs.begin());
      enters = true;
    }
    if (enters) return judgeBranches(node);
    auto known = callOf(graph_, node, bindings_, flows_);
    if (!known) return skip(node);
    FlowingCall& call = *known;
    call.batch = batch_;
    call.symbolicBatch = symbolic_;
    FlowResult result = call.tensors.empty() ? FlowResult{std::vector<SampleFlow>(call.results.size(), created(node, call)), std::nullopt}
                                             : flowThrough(call);
    for (std::size_t r = 0; r < result.flows.size() && r < node.outputs.size(); ++r) flowOf(node.outputs[r]) = result.flows[r];
    if (isInPlace(node)) follow(node);
    if (!result.mixes && countsSamples(node, call)) result.mixes = kCounts;
    if (result.mixes)
      found_.push_back({&node, *result.mixes, false, false, false});
    else if (result.unknown)
      found_.push_back({&node, "has no rule here", false, false, true});
  }

  /// The flow of results of a node with sizes that are known only when the model runs.
  void skip(const Node& node) {
    const auto reads = readsOf(node);
    if (std::ranges::none_of(reads, [&](ValueId id) { return flowOf(id).kind >= Kind::Along; })) return;
    for (const ValueId id : node.outputs) flowOf(id) = {Kind::Mixed, {}};
  }

  /// A sub-graph that always runs exactly once is followed; for others, which one runs and how often may depend on all samples.
  void judgeBranches(const Node& node) {
    const auto reads = readsOf(node);
    const bool plain = node.target.starts_with("torch.ops.higher_order.wrap_");
    if (!plain && std::ranges::any_of(reads, [&](ValueId id) { return flowOf(id).kind >= Kind::Along; })) {
      found_.push_back({&node, "has no rule here", false, false, true});
    }
  }

  void enter(const Node& node, const Subgraph& subgraph, std::ptrdiff_t graphAt) {
    std::size_t next = 0;
    for (auto argument = node.inputs.begin() + graphAt + 1; argument != node.inputs.end(); ++argument) {
      const auto pass = [&](ValueId id) {
        if (next >= subgraph.inputs.size()) return;
        flowOf(subgraph.inputs[next++]) = flowOf(id);
      };
      if (const auto* one = std::get_if<ValueId>(&argument->value)) pass(*one);
      if (const auto* many = std::get_if<std::vector<ValueId>>(&argument->value)) std::ranges::for_each(*many, pass);
    }
    for (const Node& inside : subgraph.nodes) visit(inside);
    for (std::size_t r = 0; r < node.outputs.size() && r < subgraph.outputs.size(); ++r) {
      flowOf(node.outputs[r]) = flowOf(subgraph.outputs[r]);
      aliases_[subgraph.outputs[r].index()] = node.outputs[r].index();
    }
  }

  /// The result of an operator without tensor arguments: the sample indices, or something that is the same for all batches.
  [[nodiscard]] SampleFlow created(const Node& node, const FlowingCall& call) const {
    const auto start = std::ranges::find_if(call.numbers, [](const auto& n) { return n.first == "start"; });
    const bool counts = operatorName(node) == "arange" && !call.results.empty() && call.results.front() == Extents{batch_};
    return counts && (start == call.numbers.end() || start->second == 0) ? SampleFlow{Kind::Numbers, {}} : SampleFlow{};
  }

  /// Marks memory that now depends on the samples, under all its names.
  void follow(const Node& node) {
    const auto reads = readsOf(node);
    if (reads.empty() || node.outputs.empty() || flowOf(node.outputs.front()).kind < Kind::Along) return;
    const ValueId base = viewedBase(graph_, reads.front());
    for (std::size_t v = 0; v < flows_.size(); ++v) {
      if (flows_[v].kind < Kind::Along && viewedBase(graph_, ValueId(v)) == base) flows_[v] = flowOfInput(ValueId(v));
    }
  }

  /// Whether the batch size is an operand together with a value that depends on the samples.
  [[nodiscard]] bool countsSamples(const Node& node, const FlowingCall& call) const {
    if (std::ranges::none_of(call.tensors, [](const FlowingTensor& t) { return t.flow.kind >= Kind::Along; })) return false;
    return std::ranges::any_of(node.inputs, [&](const NamedArgument& argument) {
      const auto* id = std::get_if<ValueId>(&argument.value);
      if (id == nullptr || !isOperand(argument.name) || !graph_.value(*id).symbolic) return false;
      const auto now = knownNumber(*graph_.value(*id).symbolic, exported_), then = knownNumber(*graph_.value(*id).symbolic, bindings_);
      return now && then && *now != *then;
    });
  }

  /// A number that leads to nothing but numbers and an output of the model.
  void markOwnLoss(Mixing& mixing) const {
    std::vector<std::size_t> open;
    std::vector<bool> seen(graph_.values.size(), false);
    const auto reach = [&](const Node& node) {
      for (const ValueId id : node.outputs) {
        if (!seen[id.index()]) open.push_back(id.index());
        seen[id.index()] = true;
      }
    };
    reach(*mixing.node);
    bool leadsOut = false;
    while (!open.empty()) {
      const std::size_t at = open.back();
      open.pop_back();
      const Value& value = graph_.values[at];
      if (!isOne(value)) return;
      leadsOut = leadsOut || std::ranges::find(graph_.outputs, ValueId(at)) != graph_.outputs.end();
      for (const Node* reader : readers_[at]) reach(*reader);
      if (const auto other = aliases_.find(at); other != aliases_.end() && !seen[other->second]) {
        seen[other->second] = true;
        open.push_back(other->second);
      }
    }
    mixing.ownLoss = leadsOut;
    const auto reduction = std::ranges::find_if(mixing.node->inputs, [](const NamedArgument& a) { return a.name == "reduction"; });
    const auto* code = reduction == mixing.node->inputs.end() ? nullptr : std::get_if<std::int64_t>(&reduction->value);
    mixing.sums = leadsOut && (code != nullptr ? *code == 2 : operatorName(*mixing.node) == "sum");
  }

  const ModelGraph& graph_;
  bool symbolic_;
  std::int64_t batch_;
  Bindings bindings_, exported_;
  std::vector<SampleFlow> flows_;
  std::vector<std::vector<const Node*>> readers_;
  std::map<std::size_t, std::size_t> aliases_;  ///< outputs of sub-graphs under their names outside
  std::vector<Mixing> found_;
};

}  // namespace

std::vector<Mixing> batchMixing(const ModelGraph& graph) {
  if (graph.inputs.empty()) return {};
  Walk walk(graph);
  walk.run();
  return walk.takeMixings();
}

std::vector<SampleFlow> sampleFlows(const ModelGraph& graph) {
  if (graph.inputs.empty()) return std::vector<SampleFlow>(graph.values.size());
  Walk walk(graph);
  walk.run();
  return walk.takeFlows();
}

}  // namespace pw
