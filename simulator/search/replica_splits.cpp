#include "simulator/search/replica_splits.h"

#include <algorithm>
#include <utility>

#include "schedules/generate.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/possible.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/report/metrics.h"
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

std::optional<OwnSplits> ownSplits(const PlanRequest& request, ModelCosts& model, const Schedule& rows, Ns common) {
  const Profile& profile = model.profile();
  if (lackOfRanks(profile, request.ranks * request.replicas) || !replicasDiffer(request, profile)) return std::nullopt;
  const auto stages = static_cast<int>(rows.placement.stages());
  OwnSplits own{request, {}, 0};
  for (int d = 0; d < request.replicas; ++d) {
    OwnPipeline pipeline = pipelineOf(request, profile, d);
    const auto costs = std::make_shared<const Profile>(std::move(pipeline.profile));
    if (madeSchedule(pipeline.request.schedule) != nullptr) pipeline.request.schedule = "1f1b";  // the rows are given
    const auto balanced = balancedSplits(model.graph(), *costs, stages, Balance::Time, stageSpeeds(*costs, rows.placement, 1));
    own.request.replicaBegins.push_back(splitsWithinLimits(pipeline.request, model.graph(), costs, rows, balanced, {}));
  }
  const auto& begins = own.request.replicaBegins;
  if (std::ranges::count(begins, begins.front()) == request.replicas) return std::nullopt;
  CompiledRows compiled(rows);
  Answer<Priced> priced = tryPrice(own.request, model, compiled);
  if (!priced || replicaAboveLimit(own.request, profile, rows, *priced->cuts)) return std::nullopt;
  CostTable costs = priced->costs;
  addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, rows.placement));
  own.step = metricsOf(simulate(rows, costs)).step;
  if (own.step >= common) return std::nullopt;
  own.request.begins = begins[static_cast<std::size_t>(priced->cuts->shown)];
  own.priced = *std::move(priced);
  return own;
}

}  // namespace pw
