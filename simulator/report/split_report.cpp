#include "simulator/report/split_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "simulator/model/batch_mixing.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/loss_form.h"
#include "simulator/model/symbolic.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

using Kind = FindingKind;
using Effect = FindingEffect;

constexpr std::array<FindingFacts, 15> kKinds{{
    {Kind::Unsupported, Effect::Limits, "unsupported", "Operators that cannot be run here",
     "Give the library that defines them with --load-library, or replace them by PyTorch's own operators before exporting"},
    {Kind::DataDependent, Effect::Limits, "data-dependent",
     "Sizes that depend on the data: no stage may begin where such a tensor would cross",
     "Nothing, if each is used only inside a module; otherwise use a mask or torch.where instead of selecting"},
    {Kind::FixedBatch, Effect::Limits, "fixed-batch", "The batch was fixed at export: every microbatch has exactly this size",
     "Export again with a dynamic batch, as resources/export_model.py does, to choose the size freely"},
    {Kind::BatchMixing, Effect::ChangesResults, "batch-mixing",
     "A sample's result depends, or may depend, on the other samples of its microbatch: results change with the microbatch size",
     "Check whether this is intended (as in a contrastive loss); if so, keep the microbatch as large as needed"},
    {Kind::BatchNorm, Effect::ChangesResults, "batch-norm",
     "Batch norm in training takes its statistics of each microbatch, not of the batch: "
     "results change with the microbatch size, and running statistics advance once per microbatch",
     "Keep microbatches large, or use group norm, layer norm or frozen statistics (eval mode) instead"},
    {Kind::PowerIteration, Effect::ChangesResults, "power-iteration",
     "Buffers or parameters that the forward changes and results depend on, as the vectors of spectral norm: they change once per "
     "microbatch, "
     "not once per batch, so each microbatch sees others",
     "Expect different results for each number of microbatches; if a parametrisation does it, remove it, or freeze it (eval mode) before "
     "exporting"},
    {Kind::LossBias, Effect::ChangesResults, "loss-bias",
     "Numbers over the samples, such as the model's loss, that do not follow from those of the microbatches: --loss output:NAME takes the "
     "mean of theirs",
     "Let the model give a mean over samples or targets, or train on the outputs before it with --loss cross_entropy or mse"},
    {Kind::UnknownOperator, Effect::ChangesResults, "unknown-operator",
     "Operators without a rule: it is unknown whether they compute each sample independently, and therefore whether results stay the same",
     "Try it: pipewright inspect --try"},
    {Kind::InPlaceBuffer, Effect::ChangesResults, "in-place-buffer",
     "Buffers changed in place are changed once per microbatch, not once per batch",
     "Check whether that suits the buffer; a counter of steps would run too fast"},
    {Kind::LossCount, Effect::ChangesResults, "loss-count",
     "Losses that count targets: a step takes the mean of its microbatches' means, in which the targets of a microbatch with fewer of them "
     "weigh more",
     "Give every microbatch as many targets, or weigh microbatches by them: run --loss output:NAME --loss-count auto"},
    {Kind::Random, Effect::Note, "random",
     "Random operators draw separately for each microbatch: results agree with an unsplit run in distribution, not in value",
     "Nothing in training; to compare values, set the probabilities to 0"},
    {Kind::OwnLoss, Effect::Note, "own-loss",
     "The model computes single numbers over the samples, such as its loss: with --loss output:NAME the loss of a step is the mean of "
     "those of its "
     "microbatches, weighted by their samples",
     "Nothing for a mean over samples; other losses are listed above"},
    {Kind::SharedParameter, Effect::Note, "shared-parameter",
     "Parameters used in several modules: where these fall into different stages, each stage holds a copy and the gradients are added",
     "Nothing; it costs memory, and one message per step"},
    {Kind::UnusedParameter, Effect::Note, "unused-parameter",
     "Parameters that no output depends on: they get no gradient and stay as they are",
     "Remove them, or check whether an output is missing"},
    {Kind::Nondeterministic, Effect::Note, "nondeterministic",
     "Operators that may give slightly different results in two identical runs on a GPU (on CPUs they do not)",
     "Nothing; expect runs on GPUs to differ in the last digits"},
}};

static_assert(std::ranges::is_sorted(kKinds, {}, &FindingFacts::kind) && kKinds.back().kind == Kind::Nondeterministic &&
              kKinds.size() == static_cast<std::size_t>(Kind::Nondeterministic) + 1);

