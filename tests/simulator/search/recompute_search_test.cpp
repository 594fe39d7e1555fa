// Splits and what is recomputed together, against all cuts and all choices of stages of random layer tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "schedules/generate.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/order/made.h"
#include "simulator/order/problem/least_memory.h"
#include "simulator/plan/made_order.h"
#include "simulator/search/fitted_splits.h"
#include "simulator/search/search.h"
#include "tests/support/all_splits.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

constexpr int kRanks = 2, kMicrobatches = 4;

/// Layers that keep little where they are recomputed.
LayerTable randomTable(std::mt19937_64& random, int layers) {
  LayerTable table{"random", 1, 0, 0, {}};
  for (int i = 0; i < layers; ++i) {
    Layer layer{"l" + std::to_string(i),
                draw<Ns>(random, 1, 200),
                draw<Ns>(random, 1, 200),
                draw<Ns>(random, 1, 200),
                draw<Bytes>(random, 0, 999),
                draw<Bytes>(random, 100, 999),
                0,
                0,
                Layer::kByLink,
                ""};
    layer.afterInput = layer.activations;
    layer.kept = draw<Bytes>(random, 0, layer.activations / 4);
    table.layers.push_back(layer);
  }
  return table;
}

SearchShape shapeOf(const ModelGraph& graph, const std::string& schedule, int stages) {
  SearchShape shape;
  shape.request.schedule = schedule;
  shape.request.ranks = kRanks;
  shape.request.chunks = stages / kRanks;
  shape.request.microbatches = kMicrobatches;
  shape.stages = stages;
  shape.profile = {std::make_shared<const Profile>(profileOf(graph)), false};
  shape.model = std::make_shared<ModelCosts>(graph, *shape.profile.profile, 1);
  return shape;
}

/// The layers of the stages in `mask`.
Recompute recomputed(const std::vector<NodeId>& begins, int layers, unsigned mask) {
  if (mask == 0) return RecomputeNone();
  std::vector<std::string> names;
  std::size_t stage = 0;
  for (int l = 0; l < layers; ++l) {
    while (stage < begins.size() && begins[stage].value <= l) ++stage;
    if ((mask >> stage & 1U) != 0) names.push_back("l" + std::to_string(l));
  }
  return parseRecompute(names);
}

TEST(RecomputeSearch, MovesSplitsWithWhatTheLimitDemands) {
  constexpr int kLayers = 7, kTables = 40;
  int limited = 0, optimal = 0;
  for (const auto& [schedule, stages] : {std::pair("1f1b", 2), std::pair("zbv", 4)}) {
    for (std::uint64_t seed = 1; seed <= kTables; ++seed) {
      SCOPED_TRACE(std::string(schedule) + " " + std::to_string(seed));
      std::mt19937_64 random(seed);
      const ModelGraph graph = chainOf(randomTable(random, kLayers), "/t.json");
      SearchShape shape = shapeOf(graph, schedule, stages);
      Bytes most = 0, least(std::numeric_limits<std::int64_t>::max());
      const std::vector<std::vector<NodeId>> cuts = allBegins(kLayers, stages);
      std::vector<Candidate> all;
      Evaluator evaluator(shape, std::make_shared<CandidateRows>(shape));
      for (const std::vector<NodeId>& begins : cuts) {
        for (unsigned mask = 0; mask < 1U << static_cast<unsigned>(stages); ++mask) {
          Answer<Candidate> candidate = evaluator.evaluate({SplitSource::Fit, begins}, recomputed(begins, kLayers, mask));
          if (!candidate) continue;  // two names of one stage that do not follow each other
          most = std::max(most, candidate->peak);
          least = std::min(least, candidate->peak);
          all.push_back(*std::move(candidate));
        }
      }
      const Bytes limit = least + (most - least) * draw(random, 5, 30) / 100;
      std::optional<Ns> best;
      for (const Candidate& candidate : all) {
        if (candidate.peak <= limit && (!best || candidate.step < *best)) best = candidate.step;
      }
      ASSERT_TRUE(best);
      SearchSpace space;
      space.base.ranks = kRanks;
      space.base.memoryLimit = limit;
      space.microbatches = {kMicrobatches};
      space.schedules = {schedule};
      space.chunks = {stages / kRanks};
      space.fixedMicrobatch = true;
      space.base.microbatch = 1;
      const Found found = searchPlans(
          graph, [profile = shape.profile](std::int64_t) { return profile; }, space);
      const Candidate& chosen = found.candidates.front();
      ASSERT_TRUE(chosen.fits());
      EXPECT_GE(chosen.step, *best);
      EXPECT_LE(chosen.step * 10, *best * 12);
      limited += std::holds_alternative<RecomputeAuto>(chosen.request.recompute) ? 1 : 0;
      optimal += chosen.step == *best ? 1 : 0;
    }
  }
  EXPECT_GT(limited, kTables / 2);
  EXPECT_GE(optimal, 2 * kTables * 95 / 100);
}

TEST(RecomputeSearch, FitsSplitsOnEachPlacementOfAMadeOrder) {
  constexpr int kLayers = 6, kStages = 4;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ModelGraph graph = chainOf(randomTable(random, kLayers), "/t.json");
    SearchShape shape = shapeOf(graph, std::string(kAutoSchedule), kStages);
    Bytes least(std::numeric_limits<std::int64_t>::max());
    for (const Placement& placement : orderPlacements({kRanks, kStages, kMicrobatches})) {
      Evaluator evaluator(shape, planRows(serialSchedule(placement, kRanks, kMicrobatches), 1));
      for (const std::vector<NodeId>& begins : allBegins(kLayers, kStages))
        least = std::min(least, evaluator.evaluate({SplitSource::Fit, begins}, RecomputeFull()).orThrow().peak);
    }
    shape.request.memoryLimit = least;
    shape.request.recompute = RecomputeFull();
    const Balancer balancer(graph, *shape.profile.profile);
    const std::vector<NodeId> balanced = balancer.begins(kStages, Balance::Time).orThrow();
    PlanRequest with = shape.request;
    with.begins = splitsForMadeOrder(shape, balancer, RecomputeFull(), balanced, {.seconds = 0.1});
    EXPECT_TRUE(makeOrder(with, *shape.model, kStages, {.seconds = 0.01}).certificate) << "one microbatch after the other fits";
  }
}

}  // namespace
}  // namespace pw::test
