#include "simulator/plan/replica_prices.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "schedules/job_rank.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/plan/possible.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/simulate.h"

namespace pw {
namespace {

std::vector<JobRank> ranksOf(const PlanRequest& request, int replica) {
  const Replicas replicas{request.ranks};
  std::vector<JobRank> ranks;
  for (int r = 0; r < request.ranks; ++r) ranks.push_back(replicas.jobRank(replica, Rank(r)));
  return ranks;
}

std::optional<Impossible> obstacle(const PlanRequest& request, const Profile& profile, const Schedule& rows) {
  if (rows.placement.bidirectional())
    return Impossible{
        fmt::format("{} has each stage on two ranks, so all replicas have the same splits; choose another schedule, or the "
                    "same splits for all replicas.",
                    request.schedule)};
  if (static_cast<int>(request.replicaBegins.size()) != request.replicas)
    return Impossible{fmt::format("There are splits of {} replicas, and {} replicas; give each its own, or all the same.",
                                  request.replicaBegins.size(), request.replicas)};
  return lackOfRanks(profile, static_cast<int>(rows.rows.size()) * request.replicas);
}

bool isSharedAlike(const Partition& a, const Partition& b) {
  return std::ranges::equal(a.shared, b.shared, [](const SharedParameter& one, const SharedParameter& other) {
    return one.storage == other.storage && one.stages == other.stages;
  });
}

/// Of gradients that are summed over all replicas.
class ReplicaSums {
 public:
  ReplicaSums(const Topology& topology, const PlanRequest& request, const Placement& placement)
      : topology_(topology), replicas_{request.ranks}, placement_(placement), count_(request.replicas) {}

  /// `stages`: those that hold them, by replica.
  [[nodiscard]] Ns time(const std::vector<Stage>& stages, Bytes bytes) const {
    std::vector<JobRank> ring;
    for (int d = 0; d < count_; ++d)
      ring.push_back(replicas_.jobRank(d, placement_.rankOfStage.at(stages[static_cast<std::size_t>(d)].index())));
    return ringTime(slowestHop(topology_, ring, bytes / count_), bytes, count_);
  }

 private:
  const Topology& topology_;
  Replicas replicas_;
  const Placement& placement_;
  int count_;
};

/// Keeps a replica's shared parameters equal as all replicas do.
void shareAlike(ReplicaCut& cut, const std::vector<SharingChoice>& choices, const OwnPipeline& own, const ModelGraph& graph,
                const Placement& placement) {
  bool changed = false;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    changed = changed || cut.partition.shared[i].sharing != choices[i].sharing;
    cut.partition.shared[i].sharing = choices[i].sharing;
  }
  if (!changed) return;
  ModelCosts costs(graph, own.profile, own.request.microbatch);
  const Bytes targets = cut.costs.stages.back().dataBytes;  // and its own inputs
  cut.costs = costs.costTable(cut.partition, placement, 1);
  cut.costs.stages.back().dataBytes = targets;
}

void addSums(ReplicaCuts& cuts, const ReplicaSums& sums) {
  const std::size_t count = cuts.replicas.size();
  for (const SummedParameters& together : cuts.summed) {
    const Ns time = sums.time(together.stages, together.bytes);
    for (std::size_t d = 0; d < count; ++d) cuts.replicas[d].costs.stages[together.stages[d].index()].reduce += time;
  }
  for (const SharedParameter& shared : cuts.replicas.front().partition.shared) {
    Ns slowest = 0;  // its holders' rings are at the same time
    for (const Stage stage : shared.stages) slowest = std::max(slowest, sums.time(std::vector(count, stage), shared.bytes));
    for (ReplicaCut& cut : cuts.replicas) cut.costs.reduceTime += slowest;
  }
}

CostTable withOptimizer(CostTable costs, const PlanRequest& request, const Placement& placement) {
  addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, placement));
  return costs;
}

}  // namespace

std::vector<double> microbatchScale(const PlanRequest& request, int replica) {
  if (request.batch == 0) return {};
  const auto sizes = microbatchSizes(request.batch, request.replicas * request.microbatches);
  std::vector<double> scale;
  for (int m = 0; m < request.microbatches; ++m)
    scale.push_back(static_cast<double>(sizes[static_cast<std::size_t>(replica * request.microbatches + m)]) /
                    static_cast<double>(request.microbatch));
  if (std::ranges::all_of(scale, [](double s) { return s == 1; })) scale.clear();
  return scale;
}

OwnPipeline pipelineOf(const PlanRequest& request, const Profile& profile, int replica) {
  OwnPipeline own{request, profile};
  own.profile.topology = topologyOf(profile.topology, ranksOf(request, replica));
  if (!request.replicaBegins.empty()) own.request.begins = request.replicaBegins.at(static_cast<std::size_t>(replica));
  own.request.replicaBegins.clear();
  own.request.replicas = 1;
  own.request.batch = 0;
  return own;
}

