#include "engine/run/evaluation.h"

#include <cmath>
#include <cstddef>

#include "engine/evaluation.h"
#include "engine/training_files.h"
#include "schedules/error.h"

namespace pw {

std::optional<EvaluationResult> evaluateRank(const RunSettings& o, const ModelGraph& graph, const Plan& plan, const TrainOptions& options,
                                             Communicator& communicator, const TorchBackend& torch) {
  std::vector<Evaluation> steps;
  double loss = 0;
  EvaluationRun run(graph, plan, options, communicator, torch);
  for (int i = 0; i < o.request.steps; ++i) {
    Evaluation step = run.step(i, !o.request.outputs.empty());
    loss += step.loss / o.request.steps;
    if (!o.request.outputs.empty()) steps.push_back(std::move(step));
  }
  if (communicator.rank().value != 0) {
    communicator.barrier();
    return std::nullopt;
  }
  if (!o.request.outputs.empty()) {
    std::vector<ModelOutput> outputs = steps.front().outputs;
    std::vector<std::int64_t> samples;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto sizes = microbatchSizes(plan.batch, plan.replicas * plan.schedule.microbatches);
      samples.insert(samples.end(), sizes.begin(), sizes.end());
      for (std::size_t k = 0; i > 0 && k < outputs.size(); ++k) {
        outputs[k].parts.insert(outputs[k].parts.end(), steps[i].outputs[k].parts.begin(), steps[i].outputs[k].parts.end());
      }
    }
    mergeAndSave(o.request.outputs, outputs, samples);
  }
  communicator.barrier();
  if (!std::isfinite(loss))
    throw Error("The loss of the evaluation is not finite: the model, its weights or the data give NaN or infinity");
  EvaluationResult result{loss, plan.batch * o.request.steps, {}};
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (graph.value(graph.outputs[i]).tensor) result.outputs.push_back(graph.outputNames[i]);
  }
  return result;
}

}  // namespace pw
