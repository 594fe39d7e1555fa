#include "engine/planning/inputs/step_work.h"

#include <algorithm>
#include <string>

#include "backends/resources/file_kind.h"
#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "simulator/model/batch.h"
#include "simulator/model/graph_facts.h"
#include "simulator/plan/plan_fits.h"

namespace pw {
namespace {

StepWork withTokens(const Plan& plan, std::int64_t perSample) {
  return {plan.batch, plan.batch * perSample, modelFlops(plan.profile, plan.batch, trains(plan.schedule)), worldSize(plan)};
}

/// Whether the model stands for a job's stages, whose microbatches have an unknown number of samples.
bool isJobs(const Plan& plan) {
  const FileKind kind = modelKindOf(plan.modelFiles);
  return kind == FileKind::Job || kind == FileKind::Trace;
}

}  // namespace

StepWork workOf(const Plan& plan, const ModelGraph& graph) {
  return isJobs(plan) ? StepWork{.devices = worldSize(plan)} : withTokens(plan, isLayerChain(graph) ? 0 : tokensPerSample(graph));
}

StepWork workOf(const Plan& plan) {
  try {
    if (isJobs(plan)) return {.devices = worldSize(plan)};
    const ModelGraph graph = loadModel(plan.modelFiles);
    requireFits(plan, graph);
    return workOf(plan, graph);
  } catch (const Error&) {  // nothing else of the plan needs the model
    const bool isTraced = std::ranges::all_of(plan.modelFiles, [](const std::string& file) { return file.ends_with(".pt2"); });
    return isTraced ? withTokens(plan, 0) : StepWork{.devices = worldSize(plan)};  // what is gone may have been a job
  }
}

}  // namespace pw
