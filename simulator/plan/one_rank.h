#pragma once

#include <optional>
#include <string>

#include "simulator/partition/model_costs.h"
#include "simulator/plan/planner.h"

namespace pw {

/// The whole model on one rank, or on one for each replica: where ranks differ, on the fastest that it fits.
struct OneRank {
  Ns step = 0;
  Bytes peak = 0;
  std::optional<JobRank> rank = std::nullopt;  ///< of the cluster, where ranks differ; of several replicas the first
  int replicas = 1;                            ///< each on a rank of its own

  bool operator==(const OneRank&) const = default;
};

/// What the request's microbatches take one after the other on one rank, without recomputation; nothing where the model fits none.
/// `trains`: with backwards. Throws as `price`. Cost: as `price`.
[[nodiscard]] std::optional<OneRank> onOneRank(const PlanRequest& request, ModelCosts& model, bool trains);

/// In a sentence, beside a step on several ranks: `On one rank the step would take 20.7 ms (3.23 times as long).`
[[nodiscard]] std::string toString(const OneRank& one, Ns pipelined);

}  // namespace pw
