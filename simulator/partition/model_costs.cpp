#include "simulator/partition/model_costs.h"

#include "simulator/model/graph_facts.h"
#include "simulator/model/state_changes.h"

namespace pw {
namespace {

/// The entry of a key, made outside the lock where there is none; of two made at once the first stays.
template <class Map, class Make>
typename Map::mapped_type keptOr(std::mutex& mutex, Map& map, const typename Map::key_type& key, Make make) {
  {
    const std::lock_guard lock(mutex);
    const auto found = map.find(key);
    if (found != map.end()) return found->second;
  }
  auto made = make();
  const std::lock_guard lock(mutex);
  return map.emplace(key, std::move(made)).first->second;
}

}  // namespace

ModelCosts::ModelCosts(const ModelGraph& graph, const Profile& profile, std::int64_t microbatch)
    : graph_(graph),
      profile_(profile),
      changes_(changesInPlace(graph)),
      changedState_(isLayerChain(graph) ? nullptr : firstChangedState(graph)),
      changedByInputs_(isLayerChain(graph) ? nullptr : parameterChangedByInputs(graph)),
      cutter_(graph, bindBatch(graph, microbatch), &profile) {
  folds_.try_emplace(&profile, graph, profile);
  for (const RankSpec& rank : profile.topology.ranks) {
    if (rank.own.costs) folds_.try_emplace(rank.own.costs.get(), graph, *rank.own.costs);
  }
}

Answer<std::shared_ptr<const StageCut>> ModelCosts::cutOf(const NodeRange& range, Stage number) {
  const std::pair key(range.begin, range.end);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = cuts_.find(key); found != cuts_.end()) return found->second;
  }
  Answer<StageCut> cut = cutter_.stage(range, number);
  if (!cut) return cut.refusal();  // not kept: it names the stage's number
  const std::lock_guard lock(mutex_);
  return cuts_.emplace(key, std::make_shared<const StageCut>(*std::move(cut))).first->second;  // of two made at once the first stays
}

std::shared_ptr<const FoldedStage> ModelCosts::foldOf(const StageSpec& stage, const Profile& profile) {
  const bool whole = stage.checkpoints == std::vector<NodeRange>{{stage.begin, stage.end}};
  const auto make = [&] { return std::make_shared<const FoldedStage>(folds_.at(&profile).fold(stage)); };
  if (!whole && !stage.checkpoints.empty()) return make();
  return keptOr(mutex_, folded_, {stage.begin, stage.end, whole, &profile}, make);
}

Answer<Partition> ModelCosts::cut(const std::vector<NodeId>& begins) {
  if (auto no = cutter_.obstacle(begins)) return *std::move(no);
  std::vector<std::shared_ptr<const StageCut>> stages;
  for (const NodeRange& range : rangesOf(graph_, begins)) {
    const auto cut = cutOf(range, Stage(stages.size()));
    if (!cut) return cut.refusal();
    stages.push_back(*cut);
  }
  return cutter_.join(stages);
}

CostTable ModelCosts::costTable(const Partition& partition, const Placement& placement, int replicas, std::optional<int> only) {
  std::vector<std::shared_ptr<const FoldedStage>> stages;
  for (const StageSpec& stage : partition.stages) stages.push_back(foldOf(stage, profile_));
  return assembleCosts(
      stages, partition, profile_, placement, replicas, [&](const StageSpec& stage, const Profile& own) { return foldOf(stage, own); },
      only);
}

}  // namespace pw
