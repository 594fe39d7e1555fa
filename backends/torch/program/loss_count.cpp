#include "backends/torch/program/loss_count.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "schedules/error.h"

namespace pw {
namespace {

NodeProgram programFor(const ModelGraph& graph, const LossCount& count) {
  ProgramOptions options;
  options.keep = {count.value};
  options.evaluate = true;
  return NodeProgram(graph, count.nodes, options);
}

}  // namespace

LossCounter::LossCounter(const ModelGraph& graph, LossCount count)
    : graph_(graph), count_(std::move(count)), program_(programFor(graph, count_)) {
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
  const double number = count_.ignored ? value.ne(*count_.ignored).sum().item<double>() : value.to(at::kDouble).sum().item<double>();
  if (!std::isfinite(number) || number < 0) {
    throw UsageError("The count of --loss-count is " + std::to_string(number) +
                     " for a microbatch; it must be a number of samples or targets, 0 or more.");
  }
  return number;
}

}  // namespace pw
