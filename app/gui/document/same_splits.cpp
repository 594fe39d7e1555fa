#include "app/gui/document/same_splits.h"

#include <optional>
#include <vector>

#include "app/gui/document/job_design.h"
#include "simulator/partition/partition.h"

namespace pw::gui {
namespace {

/// Where the stages of a step begin; nothing: not known, of traces of other tools.
std::optional<std::vector<NodeId>> beginsOfStep(const Measured& step) {
  return step.run ? beginsOf(step.run->plan.partition) : step.begins;
}

}  // namespace

Splits splitsOf(const Prediction& prediction, const Measured& step, const Design& design) {
  if (prediction.priced.partition.stages.empty()) return Splits::Same;  // there is no model
  const auto& basis = design.job;
  const bool isOfJob = basis && basis->from == step.from;
  const int stages = isOfJob ? static_cast<int>(basis->job.schedule.placement.stages()) : 0;
  const auto begins = isOfJob ? std::optional(evenBegins(basis->job, stages)) : beginsOfStep(step);
  return !begins || *begins == beginsOf(prediction.priced.partition) ? Splits::Same : Splits::Other;
}

Splits splitsOf(const Measured& a, const Measured& b) {
  if (a.run && b.run && a.run->plan.modelName != b.run->plan.modelName) return Splits::Other;
  const auto begins = beginsOfStep(a), others = beginsOfStep(b);
  return !begins || !others || *begins == *others ? Splits::Same : Splits::Other;
}

}  // namespace pw::gui