std::string_view namespaceOf(const std::string& target) {
  constexpr std::string_view kOps = "torch.ops.";
  if (target.compare(0, kOps.size(), kOps) != 0) return {};  // a Python function on sizes
  const std::string_view rest = std::string_view(target).substr(kOps.size());
  return rest.substr(0, rest.find('.'));
}

bool isSupported(const Node& node, const HasOperator& hasOperator) {
  const std::string_view space = namespaceOf(node.target);
  if (space.empty()) return true;
  return hasOperator ? hasOperator(node.target) : space == "aten" || space == "higher_order";
}

/// Told by batch norm's own finding: its statistics, and the counter that comes with them.
bool isOfBatchNorm(const StateChange& change) {
  return operatorOf(change.node->target).statistics == Statistics::Batch ||
         change.state->name.find("num_batches_tracked") != std::string::npos;
}

bool hasUnknownSize(const ModelGraph& graph, const Node& node, const Bindings& bindings) {
  return std::ranges::any_of(node.outputs,
                             [&](ValueId v) { return graph.value(v).tensor && !knownShape(*graph.value(v).tensor, bindings); });
}

class Report {
 public:
  Report(const ModelGraph& graph, const OperatorFacts& facts)
      : graph_(graph),
        hasOperator_(facts.has),
        bindings_(bindBatch(graph, exportedBatch(graph))),
        changes_(stateChanges(graph, facts.written)) {
    for (const Mixing& mixing : batchMixing(graph)) mixings_.emplace(mixing.node, mixing);
  }

  /// `around`, `place`: the module and the graph's node that hold the node of a sub-graph.
  void visit(const Node& node, const std::string& around, NodeId place) {
    const std::string module = node.modules.empty() ? around : node.modules.back().path;
    const auto found = [&](Kind kind, const std::string& op, const std::string& detail = "") {
      findings_.push_back({kind, module, op, node.sourceLine, detail, place});
    };
    const std::string name = operatorName(node);
    if (!isSupported(node, hasOperator_))
      found(Kind::Unsupported, node.target, namespaceOf(node.target) == "aten" ? "this LibTorch has no such operator" : "");
    if (hasUnknownSize(graph_, node, bindings_)) found(Kind::DataDependent, name);
    const Operator& op = operatorOf(node.target);
    if (op.statistics == Statistics::Batch && movesStatistics(node)) found(Kind::BatchNorm, name);
    if (isRandomOperator(node)) found(Kind::Random, name);
    if (!op.reproducible) found(Kind::Nondeterministic, name);
    for (const StateChange& change : changes_) {
      if (change.node != &node || isOfBatchNorm(change)) continue;
      found(change.read ? Kind::PowerIteration : Kind::InPlaceBuffer, name,
            "changes " + change.state->name + (change.isParameter ? ", a parameter" : ""));
    }
    if (const auto known = mixings_.find(&node); known != mixings_.end()) {
      const Mixing& mixing = known->second;
      const Kind kind = mixing.unknown ? Kind::UnknownOperator : mixing.ownLoss ? Kind::OwnLoss : Kind::BatchMixing;
      found(kind, name, mixing.unknown ? "" : mixing.sums ? "sums over the samples" : mixing.how);
    }
    for (const NamedArgument& argument : node.inputs) {
      const auto* inner = std::get_if<GraphArg>(&argument.value);
      if (inner == nullptr) continue;
      for (const Node& nested : graph_.subgraphs[inner->index].nodes) visit(nested, module, place);
    }
  }

  /// Losses that are no means over the samples.
  void visitLosses() {
    for (const OwnLoss& loss : ownLosses(graph_)) {
      const Node* node = loss.node;
      const auto found = [&](Kind kind, const std::string& detail) {
        const std::string module = node == nullptr || node->modules.empty() ? "" : node->modules.back().path;
        findings_.push_back({kind, module, graph_.outputNames[loss.output], node == nullptr ? "" : node->sourceLine, detail, idOf(node)});
      };
      switch (loss.form) {
        case LossForm::Mean: break;
        case LossForm::Sum: found(Kind::LossBias, "a sum over the samples"); break;
        case LossForm::TargetMean: found(Kind::LossCount, fmt::format("a mean over the targets that are not {}", loss.ignored)); break;
        case LossForm::Quotient: found(loss.counted ? Kind::LossCount : Kind::LossBias, "a quotient of sums over the samples"); break;
        case LossForm::Other: found(Kind::LossBias, loss.why); break;
        case LossForm::Unknown: found(Kind::UnknownOperator, "of sizes or operators that are not known"); break;
      }
    }
  }