OwnPipeline shownPipeline(const PlanRequest& request, const Profile& profile) {
  const auto& all = request.replicaBegins;
  if (all.empty()) return {request, profile};
  const auto shown = std::ranges::find(all, request.begins);
  return pipelineOf(request, profile, shown == all.end() ? 0 : static_cast<int>(shown - all.begin()));
}

Answer<Priced> tryPriceReplicas(const PlanRequest& request, ModelCosts& model, CompiledRows& compiled) {
  const ModelGraph& graph = model.graph();
  const Schedule& rows = compiled.rows();
  if (auto no = obstacle(request, model.profile(), rows)) return *std::move(no);
  Priced priced;
  ReplicaCuts cuts;
  for (int d = 0; d < request.replicas; ++d) {
    const OwnPipeline own = pipelineOf(request, model.profile(), d);
    ModelCosts costs(graph, own.profile, request.microbatch);
    Answer<Priced> one = tryPrice(own.request, costs, compiled);
    if (!one) return Impossible{fmt::format("Replica {}: {}", d, one.refusal().why)};
    if (d == 0) {
      priced.sharing = one->sharing;
    } else if (!isSharedAlike(cuts.replicas.front().partition, one->partition)) {
      return Impossible{fmt::format(
          "Replica {} shares parameters between other stages than replica 0 does, and their gradients could not be summed; use the same "
          "splits for all replicas.",
          d)};
    }
    for (std::size_t i = 0; i < priced.sharing.size(); ++i) {  // the first replica's choice, unless another has less room
      if (one->sharing[i].sharing == Sharing::Transmit && priced.sharing[i].sharing != Sharing::Transmit)
        priced.sharing[i] = one->sharing[i];
    }
    cuts.replicas.push_back({std::move(one->partition), {}, std::move(one->costs)});
  }
  for (int d = 0; d < request.replicas; ++d) {
    ReplicaCut& cut = cuts.replicas[static_cast<std::size_t>(d)];
    shareAlike(cut, priced.sharing, pipelineOf(request, model.profile(), d), graph, rows.placement);
    cut.costs.microbatchScale = microbatchScale(request, d);
  }
  cuts.summed = summedParameters(graph, cuts.replicas);
  addSums(cuts, {model.profile().topology, request, rows.placement});
  Ns longest = -1;
  for (std::size_t d = 0; d < cuts.replicas.size(); ++d) {
    requireSummable(cuts.replicas[d].costs, shapeOf(rows));
    const Ns step = metricsOf(simulate(rows, withOptimizer(cuts.replicas[d].costs, request, rows.placement))).step;
    if (step > longest) cuts.shown = static_cast<int>(d);
    longest = std::max(longest, step);
  }
  const ReplicaCut& shown = cuts.replicas[static_cast<std::size_t>(cuts.shown)];
  priced.partition = shown.partition;
  priced.costs = shown.costs;
  priced.cuts = std::move(cuts);
  return priced;
}

std::vector<SummedParameters> summedParameters(const ModelGraph& graph, const std::vector<ReplicaCut>& cuts) {
  std::vector<std::vector<Stage>> stagesOf(graph.parameters.size());
  for (const ReplicaCut& cut : cuts) {
    for (std::size_t s = 0; s < cut.partition.stages.size(); ++s) {
      for (const std::size_t parameter : cut.partition.stages[s].parameters) {
        const StateTensor& state = graph.parameters[parameter];
        if (isTrained(*graph.value(state.value).tensor) && !isShared(cut.partition, state)) stagesOf[parameter].emplace_back(s);
      }
    }
  }
  std::vector<SummedParameters> groups;
  for (std::size_t p = 0; p < stagesOf.size(); ++p) {
    if (stagesOf[p].empty()) continue;
    auto group = std::ranges::find(groups, stagesOf[p], &SummedParameters::stages);
    if (group == groups.end()) group = groups.insert(groups.end(), {stagesOf[p], 0});
    group->bytes += bytesOf(*graph.value(graph.parameters[p].value).tensor, {});
  }
  return groups;
}

std::optional<int> replicaAboveLimit(const PlanRequest& request, const Profile& profile, const Schedule& rows, const ReplicaCuts& cuts) {
  for (int d = 0; d < request.replicas; ++d) {
    const OwnPipeline own = pipelineOf(request, profile, d);
    const CostTable costs = withOptimizer(cuts.replicas[static_cast<std::size_t>(d)].costs, request, rows.placement);
    const std::vector<Bytes> limits = memoryLimits(own.request, own.profile, rows.rows.size());
    if (excessOf(compile(rows, costs).peakBytes, limits) > 0) return d;
  }
  return std::nullopt;
}

}  // namespace pw
