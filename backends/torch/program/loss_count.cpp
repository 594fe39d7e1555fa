#include "backends/torch/program/loss_count.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "schedules/error.h"

namespace pw {
namespace {

/// Those that read the sum, or what such a one computes.
std::vector<NodeId> nodesAfterSum(const ModelGraph& graph, const LossCount& count) {
  std::vector<NodeId> after;
  if (!count.sum) return after;
  std::set<ValueId> known{*count.sum};
  for (const NodeId id : count.nodes) {
    const Node& node = graph.node(id);
    const std::vector<ValueId> reads = readsOf(node);
    if (std::ranges::none_of(reads, [&](ValueId read) { return known.contains(read); })) continue;
    after.push_back(id);
    known.insert(node.outputs.begin(), node.outputs.end());
  }
  return after;
}

/// What these nodes read and do not compute.
std::vector<ValueId> inputsOfNodes(const ModelGraph& graph, const std::vector<NodeId>& nodes) {
  std::vector<ValueId> reads;
  std::set<ValueId> own;
  for (const NodeId id : nodes) {
    for (const ValueId read : readsOf(graph.node(id))) {
      if (!own.contains(read) && !graph.value(read).symbolic) reads.push_back(read);
    }
    own.insert(graph.node(id).outputs.begin(), graph.node(id).outputs.end());
  }
  return reads;
}

NodeProgram programFor(const ModelGraph& graph, const std::vector<NodeId>& nodes, std::vector<ValueId> keep) {
  ProgramOptions options;
  options.keep = {keep.begin(), keep.end()};
  options.evaluate = true;
  return NodeProgram(graph, nodes, options);
}

std::vector<ValueId> keptOf(const ModelGraph& graph, const LossCount& count) {
  std::vector<ValueId> kept = inputsOfNodes(graph, nodesAfterSum(graph, count));
  kept.push_back(count.value);
  return kept;
}

double totalOf(const at::Tensor& tensor) { return tensor.to(at::kDouble).sum().item<double>(); }

}  // namespace

LossCounter::LossCounter(const ModelGraph& graph, LossCount count)
    : graph_(graph),
      count_(std::move(count)),
      program_(programFor(graph, count_.nodes, keptOf(graph, count_))),
      after_(nodesAfterSum(graph, count_)) {
  const auto need = [&](ValueId id) {
    if (graph.value(id).origin == ValueOrigin::Input && std::ranges::find(inputs_, id) == inputs_.end()) inputs_.push_back(id);
  };
  need(count_.value);
  for (const NodeId node : count_.nodes) std::ranges::for_each(readsOf(graph.node(node)), need);
}

double LossCounter::count(const std::map<ValueId, at::Tensor>& inputs, std::int64_t samples) {
  const c10::AutoGradMode off(false);
  Frame frame(graph_.values.size());
  for (const auto& [id, tensor] : inputs) frame[id.index()] = tensor;
  const std::vector<std::int64_t> symbolic = symbolicValues(graph_, bindBatch(graph_, samples));
  RunOptions run;
  run.symbolic = &symbolic;
  program_.run(frame, run);
  const at::Tensor& value = frame[count_.value.index()];
  const double number = count_.ignored ? value.ne(*count_.ignored).sum().item<double>() : totalOf(value);
  if (!std::isfinite(number) || number < 0) {
    throw UsageError("The count of --loss-count is " + std::to_string(number) +
                     " for a microbatch; it must be a number of samples or targets, 0 or more.");
  }
  all_ += number;
  samples_ += samples;
  if (!count_.sum) return number;
  for (const ValueId id : inputsOfNodes(graph_, after_)) {
    const auto [at, isNew] = ofAll_.try_emplace(id, frame[id.index()]);
    if (!isNew && id == *count_.sum) at->second = at->second + frame[id.index()];
  }
  return number;
}

double LossCounter::countOfAll() {
  const double all = std::exchange(all_, 0);
  const std::int64_t samples = std::exchange(samples_, 0);
  if (!count_.sum) return all;
  const c10::AutoGradMode off(false);
  Frame frame(graph_.values.size());
  for (const auto& [id, tensor] : std::exchange(ofAll_, {})) frame[id.index()] = tensor;
  const std::vector<std::int64_t> symbolic =
      symbolicValues(graph_, bindBatch(graph_, batchSymbol(graph_).empty() ? exportedBatch(graph_) : samples));
  RunOptions run;
  run.symbolic = &symbolic;
  const NodeProgram program = programFor(graph_, after_, {count_.value});
  program.run(frame, run);
  return totalOf(frame[count_.value.index()]);
}

}  // namespace pw
