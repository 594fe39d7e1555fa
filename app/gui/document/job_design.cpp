#include "app/gui/document/job_design.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "app/gui/common/format.h"
#include "backends/host/paths.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/held_out.h"
#include "simulator/job/job_json.h"
#include "simulator/job/replay_job.h"
#include "simulator/order/made.h"
#include "simulator/order/problem/made_schedules.h"
#include "simulator/partition/split.h"
#include "simulator/timeline/fill.h"

namespace pw::gui {
namespace {

/// Whether a family's name and numbers say what it ran.
bool isRegular(const pw::Job& job) {
  const Shape shape = shapeOf(job.schedule);
  const auto known = std::ranges::find(generators(), job.schedule.name, &Generator::name);
  if (known == generators().end() || shape.stages % shape.ranks != 0 || known->refusal(shape)) return false;
  Schedule made = generate(job.schedule.name, shape);
  for (auto& row : made.rows) std::erase_if(row, [](const Action& action) { return action.kind == ActionKind::Idle; });
  return made.placement == job.schedule.placement && made.rows == job.schedule.rows;
}

/// The times of actions after their stages were cut anew: as much longer or shorter as their stage's costs. Both tables are of the same
/// stages; where a cost was 0, its times stay.
std::vector<ActionTime> cutTimes(std::vector<ActionTime> times, const CostTable& own, const CostTable& cut) {
  constexpr std::array<Ns StageCost::*, 4> kCosts{&StageCost::forward, &StageCost::backward, &StageCost::backwardInput,
                                                  &StageCost::backwardWeight};
  for (auto& [action, time] : times) {
    Ns StageCost::*const cost = kCosts.at(static_cast<std::size_t>(action.kind));
    const Ns before = own.stages.at(action.stage.index()).*cost, after = cut.stages.at(action.stage.index()).*cost;
    if (before > 0) time = Ns(std::llround(static_cast<double>(time) * static_cast<double>(after) / static_cast<double>(before)));
  }
  return times;
}

}  // namespace

std::shared_ptr<const JobBasis> readJob(const JobOptions& from, const std::function<bool(std::int64_t, std::int64_t)>& progress) {
  auto job = loadJob(from, [&](std::uint64_t done, std::uint64_t all) {
    return !progress || progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(all));
  });
  if (!job) return nullptr;
  const auto ofOwn = uncertaintyOf(*job, job->schedule), ofOthers = uncertaintyOfOthers(*job);
  return std::make_shared<const JobBasis>(JobBasis{from, *std::move(job), ofOwn, ofOthers});
}

void setAsItRan(const JobBasis& basis, Design& design) {
  const pw::Job& job = basis.job;
  const Shape shape = shapeOf(job.schedule);
  PlanRequest& request = design.request;
  request.schedule = job.schedule.name.empty() ? "custom" : job.schedule.name;
  request.ranks = shape.ranks;
  request.chunks = std::max(1, shape.stages / std::max(1, shape.ranks));
  request.microbatches = shape.microbatches;
  request.replicas = 1;
  request.batch = 0;
  request.rankOrder.clear();
  request.begins = evenBegins(job, shape.stages);
  design.source.clear();
  design.customRows = isRegular(job) ? nullptr : std::make_shared<const Schedule>(lower(job.schedule));
}

std::shared_ptr<Loaded> planOfJob(const std::shared_ptr<const JobBasis>& basis) {
  const pw::Job& job = basis->job;
  auto loaded = std::make_shared<Loaded>();
  loaded->hasDesign = true;
  loaded->title = QString::fromStdString(job.name);
  const std::string path = basis->from.paths.empty() ? basis->from.store : basis->from.paths.front();
  auto graph = std::make_shared<const ModelGraph>(chainOf(layersOf(job), absolutePath(path)));
  loaded->graph = graph;
  loaded->splitPoints = splitPoints(*graph, bindBatch(*graph, 1));
  loaded->design.models = graph->files;
  Profile profile = profileOf(*graph);
  profile.uncertainty = basis->ofOthers;  // of what a search finds, as that of the command line says it
  loaded->design.profile = std::make_shared<const Profile>(std::move(profile));
  loaded->design.request.microbatch = 1;
  loaded->design.job = basis;
  setAsItRan(*basis, loaded->design);
  loaded->measured.push_back(replayedStep(*basis, std::nullopt, JobRank(0)));
  loaded->notes << translated("Planned as the job ran: %1.").arg(QString::fromStdString(shapeText(job)));
  if (job.memory.empty()) loaded->notes << translated("Its traces do not show memory.");
  for (const std::string& note : job.notes) loaded->notes << QString::fromStdString(note);
  return loaded;
}

