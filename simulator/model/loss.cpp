#include "simulator/model/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "schedules/error.h"
#include "schedules/named_values.h"

namespace pw {
namespace {

constexpr std::string_view kOutput = "output:";

}  // namespace

Loss parseLoss(std::string_view text) { return tryLoss(text).orThrow(); }

Answer<Loss> tryLoss(std::string_view text) {
  if (text.starts_with(kOutput)) return Loss{LossKind::Output, std::string(text.substr(kOutput.size()))};
  const auto kind = valueNamed<LossKind>(text);
  if (!kind || *kind == LossKind::Output)
    return Impossible{fmt::format("Unknown loss {}; use cross_entropy, mse, sum or output:NAME", text)};
  return Loss{*kind};
}

std::string toString(const Loss& loss) {
  return loss.kind == LossKind::Output ? std::string(kOutput) + loss.output : std::string(nameOf(loss.kind));
}

Loss defaultLoss(const ModelGraph& graph) {
  const auto isNumber = [&](std::size_t i) {
    const Value& output = graph.value(graph.outputs[i]);
    return output.tensor && output.tensor->sizes.empty() && isDifferentiable(output.tensor->dtype);
  };
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (graph.outputNames[i] == "loss" && isNumber(i)) return {LossKind::Output, "loss"};
  }
  return !graph.outputs.empty() && isNumber(0) ? Loss{LossKind::Output, graph.outputNames.front()} : Loss{};
}

Loss lossNamed(std::string_view text, const ModelGraph& graph) {
  if (text.empty()) return defaultLoss(graph);
  Loss loss = parseLoss(text);
  if (loss.kind == LossKind::Output) {
    const std::size_t position = outputOf(graph, loss);
    const auto& tensor = graph.value(graph.outputs[position]).tensor;
    const auto isOne = [](const SymbolicInt& size) { return size.expression.empty() && size.hint == 1; };
    if (tensor && !std::ranges::all_of(tensor->sizes, isOne))
      throw UsageError(fmt::format("Output {} is not a single number, as a loss is; take its sum with --loss sum.", loss.output));
  }
  const bool hasTargets = loss.kind == LossKind::CrossEntropy || loss.kind == LossKind::MeanSquaredError;
  if (!hasTargets || graph.outputs.empty()) return loss;
  const auto& first = graph.value(graph.outputs.front()).tensor;
  if (first && first->sizes.empty()) {
    const std::string& name = graph.outputNames.front();
    throw UsageError(fmt::format("Output {} is a single number; take it as the loss with --loss output:{}.", name, name));
  }
  return loss;
}

std::optional<std::size_t> findOutput(const ModelGraph& graph, const std::string& wanted) {
  std::vector<std::string> traceNames, indices;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    traceNames.push_back(graph.value(graph.outputs[i]).name);
    indices.push_back(std::to_string(i));
  }
  for (const std::vector<std::string>* names : {&graph.outputNames, &std::as_const(traceNames), &std::as_const(indices)}) {
    const auto found = std::find(names->begin(), names->end(), wanted);
    if (found != names->end()) return static_cast<std::size_t>(found - names->begin());
  }
  return std::nullopt;
}

std::size_t outputOf(const ModelGraph& graph, const Loss& loss) {
  if (graph.outputs.empty())
    throw UsageError(fmt::format("Model {} has no outputs, so it has no loss; export it again with one.", graph.name));
  if (loss.kind != LossKind::Output) return 0;
  const auto position = findOutput(graph, loss.output);
  if (!position)
    throw UsageError(
        fmt::format("Model {} has no output {}; its outputs are {}.", graph.name, loss.output, fmt::join(graph.outputNames, ", ")));
  return *position;
}

}  // namespace pw
