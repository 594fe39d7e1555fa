#include "app/cli/split_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/graph_facts.h"

namespace pw::cli {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kMeanings{{
    {"unsupported", "Operators that cannot be run here; replace them before exporting"},
    {"data-dependent", "Sizes that depend on the data: no stage may begin where such a tensor would cross"},
    {"fixed-batch", "The batch was fixed at export: every microbatch has exactly this size"},
    {"batch-norm",
     "Batch norm in training takes its statistics of each microbatch, not of the batch: "
     "results change with the microbatch size, and running statistics advance once per microbatch"},
    {"random", "Random operators draw anew for each microbatch: results agree with an unsplit run in distribution, not in value"},
    {"in-place-buffer", "Buffers changed in place are changed once per microbatch, not once per batch"},
}};

std::string_view namespaceOf(const std::string& target) {
  constexpr std::string_view kOps = "torch.ops.";
  if (target.compare(0, kOps.size(), kOps) != 0) return {};  // a Python function on sizes
  const std::string_view rest = std::string_view(target).substr(kOps.size());
  return rest.substr(0, rest.find('.'));
}

bool isSupported(const Node& node) {
  const std::string_view space = namespaceOf(node.target);
  if (space == "higher_order") {
    return node.target == "torch.ops.higher_order.wrap_with_set_grad_enabled" || node.target == "torch.ops.higher_order.wrap_with_autocast";
  }
  return space.empty() || space == "aten";
}

/// Named `training` as in aten.batch_norm, `train` as in native_batch_norm's relatives; without a flag it is taken for training.
bool isTrainingBatchNorm(const Node& node) {
  if (operatorName(node).find("batch_norm") == std::string::npos) return false;
  const auto flag = std::find_if(node.inputs.begin(), node.inputs.end(), [](const NamedArgument& a) { return a.name == "training" || a.name == "train"; });
  const bool* training = flag == node.inputs.end() ? nullptr : std::get_if<bool>(&flag->value);
  return training == nullptr ? operatorName(node).find("no_training") == std::string::npos : *training;
}

/// The buffer whose memory the node changes in place; null when it changes none, or only batch norm's counter, which comes with it.
const StateTensor* changedBuffer(const ModelGraph& graph, const Node& node) {
  const auto reads = readsOf(node);
  if (!isInPlace(node) || reads.empty()) return nullptr;
  const ValueId base = viewedBase(graph, reads.front());
  const auto buffer = std::find_if(graph.buffers.begin(), graph.buffers.end(), [&](const StateTensor& b) { return b.value == base; });
  if (buffer == graph.buffers.end() || buffer->name.find("num_batches_tracked") != std::string::npos) return nullptr;
  return &*buffer;
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
  explicit Report(const ModelGraph& graph) : graph_(graph), bindings_(bindBatch(graph, exportedBatch(graph))) {}

  void visit(const Node& node, const std::string& around) {
    const std::string module = node.modules.empty() ? around : node.modules.back().path;
    const auto found = [&](const char* kind, const std::string& op) { findings_.push_back({kind, module, op, node.sourceLine}); };
    if (!isSupported(node)) found("unsupported", node.target);
    if (hasUnknownSize(graph_, node, bindings_)) found("data-dependent", operatorName(node));
    if (isTrainingBatchNorm(node)) found("batch-norm", operatorName(node));
    if (isRandomOperator(node)) found("random", operatorName(node));
    if (const StateTensor* buffer = changedBuffer(graph_, node)) found("in-place-buffer", operatorName(node) + " of " + buffer->name);
    for (const NamedArgument& argument : node.inputs) {
      const auto* inner = std::get_if<GraphArg>(&argument.value);
      if (inner == nullptr) continue;
      for (const Node& nested : graph_.subgraphs[inner->index].nodes) visit(nested, module);
    }
  }

  [[nodiscard]] std::vector<Finding> findings() {
    if (batchSymbol(graph_).empty() && !graph_.inputs.empty()) {
      findings_.push_back({"fixed-batch", "", fmt::format("batch {}", exportedBatch(graph_)), ""});
    }
    std::stable_sort(findings_.begin(), findings_.end(), [](const Finding& a, const Finding& b) { return order(a.kind) < order(b.kind); });
    return std::move(findings_);
  }

 private:
  static std::ptrdiff_t order(const std::string& kind) {
    return std::find_if(kMeanings.begin(), kMeanings.end(), [&](const auto& m) { return m.first == kind; }) - kMeanings.begin();
  }

  const ModelGraph& graph_;
  Bindings bindings_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string meaningOf(const std::string& kind) {
  const auto* found = std::find_if(kMeanings.begin(), kMeanings.end(), [&](const auto& m) { return m.first == kind; });
  return found == kMeanings.end() ? kind : std::string(found->second);
}

std::vector<Finding> splitReport(const ModelGraph& graph) {
  Report report(graph);
  for (const Node& node : graph.nodes) report.visit(node, "");
  return report.findings();
}

}  // namespace pw::cli
