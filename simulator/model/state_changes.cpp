#include "simulator/model/state_changes.h"

#include <algorithm>
#include <utility>

#include "simulator/model/graph_facts.h"
#include "simulator/model/node_arguments.h"

namespace pw {
namespace {

bool isStatistic(const std::string& argument) { return argument == "running_mean" || argument == "running_var"; }

/// Tensors of an argument.
std::vector<ValueId> valuesOf(const Argument& argument) {
  if (const auto* one = std::get_if<ValueId>(&argument)) return {*one};
  if (const auto* many = std::get_if<std::vector<ValueId>>(&argument)) return *many;
  return {};
}

class Changes {
 public:
  Changes(const ModelGraph& graph, WrittenArguments written) : graph_(graph), written_(std::move(written)) {
    for (std::size_t v = 0; v < graph.values.size(); ++v) bases_.emplace_back(v);
    for (const Node& node : graph.nodes) findBases(node);
  }

  /// `read` is not known yet.
  void find() {
    for (const Node& node : graph_.nodes) visit(node);
  }

  const StateTensor* firstState() {
    find();
    return found_.empty() ? nullptr : found_.front().state;
  }

  std::set<const StateTensor*> states() {
    find();
    std::set<const StateTensor*> states;
    for (const StateChange& change : found_) states.insert(change.state);
    return states;
  }

  /// The first for which this holds.
  template <class Holds>
  const StateTensor* parameterByInputs(const Holds& holds) {
    find();
    if (std::ranges::none_of(found_, &StateChange::isParameter)) return nullptr;
    const std::vector<bool> depends = dependents(graph_.inputs);
    const auto first = std::ranges::find_if(found_, [&](const StateChange& change) {
      return change.isParameter && depends[base(change.state->value).index()] && holds(*change.state);
    });
    return first == found_.end() ? nullptr : first->state;
  }

  /// Whether gradients go through an operator that keeps this parameter for its backward, sub-graphs entered.
  [[nodiscard]] bool isKept(const StateTensor& parameter) const {
    if (!graph_.value(parameter.value).tensor->requiresGrad) return false;
    std::vector<bool> gradient = needsGradient(graph_);
    return std::ranges::any_of(graph_.nodes, [&](const Node& node) { return keeps(node, parameter.value, gradient); });
  }

  std::vector<bool> shown() {
    std::vector<bool> changed(graph_.values.size(), false), shows(graph_.values.size(), false);
    for (const StateTensor* state : states()) changed[state->value.index()] = !graph_.value(state->value).tensor->requiresGrad;
    for (std::size_t v = 0; v < shows.size(); ++v) shows[v] = changed[bases_[v].index()];
    return shows;
  }

  std::vector<StateChange> run() {
    find();
    for (StateChange& change : found_) change.read = isRead(base(change.state->value));
    return std::move(found_);
  }

 private:
  [[nodiscard]] ValueId base(ValueId id) const { return bases_[id.index()]; }

  /// Sub-graphs of a node, with what they take.
  template <class Work>
  void forSubgraphs(const Node& node, const Work& work) const {
    std::vector<ValueId> operands;
    for (const NamedArgument& argument : node.inputs) {
      for (const ValueId id : valuesOf(argument.value)) operands.push_back(id);
    }
    for (const NamedArgument& argument : node.inputs) {
      const auto* inner = std::get_if<GraphArg>(&argument.value);
      if (inner == nullptr) continue;
      const Subgraph& subgraph = graph_.subgraphs[inner->index];
      const std::size_t skipped = operands.size() - std::min(operands.size(), subgraph.inputs.size());  // a condition comes before them
      work(subgraph, std::vector<ValueId>(operands.begin() + static_cast<std::ptrdiff_t>(skipped), operands.end()));
    }
  }

  /// Whether a node keeps this parameter for its backward. Marks the values of its sub-graphs that need a gradient.
  [[nodiscard]] bool keeps(const Node& node, ValueId parameter, std::vector<bool>& gradient) const {
    if (std::ranges::none_of(node.outputs, [&](ValueId v) { return gradient[v.index()]; }) || runsWithoutGradient(node)) return false;
    bool kept = false, enters = false;
    forSubgraphs(node, [&](const Subgraph& subgraph, const std::vector<ValueId>& operands) {
      enters = true;
      for (std::size_t i = 0; i < operands.size() && i < subgraph.inputs.size(); ++i)
        gradient[subgraph.inputs[i].index()] = gradient[operands[i].index()];
      for (const Node& inside : subgraph.nodes) {
        markGradients(inside, gradient);
        kept = kept || keeps(inside, parameter, gradient);
      }
    });
    if (enters || isView(node) || isInPlace(node) || looksUp(node, gradient)) return kept;
    return std::ranges::any_of(readsOf(node), [&](ValueId read) { return base(read) == parameter; });
  }

  /// Of a node in a sub-graph, into which `needsGradient` does not look.
  void markGradients(const Node& node, std::vector<bool>& gradient) const {
    if (operatorName(node) == "detach" || runsWithoutGradient(node)) return;
    if (std::ranges::none_of(readsOf(node), [&](ValueId v) { return gradient[v.index()]; })) return;
    for (const ValueId v : node.outputs) {
      const auto& tensor = graph_.value(v).tensor;
      gradient[v.index()] = gradient[base(v).index()] = tensor && isDifferentiable(tensor->dtype);
    }
  }

