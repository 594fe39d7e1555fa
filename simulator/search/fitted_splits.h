#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "simulator/order/find.h"
#include "simulator/partition/balancer.h"
#include "simulator/search/evaluate.h"

namespace pw {

/// Splits of a combination whose ranks stay within their memory limits, where balanced ones do not: the shortest bottleneck that the limits
/// and the microbatches that each stage keeps under its rows allow (`Balancer::beginsWithin`), in three attempts with less room for what
/// that count leaves out. Nothing where no split point makes such a cut, and without limits. `balancer`, `evaluator`: of the combination.
[[nodiscard]] std::optional<Candidate> fittedSplits(const SearchShape& shape, const Balancer& balancer, Evaluator& evaluator,
                                                    const Recompute& recompute);

/// `balanced` where they fit, or where nothing else is found that does. Else fitted ones, of plans of up to some thousand forwards with
/// their begins moved (`Evaluator::improve`) to where the step is shorter; where those do not fit, `balanced` and what is balanced
/// otherwise
/// (`Balance`), moved likewise until they fit.
[[nodiscard]] std::vector<NodeId> splitsToFit(const SearchShape& shape, const Balancer& balancer, Evaluator& evaluator,
                                              const Recompute& recompute, const std::vector<NodeId>& balanced);

/// Splits for a schedule made for costs (`kMadeSchedules`): of `balanced`, and of those that fit what one microbatch after the other or a
/// family on the same placements keeps, the ones for which a short search finds the shortest step (ties: makespan, then this order). With
/// many split points only the first families are asked. Where it is open how shared parameters are kept equal, also those that fit with one
/// update of each alone. `balanced` without limits. All searches together take a quarter of `effort`.
[[nodiscard]] std::vector<NodeId> splitsForMadeOrder(const SearchShape& shape, const Balancer& balancer, const Recompute& recompute,
                                                     const std::vector<NodeId>& balanced, const OrderEffort& effort);

/// Splits for a request's memory limits: `splitsForMadeOrder` where its schedule is made for costs, `splitsToFit` elsewhere; `balanced`
/// where no rank has a limit. `rows`: of the plan, lowered; of a schedule made for costs only their placement counts.
[[nodiscard]] std::vector<NodeId> splitsWithinLimits(const PlanRequest& request, const ModelGraph& graph,
                                                     const std::shared_ptr<const Profile>& profile, const Schedule& rows,
                                                     const std::vector<NodeId>& balanced, const OrderEffort& effort);

}  // namespace pw
