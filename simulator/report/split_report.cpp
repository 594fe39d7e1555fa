#include "app/cli/split_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/cli/output.h"
#include "schedules/error.h"
#include "simulator/model/batch_mixing.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/loss_form.h"

namespace pw::cli {
namespace {

struct Kind {
  std::string_view name, meaning, cure;
};

/// In the order of the report: what forbids, then what changes results, then what is good to know.
constexpr std::array<Kind, 15> kKinds{{
    {"unsupported", "Operators that cannot be run here",
     "Give the library that defines them with --load-library, or replace them by PyTorch's own operators before exporting"},
    {"data-dependent", "Sizes that depend on the data: no stage may begin where such a tensor would cross",
     "Nothing, if each is used only inside a module; otherwise use a mask or torch.where instead of selecting"},
    {"fixed-batch", "The batch was fixed at export: every microbatch has exactly this size",
     "Export again with a dynamic batch, as resources/export_model.py does, to choose the size freely"},
    {"batch-mixing",
     "A sample's result depends, or may depend, on the other samples of its microbatch: results change with the microbatch size",
     "Check whether this is intended (as in a contrastive loss); if so, keep the microbatch as large as needed"},
    {"batch-norm",
     "Batch norm in training takes its statistics of each microbatch, not of the batch: "
     "results change with the microbatch size, and running statistics advance once per microbatch",
     "Keep microbatches large, or use group norm, layer norm or frozen statistics (eval mode) instead"},
    {"power-iteration",
     "Buffers or parameters that the forward changes and results depend on, as the vectors of spectral norm: they change once per "
     "microbatch, "
     "not once per batch, so each microbatch sees others",
     "Expect different results for each number of microbatches; if a parametrisation does it, remove it, or freeze it (eval mode) before "
     "exporting"},
    {"loss-bias",
     "Numbers over the samples, such as the model's loss, that do not follow from those of the microbatches: --loss output:NAME takes the "
     "mean of theirs",
     "Let the model give a mean over samples or targets, or train on the outputs before it with --loss cross_entropy or mse"},
    {"unknown-operator",
     "Operators without a rule: it is unknown whether they compute each sample independently, and therefore whether results stay the same",
     "Try it: pipewright inspect --try"},
    {"in-place-buffer", "Buffers changed in place are changed once per microbatch, not once per batch",
     "Check whether that suits the buffer; a counter of steps would run too fast"},
    {"loss-count",
     "Losses that count targets: a step takes the mean of its microbatches' means, in which the targets of a microbatch with fewer of them "
     "weigh more",
     "Give every microbatch as many targets, or weigh microbatches by them: run --loss output:NAME --loss-count auto"},
    {"random", "Random operators draw separately for each microbatch: results agree with an unsplit run in distribution, not in value",
     "Nothing in training; to compare values, set the probabilities to 0"},
    {"own-loss",
     "The model computes single numbers over the samples, such as its loss: with --loss output:NAME the loss of a step is the mean of "
     "those of its "
     "microbatches, weighted by their samples",
     "Nothing for a mean over samples; other losses are listed above"},
    {"shared-parameter",
     "Parameters used in several modules: where these fall into different stages, each stage holds a copy and the gradients are added",
     "Nothing; it costs memory, and one message per step"},
    {"unused-parameter", "Parameters that no output depends on: they get no gradient and stay as they are",
     "Remove them, or check whether an output is missing"},
    {"nondeterministic", "Operators that may give slightly different results in two identical runs on a GPU (on CPUs they do not)",
     "Nothing; expect runs on GPUs to differ in the last digits"},
}};

/// kKinds.end() for another word.
const Kind* kindOf(const std::string& name) {
  return std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return k.name == name; });
}

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

