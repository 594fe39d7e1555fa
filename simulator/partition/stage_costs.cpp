#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/partition/stage_fold.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

/// Ranks of a pipeline that has this placement.
int ranksIn(const Placement& placement) {
  Rank last(0);
  for (const Rank rank : placement.rankOfStage) last = std::max(last, rank);
  for (const Rank rank : placement.mirrorOfStage) last = std::max(last, rank);
  return last.value + 1;
}

Ns optimizerTime(Bytes updated, const Profile& profile) {
  return nsOf(std::floor(static_cast<double>(updated) * profile.optimizerNsPerByte), "the optimizer step");
}

/// Why a message between two stages of a bidirectional placement has no one time: it differs between the two pairs of ranks.
std::optional<Impossible> differenceOfWays(const PipelineTopology& topology, const Placement& placement, Stage from, Stage to,
                                           Bytes bytes) {
  const std::pair down(placement.rankOfStage[from.index()], placement.rankOfStage[to.index()]);
  const std::pair up(placement.mirrorOfStage[from.index()], placement.mirrorOfStage[to.index()]);
  if (topology.message(down.first, down.second, bytes) == topology.message(up.first, up.second, bytes)) return std::nullopt;
  return Impossible{
      fmt::format("Between stages {} and {}, a bidirectional schedule uses the link of ranks {} and {} and that of ranks {} and {}, which "
                  "differ, and that is not predicted; order the ranks so that both directions meet the same links, or use a schedule "
                  "that keeps each stage on one rank.",
                  from.value, to.value, down.first.value, down.second.value, up.first.value, up.second.value)};
}

/// Puts the costs of stages together for the ranks that they are on.
class Assembly {
 public:
  Assembly(const Partition& partition, const Profile& profile, const Placement& placement, int replicas, std::optional<int> only,
           CostTable& table)
      : partition_(partition),
        profile_(profile),
        placement_(placement),
        replicas_(replicas),
        only_(only),
        topology_(profile.topology, {ranksIn(placement)}, replicas),
        counted_(profile.topology, {ranksIn(placement)}, replicas, only),
        table_(table) {
    if (const auto no = obstacleToPlace(profile, placement, replicas)) refuse(*no);
  }

  void scaleBySpeed(const FoldWith& foldWith);
  void addMessages();
  void addLayerMessages();
  void addReductions();
  void addSendOverheads() { addTimeOfSends(table_, placement_, profile_.sendOverhead); }

 private:
  /// Between two stages on different ranks. Throws UsageError where the two ways of a bidirectional placement differ.
  [[nodiscard]] PipelineTopology::MessageTime message(Stage from, Stage to, Bytes bytes) const {
    if (placement_.bidirectional()) {
      if (const auto no = differenceOfWays(topology_, placement_, from, to, bytes)) refuse(*no);
    }
    return counted_.message(placement_.rankOfStage[from.index()], placement_.rankOfStage[to.index()], bytes);
  }
  [[nodiscard]] bool isLocal(const Transfer& t) const {
    return placement_.rankOfStage.at(t.from.index()) == placement_.rankOfStage.at(t.to.index());
  }

  const Partition& partition_;
  const Profile& profile_;
  const Placement& placement_;
  int replicas_;
  std::optional<int> only_;
  PipelineTopology topology_, counted_;  ///< of all replicas, and of `only_` where there is one
  CostTable& table_;
};

/// Times of an action on the slowest of the ranks that do it.
void Assembly::scaleBySpeed(const FoldWith& foldWith) {
  const StageSpeeds speeds = stageSpeeds(profile_, placement_, replicas_, only_);
  constexpr std::array times{&StageCost::forward, &StageCost::backward, &StageCost::backwardInput, &StageCost::backwardWeight,
                             &StageCost::optimizer};
  for (std::size_t s = 0; s < speeds.size(); ++s) {
    if (speeds[s] == std::vector{RankSpeed{}}) continue;
    StageCost& cost = table_.stages[s];
    StageCost slowest;
    for (const RankSpeed& speed : speeds[s]) {
      StageCost there = cost;
      if (speed.costsOf >= 0) {
        const Profile& own = *profile_.topology.ranks.at(static_cast<std::size_t>(speed.costsOf)).own.costs;
        there = foldWith(partition_.stages[s], own)->cost;
        there.optimizer += optimizerTime(cost.updatedBytes, own);
      }
      for (const auto time : times)
        slowest.*time = std::max(slowest.*time, nsOf(static_cast<double>(there.*time) * speed.slowness, "a stage on a slow rank"));
    }
    for (const auto time : times) cost.*time = slowest.*time;
  }
}