std::vector<NodeId> evenBegins(const pw::Job& job, int stages) {
  const auto layers = static_cast<std::int64_t>(job.schedule.placement.stages()) * kPartsOfStage;
  if (stages > layers) {
    throw UsageError(translated("A job of %1 stages can be cut into %2 at most; use fewer ranks or chunks.")
                         .arg(job.schedule.placement.stages())
                         .arg(layers)
                         .toStdString());
  }
  std::vector<NodeId> begins;
  const std::int64_t halves = std::int64_t{2} * stages;  // begins are rounded
  for (std::int64_t s = 1; s < stages; ++s) begins.emplace_back(static_cast<std::int32_t>((2 * s * layers + stages) / halves));
  return begins;
}

std::optional<Uncertainty> uncertaintyOf(const JobBasis& basis, const Prediction& prediction) {
  const pw::Schedule& ran = basis.job.schedule;
  pw::Schedule planned = computeOnly(*prediction.rows);
  for (auto& row : planned.rows) std::erase_if(row, [](const Action& action) { return action.kind == ActionKind::Idle; });
  const bool isOwn = planned.placement == ran.placement && planned.rows == ran.rows &&
                     beginsOf(prediction.priced.partition) == evenBegins(basis.job, static_cast<int>(ran.placement.stages()));
  return isOwn ? basis.ofOwn : basis.ofOthers;
}

std::shared_ptr<const Measured> replayedStep(const JobBasis& basis, std::optional<std::size_t> step, JobRank worker) {
  const pw::Job& job = basis.job;
  const JobShape shape(job);
  const TypicalTimes typical = typicalTimes(shape, job);
  JobReplay replay;
  replayJob(shape, job, step ? measuredTimes(shape, job, *step, typical) : typical.times, replay);
  auto measured = std::make_shared<Measured>();
  const QString name = QString::fromStdString(job.name);
  measured->title =
      step ? translated("%1 · %2").arg(name, QString::fromStdString(job.steps[*step].name)) : translated("%1 · usual step").arg(name);
  measured->trace = traceOf(shape, replay, shape.copyOf(worker));
  measured->timeline = timelineOf(measured->trace);
  measured->metrics = metricsOf(measured->trace);
  measured->from = basis.from;
  measured->stepName = step ? job.steps[*step].name : std::string();
  measured->isReplayed = true;
  return measured;
}

const JobStepTimes& JobTimes::of(const std::shared_ptr<const JobBasis>& basis, const PlanRequest& request,
                                 const std::shared_ptr<const Schedule>& rows) {
  const bool isSame = basis_ == basis;
  if (isSame && rows == rows_ && request.begins == begins_) return times_;
  if (!isSame) own_ = timesFor(basis->job, basis->job.schedule);
  basis_ = basis;
  rows_ = rows;
  begins_ = request.begins;
  const auto stages = static_cast<int>(rows->placement.stages());
  const double layers = static_cast<double>(basis->job.schedule.placement.stages()) * kPartsOfStage;
  if (begins_ != evenBegins(basis->job, stages)) {
    std::vector<double> cuts;
    for (const NodeId begin : begins_) cuts.push_back(static_cast<double>(begin.value) / layers);
    times_ = {costsCutAt(own_.costs, cuts), {}};
    const pw::Schedule& ran = basis->job.schedule;
    if (rows->placement == ran.placement && rows->microbatches == ran.microbatches)
      times_.actions = cutTimes(own_.actions, own_.costs, times_.costs);
  } else {
    times_ = timesFor(basis->job, *rows);
  }
  if (madeSchedule(request.schedule) != nullptr) times_.actions.clear();  // their order is made for the costs alone
  return times_;
}

JobTimes::Order JobTimes::order(const std::shared_ptr<const JobBasis>& basis, const PlanRequest& request, int stages,
                                const OrderEffort& effort) {
  const auto problemOn = [&](const Placement& placement) {
    const auto serial = std::make_shared<const pw::Schedule>(serialSchedule(placement, request.ranks, request.microbatches));
    OrderProblem problem;
    problem.microbatches = request.microbatches;
    problem.ranks = request.ranks;
    problem.placement = placement;
    problem.costs = of(basis, request, serial).costs;
    if (request.memoryLimit > 0) problem.limits.assign(static_cast<std::size_t>(request.ranks), request.memoryLimit);
    return problem;
  };
  SoughtOrder sought = seekOrder(*madeSchedule(request.schedule), {request.ranks, stages, request.microbatches}, problemOn, effort);
  if (!sought.found) return {serialSchedule(sought.problem.placement, request.ranks, request.microbatches), std::nullopt};
  return {std::move(sought.found->schedule), std::move(sought.found->certificate)};
}

}  // namespace pw::gui
