#pragma once

#include <vector>

#include "schedules/answer.h"
#include "simulator/plan/planner.h"

namespace pw {

/// A request's replica as a pipeline of its own: with its begins, its ranks alone and full microbatches.
struct OwnPipeline {
  PlanRequest request;
  Profile profile;
};
[[nodiscard]] OwnPipeline pipelineOf(const PlanRequest& request, const Profile& profile, int replica);

/// Of the replica whose begins the request has as `begins`, the slowest; the request as it is where replicas are cut alike.
[[nodiscard]] OwnPipeline shownPipeline(const PlanRequest& request, const Profile& profile);

/// `tryPrice` of a request whose replicas have begins of their own (`PlanRequest::replicaBegins`). Each is priced for its ranks, links and
/// limits. A shared parameter that one of them transmits is transmitted in all, which leaves the most room. Then come the sums of gradients
/// over the replicas: a ring over the ranks that hold the same parameters, one after the other where a stage holds some that are together
/// in no other replica. A sum is not made to wait for the backward of a replica that is later, so that the step is too short by at most the
/// optimizer's time of a stage. Not possible: bidirectional placements; parameters that are shared by other stages in one replica than in
/// another. Cost: a `price` and a simulation for each replica.
Answer<Priced> tryPriceReplicas(const PlanRequest& request, ModelCosts& model, CompiledRows& rows);

/// How long each microbatch of the replica takes relative to a full one; empty when all are full.
[[nodiscard]] std::vector<double> microbatchScale(const PlanRequest& request, int replica);

/// The groups of the trained parameters that no stages share, in the order of their first parameters. `cuts`: of the same graph.
[[nodiscard]] std::vector<SummedParameters> summedParameters(const ModelGraph& graph, const std::vector<ReplicaCut>& cuts);

/// The first replica with a rank that needs more than its limit, optimizer state included; nothing where all fit.
[[nodiscard]] std::optional<int> replicaAboveLimit(const PlanRequest& request, const Profile& profile, const Schedule& rows,
                                                   const ReplicaCuts& cuts);

}  // namespace pw
