#include "simulator/search/replica_splits.h"

#include <algorithm>
#include <utility>

#include "schedules/generate.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/possible.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/report/metrics.h"
#include "simulator/search/evaluate.h"
#include "simulator/search/fitted_splits.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/simulate.h"

namespace pw {

bool replicasDiffer(const PlanRequest& request, const Profile& profile) {
  const std::vector<RankSpec>& ranks = profile.topology.ranks;
  const Replicas replicas{request.ranks};
  for (int d = 1; d < request.replicas && !ranks.empty(); ++d) {
    for (int r = 0; r < request.ranks; ++r) {
      const RankSpec &one = ranks.at(static_cast<std::size_t>(r)), &other = ranks.at(replicas.jobRank(d, Rank(r)).index());
      if (one.speed != other.speed || one.own != other.own || one.memoryBytes != other.memoryBytes) return true;
    }
  }
  return false;
}

namespace {

/// Of all cuts of one pipeline the best where they are few; else `begins`.
std::vector<NodeId> bestOfFew(const PlanRequest& request, const ModelGraph& graph, const std::shared_ptr<const Profile>& profile,
                              const Schedule& rows, const std::vector<NodeId>& begins) {
  constexpr double kFew = 5'000;
  const int stages = static_cast<int>(begins.size()) + 1;
  const std::vector<NodeId> places = placesFor(graph, bindBatch(graph, request.microbatch), stages);
  if (const double cuts = cutsAt(places.size(), begins.size()); cuts < 1 || cuts > kFew) return begins;
  SearchShape shape;
  shape.request = request;
  shape.stages = stages;
  shape.profile = {profile, false};
  shape.model = std::make_shared<ModelCosts>(graph, *profile, request.microbatch);
  Evaluator evaluator(shape, rows);
  const Answer<Candidate> start = evaluator.evaluate({SplitSource::Time, begins}, request.recompute);
  return start ? evaluator.improve(*start, places, 1, [](double) { return true; }).request.begins : begins;
}

}  // namespace

std::optional<OwnSplits> ownSplits(const PlanRequest& request, ModelCosts& model, const Schedule& rows, std::optional<Ns> common) {
  const Profile& profile = model.profile();
  if (lackOfRanks(profile, request.ranks * request.replicas) || !replicasDiffer(request, profile)) return std::nullopt;
  const auto stages = static_cast<int>(rows.placement.stages());
  OwnSplits own{request, {}, 0};
  for (int d = 0; d < request.replicas; ++d) {
    OwnPipeline pipeline = pipelineOf(request, profile, d);
    const auto costs = std::make_shared<const Profile>(std::move(pipeline.profile));
    if (madeSchedule(pipeline.request.schedule) != nullptr) pipeline.request.schedule = "1f1b";  // the rows are given
    const auto balanced = balancedSplits(model.graph(), *costs, stages, Balance::Time, stageSpeeds(*costs, rows.placement, 1));
    own.request.replicaBegins.push_back(bestOfFew(pipeline.request, model.graph(), costs, rows,
                                                  splitsWithinLimits(pipeline.request, model.graph(), costs, rows, balanced, {})));
  }
  const auto& begins = own.request.replicaBegins;
  if (std::ranges::count(begins, begins.front()) == request.replicas) return std::nullopt;
  CompiledRows compiled(rows);
  Answer<Priced> priced = tryPrice(own.request, model, compiled);
  if (!priced || replicaAboveLimit(own.request, profile, rows, *priced->cuts)) return std::nullopt;
  CostTable costs = priced->costs;
  addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, rows.placement));
  own.step = metricsOf(simulate(rows, costs)).step;
  if (common && own.step >= *common) return std::nullopt;
  own.request.begins = begins[static_cast<std::size_t>(priced->cuts->shown)];
  own.priced = *std::move(priced);
  return own;
}

Candidate withOwnSplits(SearchShape shape, Candidate candidate, const Schedule& rows) {
  const auto own = ownSplits(candidate.request, *shape.model, rows, candidate.fits() ? std::optional(candidate.step) : std::nullopt);
  if (!own) return candidate;
  shape.request.rankOrder = candidate.request.rankOrder;
  shape.request.begins = own->request.begins;
  shape.request.replicaBegins = own->request.replicaBegins;
  Answer<Candidate> found = Evaluator(shape, rows).evaluate({candidate.split, own->request.begins}, candidate.request.recompute);
  if (!found) return candidate;
  found->moves = candidate.moves;
  return *std::move(found);
}

}  // namespace pw
