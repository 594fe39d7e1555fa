#include "engine/planning/layer_subject.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/resources/resources.h"
#include "engine/planning/inputs/layer_costs.h"
#include "engine/planning/plan_model.h"
#include "schedules/error.h"
#include "schedules/lower.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/costs/layer_table.h"
#include "simulator/job/job_costs.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/text/counted.h"

namespace pw {

Subject layerSubject(Schedule schedule, const SubjectOptions& o) {
  if (!isLayerTableName(o.layers)) throw UsageError(fmt::format("{} is not a layer table; give a .json or .csv file", o.layers));
  const ModelGraph graph = loadModel({o.layers});
  const Profile profile = layerCosts(graph, {o.cluster, false, false, 0, {}, {}});
  const int stages = shapeOf(schedule).stages;
  PlanOptions places;
  places.splits = o.splits;
  if (!o.splits.empty() && static_cast<int>(o.splits.size()) + 1 != stages) {
    throw UsageError(fmt::format("The split points make {} stages, but {} has {}; use {}.", o.splits.size() + 1, schedule.name, stages,
                                 counted(stages - 1, "split point")));
  }
  PlanRequest request;
  request.microbatch = profile.microbatch;
  request.begins = chooseSplits(places, graph, profile, schedule.placement);
  request.optimizer.kind = o.optimizer.value_or(OptimizerSpec::Kind::Sgd);
  Subject subject;
  subject.schedule = isLowered(schedule) ? std::move(schedule) : planRows(schedule, 1);
  subject.costs = price(request, graph, profile, subject.schedule).costs;
  addOptimizerState(subject.costs, stateCopies(request.optimizer), 1);
  if (!isOfJob(tableOf(graph))) subject.work.samples = profile.microbatch * subject.schedule.microbatches;
  subject.costSource = fmt::format("{}, costs {}", graph.name, sourceOf(profile));
  const std::vector<std::string> names = splitNames(splitPoints(graph, bindBatch(graph, profile.microbatch)), request.begins);
  if (!names.empty()) subject.costSource += fmt::format("; stages begin at {}", fmt::join(names, ", "));
  return subject;
}

}  // namespace pw
