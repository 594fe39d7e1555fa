#include "engine/planning/job_subject.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/planning/inputs/job_source.h"
#include "engine/planning/inputs/schedule_source.h"
#include "schedules/error.h"
#include "simulator/job/held_out.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/memory.h"
#include "simulator/job/typical.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

bool splitsBackwards(const Schedule& schedule) {
  const auto isPart = [](const Action& a) { return a.kind == ActionKind::BackwardInput || a.kind == ActionKind::BackwardWeight; };
  return std::ranges::any_of(schedule.rows, [&](const std::vector<Action>& row) { return std::ranges::any_of(row, isPart); });
}

Job jobFor(const SubjectOptions& o) {
  return o.job ? withSteps(*o.job, o.costsFromSteps) : *loadJob({.paths = {o.costsFrom}, .steps = o.costsFromSteps});
}

Subject subjectWith(const Job& job, Schedule schedule, const SubjectOptions& o) {
  if (!o.memoryLimit.empty()) requireMemory(job);
  Subject subject;
  const int stages = static_cast<int>(schedule.placement.stages()), own = static_cast<int>(job.schedule.placement.stages());
  JobStepTimes times = timesFor(job, schedule);
  subject.costs = std::move(times.costs);
  subject.actionTimes = std::move(times.actions);
  subject.schedule = std::move(schedule);
  subject.uncertainty = uncertaintyOf(job, subject.schedule);
  subject.notes = job.notes;
  subject.halvedBackwards = splitsBackwards(subject.schedule) && !splitsBackwards(job.schedule);
  if (subject.halvedBackwards)
    subject.notes.push_back(fmt::format("{} did whole backwards; the times of their parts are estimated, which a run with {} would show",
                                        job.name, subject.schedule.name.empty() ? "such a schedule" : subject.schedule.name));
  subject.costSource = jobTimesText(job, !subject.actionTimes.empty());
  if (stages != own) subject.costSource += fmt::format(", spread from {} evenly over {} stages", counted(own, "stage"), stages);
  return subject;
}

ShapeOptions shapeFor(const Job& job, const SubjectOptions& o) {
  ShapeOptions shape = o.shape;
  if (shape.ranks == 0) shape.ranks = shapeOf(job.schedule).ranks;
  if (shape.microbatches == 0) shape.microbatches = job.schedule.microbatches;
  return shape;
}

/// The job's own step as a runtime posts its messages; nothing where it cannot run so.
std::optional<Ns> runtimeStep(const Job& job, const RuntimeChoice& choice) {
  try {
    const RuntimePrediction predicted = predictRuntime(subjectWith(job, job.schedule, {}), choice);
    return predicted.of.problems.empty() ? std::optional(predicted.of.report.metrics.step) : std::nullopt;
  } catch (const UsageError&) {  // a schedule that the runtime does not have
    return std::nullopt;
  }
}

}  // namespace

std::optional<Uncertainty> uncertaintyOf(const Job& job, const Schedule& schedule, const RuntimeChoice& choice) {
  RuntimeChoice own = choice;  // of the job's own actions, which have no messages
  own.single = own.asGiven = false;
  if (!runtimeStep(job, own)) return std::nullopt;
  return uncertaintyOf(job, schedule, [&](const Job& part) { return runtimeStep(part, own).value_or(Ns{0}); });
}

std::string jobTimesText(const Job& job, bool isByAction) { return (isByAction ? "each microbatch's " : "each stage's ") + usualText(job); }

ShapeOptions jobShape(const SubjectOptions& o) { return shapeFor(jobFor(o), o); }

Subject jobSubject(Schedule schedule, const SubjectOptions& o) { return subjectWith(jobFor(o), std::move(schedule), o); }

Subject jobSubject(const SubjectOptions& o) {
  const Job job = jobFor(o);
  if (!o.csv.empty()) return subjectWith(job, readSchedule(o.csv, o.letters.value_or(Letters::Torch)), o);
  if (o.schedule.empty() && !o.shape.given()) {
    Subject subject = subjectWith(job, job.schedule, o);
    if (subject.schedule.name.empty()) subject.schedule.name = "custom";
    return subject;
  }
  const Shape own = shapeOf(job.schedule);
  ShapeOptions shape = shapeFor(job, o);
  const std::string name = o.schedule.empty() ? job.schedule.name : o.schedule;
  if (name.empty()) throw UsageError(fmt::format("the order of {} is of no family; say which with --schedule NAME", o.costsFrom));
  if (o.schedule.empty() && shape.chunks == 0 && own.stages % own.ranks == 0) shape.chunks = own.stages / own.ranks;
  return subjectWith(job, generateFrom(name, shape), o);
}

}  // namespace pw