/// Forward or backward on CUDA, by the list of torch.use_deterministic_algorithms.
bool isNondeterministic(const Node& node) {
  constexpr std::array<std::string_view, 32> kNames = {"avg_pool3d",
                                                       "adaptive_avg_pool2d",
                                                       "adaptive_avg_pool3d",
                                                       "max_pool3d",
                                                       "adaptive_max_pool2d",
                                                       "fractional_max_pool2d",
                                                       "fractional_max_pool3d",
                                                       "upsample_linear1d",
                                                       "upsample_bilinear2d",
                                                       "upsample_bicubic2d",
                                                       "upsample_trilinear3d",
                                                       "reflection_pad1d",
                                                       "reflection_pad2d",
                                                       "reflection_pad3d",
                                                       "replication_pad1d",
                                                       "replication_pad2d",
                                                       "replication_pad3d",
                                                       "nll_loss2d",
                                                       "ctc_loss",
                                                       "put",
                                                       "histc",
                                                       "bincount",
                                                       "kthvalue",
                                                       "median",
                                                       "grid_sampler",
                                                       "grid_sampler_2d",
                                                       "grid_sampler_3d",
                                                       "scatter_add",
                                                       "scatter_reduce",
                                                       "index_add",
                                                       "index_copy",
                                                       "index_put"};
  std::string name = operatorName(node);
  if (isInPlace(node) && name.back() == '_') name.pop_back();
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Named `training` as in aten.batch_norm, `train` as in native_batch_norm's relatives; without a flag it is taken for training.
bool isTrainingBatchNorm(const Node& node) {
  if (operatorName(node).find("batch_norm") == std::string::npos) return false;
  const auto flag = std::find_if(node.inputs.begin(), node.inputs.end(),
                                 [](const NamedArgument& a) { return a.name == "training" || a.name == "train"; });
  const bool* training = flag == node.inputs.end() ? nullptr : std::get_if<bool>(&flag->value);
  return training == nullptr ? operatorName(node).find("no_training") == std::string::npos : *training;
}

/// Told by batch norm's own finding: its statistics, and the counter that comes with them.
bool isOfBatchNorm(const StateChange& change) {
  return operatorName(*change.node).find("batch_norm") != std::string::npos ||
         change.state->name.find("num_batches_tracked") != std::string::npos;
}

bool hasUnknownSize(const ModelGraph& graph, const Node& node, const Bindings& bindings) {
  try {
    for (const ValueId v : node.outputs) {
      if (graph.value(v).tensor) static_cast<void>(shapeOf(*graph.value(v).tensor, bindings));
    }
  } catch (const Error&) {
    return true;
  }
  return false;
}

class Report {
 public:
  Report(const ModelGraph& graph, const OperatorFacts& facts)
      : graph_(graph),
        hasOperator_(facts.has),
        bindings_(bindBatch(graph, exportedBatch(graph))),
        mixings_(batchMixing(graph)),
        changes_(stateChanges(graph, facts.written)) {}

  void visit(const Node& node, const std::string& around) {
    const std::string module = node.modules.empty() ? around : node.modules.back().path;
    const auto found = [&](const char* kind, const std::string& op, const std::string& detail = "") {
      findings_.push_back({kind, module, op, node.sourceLine, detail});
    };
    const std::string name = operatorName(node);
    if (!isSupported(node, hasOperator_))
      found("unsupported", node.target, namespaceOf(node.target) == "aten" ? "this LibTorch has no such operator" : "");
    if (hasUnknownSize(graph_, node, bindings_)) found("data-dependent", name);
    if (isTrainingBatchNorm(node)) found("batch-norm", name);
    if (isRandomOperator(node)) found("random", name);
    if (isNondeterministic(node)) found("nondeterministic", name);
    for (const StateChange& change : changes_) {
      if (change.node != &node || isOfBatchNorm(change)) continue;
      found(change.read ? "power-iteration" : "in-place-buffer", name,
            "changes " + change.state->name + (change.isParameter ? ", a parameter" : ""));
    }
    const auto mixing = std::find_if(mixings_.begin(), mixings_.end(), [&](const Mixing& m) { return m.node == &node; });
    if (mixing != mixings_.end() && mixing->unknown)
      found("unknown-operator", name);
    else if (mixing != mixings_.end())
      found(mixing->ownLoss ? "own-loss" : "batch-mixing", name, mixing->sums ? "sums over the samples" : mixing->how);
    for (const NamedArgument& argument : node.inputs) {
      const auto* inner = std::get_if<GraphArg>(&argument.value);
      if (inner == nullptr) continue;
      for (const Node& nested : graph_.subgraphs[inner->index].nodes) visit(nested, module);
    }
  }

  /// Losses that are no means over the samples.
  void visitLosses() {
    for (const OwnLoss& loss : ownLosses(graph_)) {
      const Node* node = loss.node;
      const auto found = [&](const char* kind, const std::string& detail) {
        const std::string module = node == nullptr || node->modules.empty() ? "" : node->modules.back().path;
        findings_.push_back({kind, module, graph_.outputNames[loss.output], node == nullptr ? "" : node->sourceLine, detail});
      };
      switch (loss.form) {
        case LossForm::Mean: break;
        case LossForm::Sum: found("loss-bias", "a sum over the samples"); break;
        case LossForm::TargetMean: found("loss-count", fmt::format("a mean over the targets that are not {}", loss.ignored)); break;
        case LossForm::Quotient: found(loss.counted ? "loss-count" : "loss-bias", "a quotient of sums over the samples"); break;
        case LossForm::Other: found("loss-bias", loss.why); break;
        case LossForm::Unknown: found("unknown-operator", "of sizes or operators that are not known"); break;
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
        findings_.push_back({"shared-parameter", modules.front(), parameter.name, list.front()->sourceLine,
                             fmt::format("used in {}", fmt::join(modules, ", "))});
      }
      const bool trained = !graph_.value(parameter.value).tensor || graph_.value(parameter.value).tensor->requiresGrad;
      if (trained && !used.contains(storageOf(parameter))) {
        const std::string module = parameter.name.substr(0, std::min(parameter.name.rfind('.'), parameter.name.size()));
        findings_.push_back({"unused-parameter", parameter.name.find('.') == std::string::npos ? "" : module, parameter.name, "",
                             list.empty() ? "nothing reads it" : "no output depends on it"});
      }
    }
  }

  [[nodiscard]] std::vector<Finding> findings() {
    if (batchSymbol(graph_).empty() && !graph_.inputs.empty()) {
      findings_.push_back({"fixed-batch", "", fmt::format("batch {}", exportedBatch(graph_)), "", ""});
    }
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return kindOf(a.kind) < kindOf(b.kind); });
    return std::move(findings_);
  }

 private:
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
  std::vector<Mixing> mixings_;
  std::vector<StateChange> changes_;
  std::vector<Finding> findings_;
};

