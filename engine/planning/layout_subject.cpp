#include "engine/planning/layout_subject.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backends/host/paths.h"
#include "backends/resources/file_kind.h"
#include "backends/resources/resources.h"
#include "engine/planning/inputs/layer_costs.h"
#include "schedules/error.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/job_costs.h"
#include "simulator/layout/blocks.h"
#include "simulator/layout/timed_layouts.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

constexpr std::int64_t kMostActions = 500'000;  ///< forwards of a step

/// Ranks and chunks from the options, and the stages of the string.
void settleShape(const LayoutOptions& o, ExaminedLayout& result) {
  const int stages = static_cast<int>(result.layout.stages.size());
  if (o.ranks > 0 && o.chunks > 0 && o.ranks * o.chunks != stages)
    throw UsageError(
        fmt::format("the layout has {}, not {} ranks × {} chunks; omit --chunks", counted(stages, "stage"), o.ranks, o.chunks));
  if (o.ranks == 0 && o.chunks > 0 && stages % o.chunks != 0)
    throw UsageError(fmt::format("the layout has {}, which {} on each rank do not divide; give another --chunks, or --ranks",
                                 counted(stages, "stage"), counted(o.chunks, "stage")));
  result.ranks = o.ranks > 0 ? o.ranks : o.chunks > 0 ? stages / o.chunks : stages;
  result.ranksAssumed = o.ranks == 0 && o.chunks == 0;
  if (result.ranks > kMaxRanks) throw UsageError(fmt::format("{} are too many; at most {}", counted(result.ranks, "rank"), kMaxRanks));
  result.chunks = std::max(1, stages / result.ranks);
}

Subject subjectOf(const LayoutOptions& o, const Schedule& schedule, const LaidOutTable& laidOut) {
  const ModelGraph graph = chainOf(laidOut.table, o.table);
  const Profile profile = layerCosts(graph, {o.cluster, false, false, 0, {}, {}});
  PlanRequest request;
  request.microbatch = profile.microbatch;
  for (const std::size_t begin : laidOut.begins) request.begins.emplace_back(begin);
  request.optimizer = plannedOptimizer(o.optimizer.empty() ? "sgd" : o.optimizer, 0);
  Subject subject;
  subject.schedule = planRows(schedule, 1);
  subject.costs = price(request, graph, profile, subject.schedule).costs;
  addOptimizerState(subject.costs, stateCopies(request.optimizer), 1);
  subject.costSource = fmt::format("{}, costs {}", graph.name, sourceOf(profile));
  return subject;
}

}  // namespace

ExaminedLayout examineLayout(const LayoutOptions& o) {
  ExaminedLayout result;
  result.layout = parseLayout(o.layout);
  result.places = stagePlaces(o.layout);
  settleShape(o, result);
  result.microbatches = o.microbatches > 0 ? o.microbatches : defaultMicrobatches(result.ranks, 1, 0, 0);
  if (const auto actions = static_cast<std::int64_t>(result.layout.stages.size()) * result.microbatches; actions > kMostActions)
    throw UsageError(fmt::format("{} of {} are more than can be laid out ({}); give fewer --microbatches",
                                 counted(result.microbatches, "microbatch"), counted(std::ssize(result.layout.stages), "stage"),
                                 kMostActions));
  result.problems = problemsOf(result.layout, {result.ranks, o.layers, o.mtp});
  if (o.table.empty() && !(o.cluster.empty() && o.optimizer.empty()))
    throw UsageError("--cluster and --optimizer are of a prediction; give --layers, or omit them");
  if (!result.problems.empty()) return result;
  result.notes = notesOf(result.layout, result.ranks);
  result.refusal = refusalOfMicrobatches(result.ranks, result.chunks, result.microbatches, o.group);
  std::optional<LaidOutTable> laidOut;
  if (!o.table.empty()) {
    if (pathExists(o.table) && modelKindOf({o.table}) == FileKind::Model)
      throw UsageError(fmt::format("{} is neither a layer table nor a job or trace; give a .json or .csv file, or a trace", o.table));
    LayerTable table = tableOf(loadModel({o.table}));
    const bool isToldLayers = isOfJob(table) && o.layers;
    if (isToldLayers) table = withLayers(table, *o.layers);
    laidOut = layOut(table, result.layout, isToldLayers);
    if (isToldLayers) result.notes.emplace_back(kLayersAlike);
    result.notes.insert(result.notes.end(), laidOut->notes.begin(), laidOut->notes.end());
  }
  if (result.refusal) return result;
  result.schedule = megatronSchedule({result.ranks, result.chunks, result.microbatches, o.group});
  if (laidOut) result.subject = subjectOf(o, result.schedule, *laidOut);
  return result;
}

}  // namespace pw
