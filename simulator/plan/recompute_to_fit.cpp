#include "simulator/plan/recompute_to_fit.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "simulator/partition/model_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/step/compiled_rows.h"

namespace pw {
namespace {

NodeRange wholeOf(const StageSpec& stage) { return {stage.begin, stage.end}; }

}  // namespace

bool recomputeToFit(const PlanSetting& setting, Partition& partition, const std::vector<Bytes>& limits) {
  const std::vector<InPlaceChange> changes = setting.model != nullptr ? setting.model->changes() : changesInPlace(setting.graph);
  for (StageSpec& stage : partition.stages) stage.checkpoints.clear();
  CostTable costs = costsOf(setting, partition);
  Partition all = partition;
  for (StageSpec& stage : all.stages) stage.checkpoints = {wholeOf(stage)};
  const std::vector<StageCost> again = costsOf(setting, all).stages;
  std::vector<std::pair<double, Stage>> candidates;  // most saved for its time first
  for (std::size_t s = 0; s < again.size(); ++s) {
    const StageCost& kept = costs.stages[s];
    const Bytes saved = kept.activationBytes - again[s].activationBytes;
    if (saved <= 0 || obstacleToRecompute(setting.graph, wholeOf(partition.stages[s]), changes)) continue;
    candidates.emplace_back(-static_cast<double>(saved) / static_cast<double>(std::max<Ns>(1, kept.forward)), Stage(s));
  }
  std::sort(candidates.begin(), candidates.end());
  std::optional<CompiledRows> own;
  if (setting.compiled == nullptr) own.emplace(setting.schedule);
  CompiledRows& compiled = own ? *own : *setting.compiled;
  const Placement& placement = setting.schedule.placement;
  std::vector<Bytes> peaks = compiled.peaks(costs);
  while (true) {
    std::size_t over = 0;
    while (over < peaks.size() && (over >= limits.size() || excessOf(peaks[over], limits[over]) == 0)) ++over;
    if (over == peaks.size()) return true;
    const Rank rank(over);
    const auto chosen = std::find_if(candidates.begin(), candidates.end(), [&](const auto& c) { return placement.holds(rank, c.second); });
    if (chosen == candidates.end()) return false;
    const Stage stage = chosen->second;
    partition.stages[stage.index()].checkpoints = {wholeOf(partition.stages[stage.index()])};
    costs.stages[stage.index()] = again[stage.index()];  // nothing else depends on what it recomputes
    candidates.erase(chosen);
    std::vector<Rank> holders;
    for (std::size_t r = 0; r < peaks.size(); ++r) {
      if (placement.holds(Rank(r), stage)) holders.emplace_back(r);
    }
    compiled.updatePeaks(costs, holders, peaks);
  }
}

}  // namespace pw
