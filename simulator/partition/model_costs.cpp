#include "simulator/partition/model_costs.h"

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
      cutter_(graph, bindBatch(graph, microbatch), &profile),
      folds_(graph, profile) {}

std::shared_ptr<const StageCut> ModelCosts::cutOf(const NodeRange& range, Stage number) {
  return keptOr(mutex_, cuts_, {range.begin, range.end}, [&] { return std::make_shared<const StageCut>(cutter_.stage(range, number)); });
}

std::shared_ptr<const FoldedStage> ModelCosts::foldOf(const StageSpec& stage) {
  const bool whole = stage.checkpoints == std::vector<NodeRange>{{stage.begin, stage.end}};
  const auto make = [&] { return std::make_shared<const FoldedStage>(folds_.fold(stage)); };
  if (!whole && !stage.checkpoints.empty()) return make();
  return keptOr(mutex_, folded_, {stage.begin, stage.end, whole}, make);
}

Partition ModelCosts::cut(const std::vector<NodeId>& begins) {
  cutter_.require(begins);
  std::vector<std::shared_ptr<const StageCut>> stages;
  for (const NodeRange& range : rangesOf(graph_, begins)) stages.push_back(cutOf(range, Stage(stages.size())));
  return cutter_.join(stages);
}

CostTable ModelCosts::costTable(const Partition& partition, const Placement& placement, int replicas) {
  std::vector<std::shared_ptr<const FoldedStage>> stages;
  for (const StageSpec& stage : partition.stages) stages.push_back(foldOf(stage));
  return assembleCosts(stages, partition, profile_, placement, replicas);
}

}  // namespace pw
