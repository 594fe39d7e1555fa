#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "simulator/plan/plan.h"
#include "simulator/plan/stage_costs.h"
#include "simulator/plan/stage_fold.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

/// The ranks of a pipeline that hold one of these stages.
std::set<Rank> ranksOf(const std::vector<Stage>& stages, const Placement& placement) {
  std::set<Rank> ranks;
  for (const Stage s : stages) {
    ranks.insert(placement.rankOfStage.at(s.index()));
    if (placement.bidirectional()) ranks.insert(placement.mirrorOfStage.at(s.index()));
  }
  return ranks;
}

void addMessages(const Partition& partition, const Profile& profile, const Placement& placement, CostTable& table) {
  std::map<std::pair<Stage, Stage>, std::pair<Bytes, Bytes>> bytes;  // forward and backward
  for (const Transfer& t : partition.transfers) {
    auto& [forward, backward] = bytes[{t.from, t.to}];
    forward += t.bytes;
    if (t.gradient) backward += t.bytes;
  }
  for (const auto& [ends, size] : bytes) {
    const bool local = placement.rankOfStage.at(ends.first.index()) == placement.rankOfStage.at(ends.second.index());
    const auto add = [&](Stage from, Stage to, bool backward, Bytes n) {
      table.messages.push_back({from, to, backward, n, local ? 0 : profile.link.latency, local ? 0 : transferTime(profile.link, n)});
    };
    add(ends.first, ends.second, false, size.first);
    if (size.second > 0) add(ends.second, ends.first, true, size.second);
  }
}

/// Of a layer table: a message each way between neighbouring stages, in the sender's time where it gives one. Its bytes are in no buffer of
/// ours: the activations of the table say what is held.
void addLayerMessages(const Partition& partition, const Profile& profile, const Placement& placement, CostTable& table) {
  for (const Transfer& t : partition.transfers) {
    const Ns sent = profile.sent.at(partition.stages[t.to.index()].begin.index() - 1);
    const bool local = placement.rankOfStage.at(t.from.index()) == placement.rankOfStage.at(t.to.index());
    const Ns latency = local ? 0 : sent < 0 ? profile.link.latency : sent;
    const Ns transfer = local || sent >= 0 ? 0 : transferTime(profile.link, t.bytes);
    table.messages.push_back({t.from, t.to, false, 0, latency, transfer});
    table.messages.push_back({t.to, t.from, true, 0, latency, transfer});
  }
}

/// Reduce-scatter and all-gather in a ring (Patarasuk and Yuan, 2009): each of 2 (D − 1) rounds passes on a D-th of the bytes.
Ns ringTime(const LinkSpec& link, Bytes bytes, std::int64_t holders) {
  return holders < 2 || bytes == 0 ? 0 : 2 * (holders - 1) * link.latency + transferTime(link, 2 * (holders - 1) * bytes / holders);
}

void addReductions(const Partition& partition, const Profile& profile, const Placement& placement, int replicas, CostTable& table) {
  std::vector<Bytes> own;
  for (const StageCost& stage : table.stages) own.push_back(stage.updatedBytes);  // whose gradients are summed, before one of several owns
  double reduceTime = 0;
  for (const SharedParameter& shared : partition.shared) {
    const auto ranks = static_cast<std::int64_t>(ranksOf(shared.stages, placement).size());
    if (shared.sharing == Sharing::Transmit) {
      for (const Stage s : shared.stages) table.stages[s.index()].updatedBytes -= s == shared.stages.front() ? 0 : shared.bytes;
    }
    if (ranks < 2) continue;
    const Ns exchange = profile.link.latency + (ranks - 1) * transferTime(profile.link, shared.bytes);
    reduceTime += (shared.sharing == Sharing::Transmit ? 2.0 : 1.0) * static_cast<double>(exchange) +
                  static_cast<double>(ringTime(profile.link, shared.bytes, replicas));
    for (const Stage s : shared.stages) own[s.index()] -= shared.bytes;
  }
  table.reduceTime = nsOf(reduceTime, "summing the gradients of shared parameters");
  for (std::size_t s = 0; s < own.size(); ++s) {
    const auto holders = static_cast<std::int64_t>(ranksOf({Stage(s)}, placement).size()) * replicas;
    table.stages[s].reduce = ringTime(profile.link, std::max<Bytes>(0, own[s]), holders);
    table.stages[s].optimizer =
        nsOf(std::floor(static_cast<double>(table.stages[s].updatedBytes) * profile.optimizerNsPerByte), "the optimizer step");
  }
}

}  // namespace

CostTable assembleCosts(const std::vector<std::shared_ptr<const FoldedStage>>& stages, const Partition& partition, const Profile& profile,
                        const Placement& placement, int replicas) {
  std::vector<Bytes> received, gradientsIn(stages.size(), 0);
  for (const auto& stage : stages) received.push_back(stage->cost.dataBytes);
  for (const Transfer& t : partition.transfers) {
    if (placement.rankOfStage.at(t.from.index()) != placement.rankOfStage.at(t.to.index())) received[t.to.index()] += t.bytes;
    if (t.gradient) gradientsIn[t.from.index()] += t.bytes;
  }
  CostTable table;
  for (std::size_t s = 0; s < stages.size(); ++s) table.stages.push_back(stages[s]->with(received[s], gradientsIn[s]));
  profile.sent.empty() ? addMessages(partition, profile, placement, table) : addLayerMessages(partition, profile, placement, table);
  addReductions(partition, profile, placement, replicas, table);
  return table;
}

CostTable costTable(const ModelGraph& graph, const Partition& partition, const Profile& profile, const Placement& placement, int replicas) {
  const StageFolds folds(graph, profile);
  std::vector<std::shared_ptr<const FoldedStage>> stages;
  for (const StageSpec& spec : partition.stages) stages.push_back(std::make_shared<const FoldedStage>(folds.fold(spec)));
  return assembleCosts(stages, partition, profile, placement, replicas);
}

void addOptimizerState(CostTable& costs, int copies, int shards) {
  for (StageCost& stage : costs.stages) {
    stage.optimizerBytes = copies * stage.updatedBytes / shards;
    stage.optimizer = stage.optimizer * (3 + 2 * copies) / 3 / shards;
  }
}

}  // namespace pw
