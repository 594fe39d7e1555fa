#include "simulator/plan/recompute_to_fit.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "simulator/partition/model_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/step/compiled_rows.h"

namespace pw {
namespace {

NodeRange wholeOf(const StageSpec& stage) { return {stage.begin, stage.end}; }

/// Of a rank that is over its limit: which of its stages to recompute.
class RankChoice {
 public:
  /// `candidates`: the stages to choose from, those that save most for their time first. `again`: costs of stages that are recomputed.
  RankChoice(CostTable& costs, const std::vector<StageCost>& again, std::vector<Stage> candidates, std::function<bool()> fits)
      : costs_(costs), kept_(costs.stages), again_(again), candidates_(std::move(candidates)), fits_(std::move(fits)) {}

  struct Chosen {
    std::vector<Stage> stages;
    bool fit = false;
  };
  /// The stages, with whose costs the table is left; all where none of the choices tried fits. That none at all does not is known.
  [[nodiscard]] Chosen choose() {
    constexpr std::size_t kMostTried = 4;  // 15 choices
    if (candidates_.empty()) return {};
    return candidates_.size() <= kMostTried ? cheapest() : greedy();
  }

 private:
  [[nodiscard]] bool fitsWith(const std::vector<Stage>& chosen) {
    for (const Stage stage : candidates_) costs_.stages[stage.index()] = kept_[stage.index()];
    for (const Stage stage : chosen) costs_.stages[stage.index()] = again_[stage.index()];
    return fits_();
  }

  [[nodiscard]] Chosen cheapest() {
    std::vector<std::tuple<Ns, std::size_t, std::vector<Stage>>> choices;  // by time and number
    for (std::size_t mask = 1; mask < std::size_t{1} << candidates_.size(); ++mask) {
      Ns time = 0;
      std::vector<Stage> chosen;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if ((mask >> i & 1) == 0) continue;
        chosen.push_back(candidates_[i]);
        time += kept_[candidates_[i].index()].forward;
      }
      choices.emplace_back(time, chosen.size(), std::move(chosen));
    }
    std::ranges::sort(choices);
    for (auto& [time, count, chosen] : choices) {
      if (fitsWith(chosen)) return {std::move(chosen), true};
    }
    return {candidates_, fitsWith(candidates_)};
  }

  [[nodiscard]] Chosen greedy() {
    std::vector<Stage> chosen;
    for (const Stage stage : candidates_) {
      chosen.push_back(stage);
      if (fitsWith(chosen)) break;
    }
    // Some are no longer needed beside those after them; and as computing again takes memory, too, others once these are gone.
    for (bool dropped = fitsWith(chosen); dropped;) {
      dropped = false;
      for (std::size_t i = chosen.size(); i-- > 0;) {
        std::vector<Stage> fewer = chosen;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
        if (!fitsWith(fewer)) continue;
        chosen = std::move(fewer);
        dropped = true;
      }
    }
    const bool fit = fitsWith(chosen);
    return {std::move(chosen), fit};
  }

  CostTable& costs_;
  const std::vector<StageCost> kept_;
  const std::vector<StageCost>& again_;
  const std::vector<Stage> candidates_;
  const std::function<bool()> fits_;
};

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
  bool allFit = true;
  for (std::size_t r = 0; r < std::min(peaks.size(), limits.size()); ++r) {
    const auto fits = [&] {
      compiled.updatePeaks(costs, {Rank(r)}, peaks);
      return excessOf(peaks[r], limits[r]) == 0;
    };
    const auto isChosen = [&](std::size_t s) { return !partition.stages[s].checkpoints.empty() && placement.holds(Rank(r), Stage(s)); };
    bool changed = false;  // a stage of a bidirectional placement is on another rank, too
    for (std::size_t s = 0; s < partition.stages.size() && !changed && placement.bidirectional(); ++s) changed = isChosen(s);
    if (changed ? fits() : excessOf(peaks[r], limits[r]) == 0) continue;
    std::vector<Stage> stages;
    for (const auto& [gain, stage] : candidates) {
      if (placement.holds(Rank(r), stage) && partition.stages[stage.index()].checkpoints.empty()) stages.push_back(stage);
    }
    const RankChoice::Chosen chosen = RankChoice(costs, again, std::move(stages), fits).choose();
    for (const Stage stage : chosen.stages) partition.stages[stage.index()].checkpoints = {wholeOf(partition.stages[stage.index()])};
    allFit = chosen.fit && allFit;
  }
  return allFit;
}

}  // namespace pw