void Assembly::addMessages() {
  std::map<std::pair<Stage, Stage>, std::pair<Bytes, Bytes>> bytes;  // forward and backward
  for (const Transfer& t : partition_.transfers) {
    auto& [forward, backward] = bytes[{t.from, t.to}];
    forward += t.bytes;
    if (t.gradient) backward += t.bytes;
  }
  for (const auto& [ends, size] : bytes) {
    const bool local = placement_.rankOfStage.at(ends.first.index()) == placement_.rankOfStage.at(ends.second.index());
    const auto add = [&](Stage from, Stage to, bool backward, Bytes n) {
      const auto time = local ? PipelineTopology::MessageTime() : message(from, to, n);
      table_.messages.push_back({from, to, backward, n, time.latency, time.transfer});
    };
    add(ends.first, ends.second, false, size.first);
    if (size.second > 0) add(ends.second, ends.first, true, size.second);
  }
}

/// Of a layer table: a message each way between neighbouring stages, in the sender's time where it gives one. Its bytes are in no buffer of
/// ours: the activations of the table say what is held.
void Assembly::addLayerMessages() {
  for (const Transfer& t : partition_.transfers) {
    const Ns sent = profile_.sent.at(partition_.stages[t.to.index()].begin.index() - 1);
    PipelineTopology::MessageTime time;
    if (!isLocal(t)) time = sent >= 0 ? PipelineTopology::MessageTime{sent, 0} : message(t.from, t.to, t.bytes);
    table_.messages.push_back({t.from, t.to, false, 0, time.latency, time.transfer});
    table_.messages.push_back({t.to, t.from, true, 0, time.latency, time.transfer});
  }
}

void Assembly::addReductions() {
  std::vector<Bytes> own;
  for (const StageCost& stage : table_.stages) own.push_back(stage.updatedBytes);  // gradients that are summed, before one of several owns
  double reduceTime = 0;  // [ns], whole; no number of transfers of the longest kind overflows it
  for (const SharedParameter& shared : partition_.shared) {
    const std::vector<Rank> ranks = holdersOf(shared.stages, placement_);
    if (shared.sharing == Sharing::Transmit) {
      for (const Stage s : shared.stages) table_.stages[s.index()].updatedBytes -= s == shared.stages.front() ? 0 : shared.bytes;
    }
    if (ranks.size() < 2) continue;
    const Rank owner = placement_.rankOfStage.at(shared.stages.front().index());
    PipelineTopology::MessageTime slowest;
    for (const Rank rank : ranks) {
      const auto time = rank == owner ? slowest : topology_.message(owner, rank, shared.bytes);
      if (time.latency + time.transfer > slowest.latency + slowest.transfer) slowest = time;
    }
    const double exchange =
        static_cast<double>(slowest.latency) + static_cast<double>(ranks.size() - 1) * static_cast<double>(slowest.transfer);
    reduceTime += shared.sharing == Sharing::Transmit ? 2 * exchange : exchange;
    Ns slowestRing = 0;
    for (const Rank rank : ranks)
      slowestRing = std::max(slowestRing, ringTime(topology_.ringHop({rank}, shared.bytes / replicas_), shared.bytes, replicas_));
    reduceTime += static_cast<double>(slowestRing);
    for (const Stage s : shared.stages) own[s.index()] -= shared.bytes;
  }
  table_.reduceTime = nsOf(reduceTime, "summing the gradients of shared parameters");
  for (std::size_t s = 0; s < own.size(); ++s) {
    const std::vector<Rank> ranks = holdersOf({Stage(s)}, placement_);
    const auto holders = static_cast<std::int64_t>(ranks.size()) * replicas_;
    const Bytes bytes = std::max<Bytes>(0, own[s]);
    table_.stages[s].reduce = ringTime(topology_.ringHop(ranks, bytes / holders), bytes, holders);
    table_.stages[s].optimizer += optimizerTime(table_.stages[s].updatedBytes, profile_);
  }
}

}  // namespace

std::vector<Rank> holdersOf(const std::vector<Stage>& stages, const Placement& placement) {
  std::set<Rank> ranks;
  for (const Stage s : stages) {
    ranks.insert(placement.rankOfStage.at(s.index()));
    if (placement.bidirectional()) ranks.insert(placement.mirrorOfStage.at(s.index()));
  }
  return {ranks.begin(), ranks.end()};
}

std::optional<Impossible> lackOfRanks(const Profile& profile, int ranks) {
  const std::size_t listed = profile.topology.ranks.size();
  if (listed == 0 || static_cast<std::size_t>(ranks) <= listed) return std::nullopt;
  return Impossible{fmt::format("The cluster {} lists {} ranks, and the job has {}; use fewer ranks or replicas, or list the others.",
                                profile.machine.host, listed, ranks)};
}