/// `blocks.12.mlp` → `blocks.*.mlp`.
std::string withoutNumbers(const std::string& path) {
  std::string result;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string step = path.substr(begin, end - begin);
    const bool number = !step.empty() && std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; });
    result += (begin > 0 ? "." : "") + (number ? "*" : step);
    begin = end + 1;
  }
  return result;
}

/// Findings of one row, and how many they are.
struct Row {
  Finding first;
  int count = 1;
};

constexpr std::size_t kMostRows = 12;  // a kind takes no more than half a page

std::string tableOf(const ModelGraph& graph, const std::vector<Finding>& findings) {
  std::vector<Row> merged;
  for (const Finding& finding : findings) {
    const auto same = [&](const Row& row) {
      const Finding& f = row.first;
      return f.op == finding.op && f.source == finding.source && f.detail == finding.detail &&
             withoutNumbers(f.module) == withoutNumbers(finding.module);
    };
    const auto row = std::find_if(merged.begin(), merged.end(), same);
    row == merged.end() ? static_cast<void>(merged.push_back({finding, 1})) : static_cast<void>(++row->count);
  }
  const bool anyDetail = std::any_of(merged.begin(), merged.end(), [](const Row& row) { return !row.first.detail.empty(); });
  std::vector<std::vector<std::string>> rows{{"module", "what", "times", "source"}};
  if (anyDetail) rows.front().insert(rows.front().begin() + 3, "how");
  for (std::size_t r = 0; r < merged.size() && r < kMostRows; ++r) {
    const auto& [first, count] = merged[r];
    const std::string module = count > 1 ? withoutNumbers(first.module) : first.module;
    rows.push_back({module.empty() ? graph.name : module, first.op, fmt::format("{}", count), first.source});
    if (anyDetail) rows.back().insert(rows.back().begin() + 3, first.detail);
  }
  std::string text = table(rows);
  if (merged.size() > kMostRows) text += fmt::format("… and {} more; --json has all\n", merged.size() - kMostRows);
  return text;
}

}  // namespace

std::string meaningOf(const std::string& kind) { return kindOf(kind) == kKinds.end() ? kind : std::string(kindOf(kind)->meaning); }

std::string cureOf(const std::string& kind) { return kindOf(kind) == kKinds.end() ? std::string() : std::string(kindOf(kind)->cure); }

std::vector<Finding> splitReport(const ModelGraph& graph, const OperatorFacts& facts) {
  Report report(graph, facts);
  for (const Node& node : graph.nodes) report.visit(node, "");
  report.visitLosses();
  report.visitParameters();
  return report.findings();
}

std::string findingsText(const ModelGraph& graph, const std::vector<Finding>& findings) {
  std::string text;
  for (auto begin = findings.begin(); begin != findings.end();) {
    const auto end = std::find_if(begin, findings.end(), [&](const Finding& f) { return f.kind != begin->kind; });
    text += "\n" + meaningOf(begin->kind) + ".\n";
    if (begin->kind != "fixed-batch") text += tableOf(graph, {begin, end});
    text += "What to do: " + cureOf(begin->kind) + ".\n";
    begin = end;
  }
  return text;
}

}  // namespace pw::cli
