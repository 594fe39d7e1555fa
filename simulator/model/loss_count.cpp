#include "simulator/model/loss_count.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <utility>

#include "simulator/model/graph_facts.h"
#include "simulator/model/loss_form.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

constexpr std::int64_t kIgnored = -100;  // of torch's losses

Answer<LossCount> ofLoss(const ModelGraph& graph, const Loss& loss) {
  const auto output = findOutput(graph, loss.output);
  if (!output)
    return Impossible{
        fmt::format("Model {} has no output {}; its outputs are {}.", graph.name, loss.output, fmt::join(graph.outputNames, ", "))};
  const auto own = ownLossOf(graph, graph.outputs[*output]);
  const std::string& name = graph.outputNames[*output];
  if (own && own->counted && own->form == LossForm::TargetMean) return LossCount{*own->counted, own->ignored, {}};
  if (own && own->counted && own->form == LossForm::Quotient) return LossCount{*own->counted, std::nullopt, {}, own->sum};
  if (!own || own->form == LossForm::Mean)
    return Impossible{fmt::format("{} is a mean over the samples, which a step already weights by sample; omit --loss-count.", name)};
  return Impossible{fmt::format("--loss-count auto cannot weigh {}: {}; name an output or input of the model that counts instead.", name,
                                lossBias(graph, *own))};
}

/// `labels:ignore=0` → the name, and the number.
Answer<std::pair<std::string, std::optional<std::int64_t>>> parts(const std::string& text) {
  constexpr const char* kIgnore = ":ignore=";
  const std::size_t at = text.rfind(kIgnore);
  if (at == std::string::npos) return std::pair(text, std::optional<std::int64_t>());
  const std::string digits = text.substr(at + std::string(kIgnore).size());
  const auto number = numberOf<std::int64_t>(digits);
  if (!number) return Impossible{fmt::format("\"{}\" in --loss-count {} is not an integer.", digits, text)};
  return std::pair(text.substr(0, at), number);
}

Answer<LossCount> named(const ModelGraph& graph, const std::string& text) {
  const auto known = parts(text);
  if (!known) return known.refusal();
  const auto& [name, ignored] = *known;
  for (const ValueId id : graph.inputs) {
    if (graph.value(id).name == name) return LossCount{id, ignored.value_or(kIgnored), {}};
  }
  if (const auto output = findOutput(graph, name)) return LossCount{graph.outputs[*output], ignored, {}};
  std::vector<std::string> inputs;
  for (const ValueId id : graph.inputs) inputs.push_back(graph.value(id).name);
  return Impossible{fmt::format("Model {} has no output or input {} for --loss-count; its outputs are {}, its inputs {}; or use auto.",
                                graph.name, name, fmt::join(graph.outputNames, ", "), fmt::join(inputs, ", "))};
}

/// The nodes that compute the value, down to the inputs; or what else it depends on.
Answer<std::vector<NodeId>> nodesFor(const ModelGraph& graph, ValueId value) {
  const std::vector<bool> changed = changedInPlace(graph);
  std::vector<bool> needed(graph.nodes.size(), false), seen(graph.values.size(), false);
  std::vector<ValueId> open{value};
  const auto because = [&](const std::string& why) {
    return Impossible{fmt::format("{} cannot weigh microbatches by --loss-count: it {}, and counts must follow from the inputs alone.",
                                  graph.value(value).name, why)};
  };
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (seen[id.index()]) continue;
    seen[id.index()] = true;
    const Value& at = graph.value(id);
    if (at.symbolic || at.origin == ValueOrigin::Input) continue;
    if (at.origin != ValueOrigin::Node) return because("depends on " + at.name);
    const Node& node = graph.node(at.producer);
    if (changed[id.index()]) return because("is computed from memory that is changed in place");
    if (isRandomOperator(node)) return because("depends on random numbers");
    needed[at.producer.index()] = true;
    for (const ValueId read : readsOf(node)) open.push_back(read);
  }
  std::vector<NodeId> nodes;
  for (std::size_t n = 0; n < needed.size(); ++n) {
    if (needed[n]) nodes.emplace_back(n);
  }
  return nodes;
}

}  // namespace

std::string lossBias(const ModelGraph& graph, const Loss& loss) {
  const auto output = loss.kind == LossKind::Output ? findOutput(graph, loss.output) : std::nullopt;
  const auto own = output ? ownLossOf(graph, graph.outputs[*output]) : std::nullopt;
  return own ? lossBias(graph, *own) : "";
}

Answer<LossCount> tryLossCount(const ModelGraph& graph, const Loss& loss, const std::string& text) {
  if (loss.kind != LossKind::Output) {
    return Impossible{fmt::format(
        "--loss-count weighs a loss that the model computes, and {} weights its targets itself; use it with --loss output:NAME.",
        nameOf(loss.kind))};
  }
  Answer<LossCount> count = text == "auto" ? ofLoss(graph, loss) : named(graph, text);
  if (!count) return count;
  Answer<std::vector<NodeId>> nodes = nodesFor(graph, count->value);
  if (!nodes) return nodes.refusal();
  count->nodes = *std::move(nodes);
  return count;
}

LossCount parseLossCount(const ModelGraph& graph, const Loss& loss, const std::string& text) {
  return tryLossCount(graph, loss, text).orThrow();
}

}  // namespace pw
