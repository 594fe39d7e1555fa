#pragma once

#include "schedules/answer.h"
#include "simulator/plan/planner.h"

namespace pw {

/// `settledBatch`, for those to whom sizes that do not go together are an answer.
Answer<BatchSizes> trySettledBatch(BatchSizes sizes, int parts, const ModelGraph& graph);

/// `price`, for those to whom a plan that is not possible is an answer: too few ranks, no cut there, something that cannot be recomputed,
/// an automatic recomputation without a limit. Throws UsageError for numbers that are too large to add up only.
Answer<Priced> tryPrice(const PlanRequest& request, ModelCosts& model, CompiledRows& rows);

}  // namespace pw
