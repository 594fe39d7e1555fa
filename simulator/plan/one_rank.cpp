#include "simulator/plan/one_rank.h"

#include <fmt/format.h>

#include "schedules/generate.h"
#include "schedules/units.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/simulate.h"

namespace pw {

std::optional<OneRank> onOneRank(const PlanRequest& request, ModelCosts& model, bool trains) {
  PlanRequest alone = request;
  alone.ranks = alone.chunks = 1;
  alone.begins.clear();
  alone.rankOrder.clear();
  alone.recompute = RecomputeNone();
  const Schedule rows = planRows(generate(trains ? "1f1b" : "forward-only", {1, 1, alone.microbatches}), alone.replicas);
  CompiledRows compiled(rows);
  CostTable costs = price(alone, model, compiled).costs;
  addOptimizerState(costs, stateCopies(alone.optimizer), optimizerShards(alone, rows.placement));
  const Metrics metrics = metricsOf(simulate(rows, costs));
  const OneRank one{metrics.step, metrics.ranks.front().peakBytes};
  return excessOf(one.peak, memoryLimits(alone, model.profile(), 1).front()) > 0 ? std::nullopt : std::optional(one);
}

std::string toString(const OneRank& one, Ns pipelined) {
  if (one.step <= pipelined)
    return fmt::format("One device suffices: the whole model takes {} per step on one rank, with {} of memory.", formatDuration(one.step),
                       formatSize(one.peak));
  return fmt::format("On one rank the step would take {} ({:.2f} times as long).", formatDuration(one.step),
                     static_cast<double>(one.step) / static_cast<double>(pipelined));
}

}  // namespace pw
