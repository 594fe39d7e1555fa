#include "app/cli/run_evaluation.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "app/cli/output.h"
#include "engine/training_files.h"
#include "schedules/error.h"

namespace pw::cli {

using Json = nlohmann::ordered_json;

void evaluateRank(const RunOptions& o, const ModelGraph& graph, const Plan& plan, TrainOptions options, Communicator& communicator,
                  const TorchBackend& torch) {
  std::vector<Evaluation> steps;
  double loss = 0;
  for (int i = 0; i < o.steps; ++i) {
    options.firstStep = i;
    steps.push_back(evaluate(graph, plan, options, communicator, torch));
    loss += steps.back().loss / o.steps;
  }
  if (communicator.rank().value != 0) return communicator.barrier();
  if (!o.outputs.empty()) {
    std::vector<ModelOutput> outputs = steps.front().outputs;
    std::vector<std::int64_t> samples;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto sizes = microbatchSizes(plan.batch, plan.replicas * plan.schedule.microbatches);
      samples.insert(samples.end(), sizes.begin(), sizes.end());
      for (std::size_t k = 0; i > 0 && k < outputs.size(); ++k) {
        outputs[k].parts.insert(outputs[k].parts.end(), steps[i].outputs[k].parts.begin(), steps[i].outputs[k].parts.end());
      }
    }
    mergeAndSave(o.outputs, outputs, samples);
  }
  communicator.barrier();
  if (!std::isfinite(loss))
    throw Error("The loss of the evaluation is not finite: the model, its weights or the data give NaN or infinity");
  const std::int64_t samples = plan.batch * o.steps;
  if (o.json) {
    Json j{{"loss", loss}, {"samples", samples}, {"outputs", Json::array()}};
    for (const ModelOutput& output : steps.front().outputs) j["outputs"].push_back(output.name);
    if (!o.outputs.empty()) j["outputs_file"] = o.outputs;
    print(versioned(j.dump(1, ' ', false, Json::error_handler_t::replace)) + "\n");
    return;
  }
  print(fmt::format("loss {:.6f} over {}, without dropout and gradients\n", loss, counted(samples, "sample")));
  if (!o.outputs.empty())
    print(fmt::format("{} written to {}\n", counted(static_cast<int>(steps.front().outputs.size()), "output"), o.outputs));
}

}  // namespace pw::cli
