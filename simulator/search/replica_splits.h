#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "simulator/plan/planner.h"
#include "simulator/search/evaluate.h"
#include "simulator/search/search.h"

namespace pw {

/// Whether replicas find ranks of other speeds or limits at the same places of the pipeline, so that splits of their own may help.
[[nodiscard]] bool replicasDiffer(const PlanRequest& request, const Profile& profile);

/// The request with splits for each replica's own ranks (`PlanRequest::replicaBegins`) and what it costs: balanced by time, or within
/// memory limits, as for one pipeline; of few ways to cut (5,000) the best. Nothing where replicas do not differ, they get the same splits,
/// a rank is above its limit, or the step is not shorter than `common`, which is that of the request as it is [ns]; nothing: that does not
/// fit. `rows`: of the plan. Cost: a balance, perhaps those ways, and a `price` for each replica.
struct OwnSplits {
  PlanRequest request;
  Priced priced;
  Ns step = 0;
};
[[nodiscard]] std::optional<OwnSplits> ownSplits(const PlanRequest& request, ModelCosts& model, const Schedule& rows,
                                                 std::optional<Ns> common);

/// The candidate with splits for each replica's own ranks, where replicas differ and that is faster, or fits where it does not. `shape`: of
/// the candidate; `rows`: of its plan. Cost: as `ownSplits`.
[[nodiscard]] Candidate withOwnSplits(SearchShape shape, Candidate candidate, const Schedule& rows);

}  // namespace pw
