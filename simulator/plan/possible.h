#pragma once

#include <optional>

#include "schedules/answer.h"
#include "schedules/placement.h"
#include "simulator/plan/planner.h"

namespace pw {

/// `settledBatch`, for those to whom sizes that do not go together are an answer.
Answer<BatchSizes> trySettledBatch(BatchSizes sizes, int parts, const ModelGraph& graph);

/// `price`, for those to whom a plan that is not possible is an answer: too few ranks, no cut there, something that cannot be recomputed,
/// an automatic recomputation without a limit. Throws UsageError for numbers that are too large to add up only.
Answer<Priced> tryPrice(const PlanRequest& request, ModelCosts& model, CompiledRows& rows);

/// The costs that `tryPrice` has for a partition: with the loss's targets, the batch's uneven microbatches, and of replicas that differ the
/// slowest one's; without the optimizer's state. Throws UsageError for numbers that are too large to add up.
[[nodiscard]] CostTable pricedCosts(const PlanRequest& request, ModelCosts& model, CompiledRows& rows, const Partition& partition);

/// A placement that keeps two copies of each stage is not for a model that changes buffers in training (batch norm's statistics): each copy
/// would change its own, by the microbatches that it sees: `changed` (`firstChangedState`). Nor are replicas for one that changes a
/// parameter by its inputs: `changedByReplicas` (`parameterChangedByInputs`; null of one replica). Cost: linear in stages.
[[nodiscard]] std::optional<Impossible> obstacleToCopies(const ModelGraph& graph, const Placement& placement, const StateTensor* changed,
                                                         const StateTensor* changedByReplicas);

}  // namespace pw