  /// An embedding, which keeps its indices only; a bag also its table, for the gradient of weights of its samples.
  [[nodiscard]] static bool looksUp(const Node& node, const std::vector<bool>& gradient) {
    const std::optional<ValueId> weights = valueOf(node, "per_sample_weights");
    const std::string name = operatorName(node);
    return name == "embedding" || ((name == "embedding_bag" || name == "_embedding_bag") && !(weights && gradient[weights->index()]));
  }

  void findBases(const Node& node) {
    forSubgraphs(node, [&](const Subgraph& subgraph, const std::vector<ValueId>& operands) {
      for (std::size_t i = 0; i < operands.size() && i < subgraph.inputs.size(); ++i)
        bases_[subgraph.inputs[i].index()] = base(operands[i]);
      for (const Node& inside : subgraph.nodes) findBases(inside);
      for (std::size_t r = 0; r < node.outputs.size() && r < subgraph.outputs.size(); ++r)
        bases_[node.outputs[r].index()] = base(subgraph.outputs[r]);
    });
    const auto out = std::ranges::find_if(node.inputs, [](const NamedArgument& a) { return a.name == "out"; });
    const auto reads = readsOf(node);
    if (out != node.inputs.end() && !valuesOf(out->value).empty()) {
      for (const ValueId output : node.outputs) bases_[output.index()] = base(valuesOf(out->value).front());
    } else if ((isView(node) || isInPlace(node)) && !reads.empty()) {
      for (const ValueId output : node.outputs) bases_[output.index()] = base(reads.front());
    }
  }

  [[nodiscard]] std::vector<ValueId> writtenBy(const Node& node) const {
    const std::vector<std::string> bySchema = written_ ? written_(node.target) : std::vector<std::string>();
    const bool norm = movesStatistics(node);
    std::vector<ValueId> values;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const NamedArgument& argument = node.inputs[i];
      const bool writes = (i == 0 && isInPlace(node)) || argument.name == "out" || (norm && isStatistic(argument.name)) ||
                          std::ranges::find(bySchema, argument.name) != bySchema.end();
      if (!writes) continue;
      for (const ValueId id : valuesOf(argument.value)) values.push_back(id);
    }
    return values;
  }

  void visit(const Node& node) {
    for (const ValueId id : writtenBy(node)) {
      for (const auto& [states, areParameters] : {std::pair{&graph_.parameters, true}, {&graph_.buffers, false}}) {
        const auto state = std::ranges::find_if(*states, [&](const StateTensor& s) { return s.value == base(id); });
        if (state != states->end()) found_.push_back({&node, &*state, areParameters, false});
      }
    }
    forSubgraphs(node, [&](const Subgraph& subgraph, const std::vector<ValueId>&) {
      for (const Node& inside : subgraph.nodes) visit(inside);
    });
  }

  /// By value: whether it depends on some of these.
  [[nodiscard]] std::vector<bool> dependents(const std::vector<ValueId>& values) const {
    std::vector<bool> depends(graph_.values.size(), false);
    for (const ValueId id : values) depends[id.index()] = true;
    for (const Node& node : graph_.nodes) follow(node, depends);
    return depends;
  }

  /// Whether an output depends on this memory. Statistics of norms in training do not enter results, nor does what an operator overwrites
  /// by `out`.
  [[nodiscard]] bool isRead(ValueId memory) const {
    const std::vector<bool> depends = dependents({memory});
    return std::ranges::any_of(graph_.outputs, [&](ValueId id) { return depends[base(id).index()]; });
  }

  void follow(const Node& node, std::vector<bool>& depends) const {
    forSubgraphs(node, [&](const Subgraph& subgraph, const std::vector<ValueId>&) {
      for (const Node& inside : subgraph.nodes) follow(inside, depends);
      for (std::size_t r = 0; r < node.outputs.size() && r < subgraph.outputs.size(); ++r) {
        if (depends[base(subgraph.outputs[r]).index()]) depends[base(node.outputs[r]).index()] = true;
      }
    });
    const bool norm = movesStatistics(node);
    bool reads = false, enters = false;
    for (const NamedArgument& argument : node.inputs) {
      enters = enters || std::holds_alternative<GraphArg>(argument.value);
      if ((norm && isStatistic(argument.name)) || argument.name == "out") continue;
      for (const ValueId id : valuesOf(argument.value)) reads = reads || depends[base(id).index()];
      if (const auto* some = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value)) {
        for (const auto& id : *some) reads = reads || (id && depends[base(*id).index()]);
      }
    }
    if (!reads || enters) return;
    for (const ValueId id : node.outputs) depends[base(id).index()] = true;
    for (const ValueId id : writtenBy(node)) depends[base(id).index()] = true;
  }

  const ModelGraph& graph_;
  WrittenArguments written_;
  std::vector<ValueId> bases_;  ///< whose memory each value shows, sub-graphs entered
  std::vector<StateChange> found_;
};

}  // namespace

std::vector<StateChange> stateChanges(const ModelGraph& graph, const WrittenArguments& written) { return Changes(graph, written).run(); }

const StateTensor* firstChangedState(const ModelGraph& graph) { return Changes(graph, {}).firstState(); }

const StateTensor* parameterChangedByInputs(const ModelGraph& graph) {
  return Changes(graph, {}).parameterByInputs([](const StateTensor&) { return true; });
}

const StateTensor* parameterReadWhileChanged(const ModelGraph& graph) {
  Changes changes(graph, {});
  return changes.parameterByInputs([&](const StateTensor& parameter) { return changes.isKept(parameter); });
}

std::vector<bool> showsChangedState(const ModelGraph& graph) { return Changes(graph, {}).shown(); }

std::set<const StateTensor*> changedStates(const ModelGraph& graph) { return Changes(graph, {}).states(); }

}  // namespace pw