std::optional<Impossible> obstacleToPlace(const Profile& profile, const Placement& placement, int replicas) {
  if (auto no = lackOfRanks(profile, ranksIn(placement) * replicas)) return no;
  if (!placement.bidirectional()) return std::nullopt;
  const PipelineTopology topology(profile.topology, {ranksIn(placement)}, replicas);
  constexpr Bytes kLarge{1'000'000'000};
  for (std::size_t s = 0; s + 1 < placement.stages() && profile.sent.empty(); ++s) {
    if (placement.rankOfStage[s] == placement.rankOfStage[s + 1]) continue;
    if (auto no = differenceOfWays(topology, placement, Stage(s), Stage(s + 1), kLarge)) return no;
  }
  for (std::size_t s = 0; s < placement.stages(); ++s) {
    const Rank down = placement.rankOfStage[s], up = placement.mirrorOfStage[s];
    if (topology.speeds(down) == topology.speeds(up)) continue;
    return Impossible{fmt::format(
        "Stage {} of a bidirectional schedule is on the ranks {} and {}, which differ in speed, and that is not predicted; use a "
        "schedule that keeps each stage on one rank.",
        s, down.value, up.value)};
  }
  return std::nullopt;
}

StageSpeeds stageSpeeds(const Profile& profile, const Placement& placement, int replicas, std::optional<int> only) {
  const Topology& topology = profile.topology;
  if (allAtFullSpeed(topology)) return {};
  if (const auto no = lackOfRanks(profile, ranksIn(placement) * replicas)) refuse(*no);
  const PipelineTopology pipeline(topology, {ranksIn(placement)}, replicas, only);
  StageSpeeds speeds;
  for (const Rank rank : placement.rankOfStage) speeds.push_back(pipeline.speeds(rank));
  return speeds;
}

int distinctReplicas(const Profile& profile, const Placement& placement, int replicas) {
  return PipelineTopology(profile.topology, {ranksIn(placement)}, replicas).distinct();
}

CostTable assembleCosts(const std::vector<std::shared_ptr<const FoldedStage>>& stages, const Partition& partition, const Profile& profile,
                        const Placement& placement, int replicas, const FoldWith& foldWith, std::optional<int> only) {
  std::vector<Bytes> received, gradientsIn(stages.size(), 0);
  for (const auto& stage : stages) received.push_back(stage->cost.dataBytes);
  std::set<ValueId> released;
  for (const Transfer& t : partition.transfers) {
    if (placement.rankOfStage.at(t.from.index()) != placement.rankOfStage.at(t.to.index())) {
      received[t.to.index()] += t.bytes;
    } else if (std::ranges::binary_search(stages[t.from.index()]->released, t.value) && released.insert(t.value).second) {
      received[t.from.index()] += t.bytes;  // the other stage holds it, from about here to about this backward
    }
    if (std::ranges::binary_search(stages[t.to.index()]->copied, t.value)) received[t.to.index()] += t.bytes;
    if (t.gradient) gradientsIn[t.from.index()] += t.bytes;
  }
  CostTable table;
  table.stages.reserve(stages.size());
  for (std::size_t s = 0; s < stages.size(); ++s) table.stages.push_back(stages[s]->with(received[s], gradientsIn[s]));
  for (const Transfer& t : partition.transfers) {
    const bool areNeighbours = t.from.index() + 1 == t.to.index() && !placement.bidirectional() &&
                               placement.rankOfStage.at(t.from.index()) == placement.rankOfStage.at(t.to.index());
    if (!areNeighbours) continue;
    StageCost& cost = table.stages[t.to.index()];
    const auto& held = stages[t.to.index()]->heldInputs;
    const auto input = std::ranges::lower_bound(held, t.value, {}, &std::pair<ValueId, Bytes>::first);
    if (input != held.end() && input->first == t.value) cost.sharedForWeight += std::min(input->second, heldForWeight(cost));
  }
  Assembly assembly(partition, profile, placement, replicas, only, table);
  profile.sent.empty() ? assembly.addMessages() : assembly.addLayerMessages();
  assembly.addReductions();
  assembly.scaleBySpeed(foldWith);
  assembly.addSendOverheads();
  return table;
}

CostTable costTable(const ModelGraph& graph, const Partition& partition, const Profile& profile, const Placement& placement, int replicas,
                    std::optional<int> only) {
  const StageFolds folds(graph, profile);
  std::vector<std::shared_ptr<const FoldedStage>> stages;
  for (const StageSpec& spec : partition.stages) stages.push_back(std::make_shared<const FoldedStage>(folds.fold(spec)));
  return assembleCosts(
      stages, partition, profile, placement, replicas,
      [&](const StageSpec& spec, const Profile& own) { return std::make_shared<const FoldedStage>(StageFolds(graph, own).fold(spec)); },
      only);
}

void addOptimizerState(CostTable& costs, int copies, int shards) {
  for (StageCost& stage : costs.stages) {
    stage.optimizerBytes = copies * stage.updatedBytes / shards;
    stage.optimizer = stage.optimizer * (3 + 2 * copies) / 3 / shards;
  }
}

}  // namespace pw