  /// Parameters that several modules read, and those that reach no output.
  void visitParameters() {
    std::map<std::string, std::vector<const Node*>> readers;  // by storage, one per module
    std::map<ValueId, const StateTensor*> parameters;
    for (const StateTensor& parameter : graph_.parameters) parameters[parameter.value] = &parameter;
    const std::vector<bool> needed = neededNodes();
    std::set<std::string> used;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const ValueId id : readsOf(graph_.nodes[n])) {
        const auto parameter = parameters.find(id);
        if (parameter == parameters.end()) continue;
        if (needed[n]) used.insert(storageOf(*parameter->second));
        auto& list = readers[storageOf(*parameter->second)];
        const auto same = [&](const Node* other) { return pathOf(*other) == pathOf(graph_.nodes[n]); };
        if (std::find_if(list.begin(), list.end(), same) == list.end()) list.push_back(&graph_.nodes[n]);
      }
    }
    std::set<std::string> told;
    for (const StateTensor& parameter : graph_.parameters) {
      if (!told.insert(storageOf(parameter)).second) continue;
      const auto& list = readers[storageOf(parameter)];
      if (list.size() > 1) {
        std::vector<std::string> modules;
        for (const Node* reader : list) modules.push_back(pathOf(*reader).empty() ? graph_.name : pathOf(*reader));
        findings_.push_back({Kind::SharedParameter, modules.front(), parameter.name, list.front()->sourceLine,
                             fmt::format("used in {}", fmt::join(modules, ", ")), idOf(list.front())});
      }
      const bool trained = !graph_.value(parameter.value).tensor || graph_.value(parameter.value).tensor->requiresGrad;
      if (trained && !used.contains(storageOf(parameter))) {
        const std::string module = parameter.name.substr(0, std::min(parameter.name.rfind('.'), parameter.name.size()));
        findings_.push_back({Kind::UnusedParameter, parameter.name.find('.') == std::string::npos ? "" : module, parameter.name, "",
                             list.empty() ? "nothing reads it" : "no output depends on it", idOf(list.empty() ? nullptr : list.front())});
      }
    }
  }

  [[nodiscard]] std::vector<Finding> findings() {
    if (batchSymbol(graph_).empty() && !graph_.inputs.empty()) {
      findings_.push_back({Kind::FixedBatch, "", fmt::format("batch {}", exportedBatch(graph_)), "", "", {}});
    }
    std::ranges::stable_sort(findings_, {}, &Finding::kind);
    return std::move(findings_);
  }

 private:
  /// Nothing for a node of a sub-graph, and for none.
  [[nodiscard]] std::optional<NodeId> idOf(const Node* node) const {
    const Node* first = graph_.nodes.data();
    if (node == nullptr || std::less<>()(node, first) || !std::less<>()(node, first + graph_.nodes.size())) return std::nullopt;
    return NodeId(static_cast<std::size_t>(node - first));
  }

  static std::string pathOf(const Node& node) { return node.modules.empty() ? std::string() : node.modules.back().path; }

  /// Nodes that an output depends on. Operators in place count, for what they change may be read under another name.
  [[nodiscard]] std::vector<bool> neededNodes() const {
    std::vector<bool> values(graph_.values.size(), false), nodes(graph_.nodes.size(), false);
    for (const ValueId id : graph_.outputs) values[id.index()] = true;
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      nodes[n] = isInPlace(node) || std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return values[id.index()]; });
      if (!nodes[n]) continue;
      for (const ValueId id : readsOf(node)) values[id.index()] = true;
    }
    return nodes;
  }

  const ModelGraph& graph_;
  const HasOperator& hasOperator_;
  Bindings bindings_;
  std::map<const Node*, Mixing> mixings_;
  std::vector<StateChange> changes_;
  std::vector<Finding> findings_;
};

}  // namespace

const FindingFacts& factsOf(FindingKind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

std::vector<Finding> splitReport(const ModelGraph& graph, const OperatorFacts& facts) {
  Report report(graph, facts);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) report.visit(graph.nodes[n], "", NodeId(n));
  report.visitLosses();
  report.visitParameters();
  return report.findings();
}

}  // namespace pw
