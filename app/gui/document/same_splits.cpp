#include "app/gui/document/same_splits.h"

#include <optional>

#include "app/gui/document/job_design.h"
#include "simulator/plan/model_cut.h"

namespace pw::gui {
namespace {

std::optional<ModelCut> cutOfStep(const Measured& step) { return step.run ? cutOf(step.run->plan) : step.cut; }

}  // namespace

Splits splitsOf(const Prediction& prediction, const Measured& step, const Design& design) {
  const auto& basis = design.job;
  const bool isOfJob = basis && basis->from == step.from;
  const int stages = isOfJob ? static_cast<int>(basis->job.schedule.placement.stages()) : 0;
  return pw::splitsOf(cutOf(prediction.priced.partition, prediction.priced.cuts),
                      isOfJob ? ModelCut{{}, {evenBegins(basis->job, stages)}} : cutOfStep(step));
}

Splits splitsOf(const Measured& a, const Measured& b) { return pw::splitsOf(cutOfStep(a), cutOfStep(b)); }

}  // namespace pw::gui
