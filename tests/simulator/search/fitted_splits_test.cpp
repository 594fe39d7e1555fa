// Splits that fit memory limits, against all cuts of random layer tables.
#include "simulator/search/fitted_splits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <vector>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/partition/balancer.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/report/metrics.h"
#include "tests/support/all_splits.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

LayerTable randomTable(std::mt19937_64& random, int layers) {
  LayerTable table{"random", 1, 0, 0, {}};
  for (int i = 0; i < layers; ++i) {
    Layer layer{"layer" + std::to_string(i),
                draw<Ns>(random, 1, 9),
                draw<Ns>(random, 1, 9),
                draw<Ns>(random, 1, 9),
                draw<Bytes>(random, 0, 60),
                draw<Bytes>(random, 1, 20),
                0,
                draw<Bytes>(random, 0, 9),
                Layer::kByLink,
                ""};
    layer.afterInput = layer.activations;
    table.layers.push_back(layer);
  }
  return table;
}

TEST(BeginsWithin, IsTheShortestBottleneckOfAllCutsWithRoom) {
  int none = 0, moved = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const LayerTable table = randomTable(random, 9);
    const ModelGraph graph = chainOf(table, "/t.json");
    const Profile profile = profileOf(graph);
    std::vector<StageRoom> rooms;
    rooms.reserve(4);
    for (int s = 0; s < 4; ++s)
      rooms.push_back({draw(random, 0, 3) == 0 ? 0 : draw<Bytes>(random, 60, 400), static_cast<int>(draw(random, 1, 3)),
                       static_cast<int>(draw(random, 1, 4))});
    double least = -1;
    for (std::vector<NodeId> begins : allBegins(9, 4)) {
      begins.insert(begins.begin(), NodeId(0));
      begins.push_back(NodeId(9));
      double bottleneck = 0;
      bool fits = true;
      for (std::size_t s = 0; s < 4; ++s) {
        double time = 0;
        Bytes parameters = 0, saved = 0;
        for (std::size_t n = begins[s].index(); n < begins[s + 1].index(); ++n) {
          const Layer& layer = table.layers[n];
          time += static_cast<double>(layer.forward + layer.input + layer.weight);
          parameters += layer.parameters;
          saved += layer.activations;
        }
        bottleneck = std::max(bottleneck, time);
        fits = fits && (rooms[s].bytes == 0 || rooms[s].parameters * parameters + rooms[s].microbatches * saved <= rooms[s].bytes);
      }
      if (fits && (least < 0 || bottleneck < least)) least = bottleneck;
    }
    const Balancer balancer(graph, profile);
    const auto found = balancer.beginsWithin(rooms);
    ASSERT_EQ(found.has_value(), least >= 0) << "seed " << seed;
    none += found ? 0 : 1;
    if (!found) continue;
    moved += *found == balancer.begins(4, Balance::Time).orThrow() ? 0 : 1;
    double bottleneck = 0;
    for (std::size_t s = 0; s < 4; ++s) {
      const std::size_t begin = s == 0 ? 0 : (*found)[s - 1].index(), end = s == 3 ? 9 : (*found)[s].index();
      double time = 0;
      for (std::size_t n = begin; n < end; ++n)
        time += static_cast<double>(table.layers[n].forward + table.layers[n].input + table.layers[n].weight);
      bottleneck = std::max(bottleneck, time);
    }
    EXPECT_LE(bottleneck, least * 1.01) << "seed " << seed;
  }
  EXPECT_GT(none, 20);
  EXPECT_GT(moved, 50);
}

std::vector<NodeId> fitted(const PlanRequest& request, const ModelGraph& graph, const Profile& profile, const Schedule& rows,
                           const std::vector<NodeId>& balanced) {
  SearchShape shape;
  shape.request = request;
  shape.stages = static_cast<int>(rows.placement.stages());
  shape.profile = {std::make_shared<const Profile>(profile), false};
  shape.model = std::make_shared<ModelCosts>(graph, *shape.profile.profile, request.microbatch);
  Evaluator evaluator(shape, rows);
  return splitsToFit(shape, Balancer(graph, profile), evaluator, RecomputeNone(), balanced);
}

/// Where there are few cuts, those that were found to fit are moved to the fastest of all that do.
TEST(SplitsToFit, AreTheFastestOfAllThatFit) {
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ModelGraph graph = chainOf(randomTable(random, 8), "/t.json");
    const Profile profile = profileOf(graph);
    PlanRequest request;
    request.ranks = 3;
    request.microbatches = 4;
    const char* const family = std::array{"1f1b", "gpipe", "zb-h1"}[seed % 3];
    const Schedule rows = planRows(generate(family, {3, 3, 4}), 1);
    const std::vector<NodeId> balanced = balancedSplits(graph, profile, 3, Balance::Time);
    const auto resultOf = [&](const std::vector<NodeId>& begins) {
      ModelCosts model(graph, profile, request.microbatch);
      PlanRequest with = request;
      with.begins = begins;
      CompiledRows compiled(rows);
      const Priced priced = price(with, model, compiled);
      const Metrics metrics = metricsOf(simulate(rows, priced.costs));
      Bytes peak = 0;
      for (const RankMetrics& rank : metrics.ranks) peak = std::max(peak, rank.peakBytes);
      return std::pair(peak, metrics.step);
    };
    request.memoryLimit = resultOf(balanced).first * draw(random, 60, 99) / 100;
    const std::vector<NodeId> chosen = fitted(request, graph, profile, rows, balanced);
    if (chosen == balanced) continue;
    const auto [peak, step] = resultOf(chosen);
    EXPECT_LE(peak, request.memoryLimit);
    for (const std::vector<NodeId>& begins : allBegins(8, 3)) {
      const auto [needed, time] = resultOf(begins);
      EXPECT_TRUE(needed > request.memoryLimit || step <= time) << step.value << " is longer than " << time.value;
    }
    ++checked;
  }
  EXPECT_GT(checked, 60);
}

/// Under a memory limit an order made for the costs, on the splits chosen for it, ends no later than any family on the splits that make
/// that family fit; and mostly as early as an order for the best of all cuts.
TEST(SplitsForMadeOrder, EndNoLaterThanFamiliesOnTheirs) {
  constexpr double kSeconds = 0.05;
  int families = 0, moved = 0, best = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ModelGraph graph = chainOf(randomTable(random, 9), "/t.json");
    const Profile profile = profileOf(graph);
    SearchShape shape;
    shape.request.ranks = 3;
    shape.request.microbatches = 5;
    shape.stages = 3;
    shape.profile = {std::make_shared<const Profile>(profile), false};
    shape.model = std::make_shared<ModelCosts>(graph, *shape.profile.profile, shape.request.microbatch);
    const Balancer balancer(graph, profile);
    const std::vector<NodeId> balanced = balancer.begins(3, Balance::Time).orThrow();
    const auto rowsOf = [](const char* family) { return planRows(generate(family, {3, 3, 5}), 1); };
    {
      Evaluator evaluator(shape, rowsOf("1f1b"));
      shape.request.memoryLimit =
          evaluator.evaluate({SplitSource::Time, balanced}, RecomputeNone()).orThrow().peak * draw(random, 70, 110) / 100;
    }
    shape.request.schedule = kAutoSchedule;
    const auto madeFor = [&](const std::vector<NodeId>& begins) {
      PlanRequest with = shape.request;
      with.begins = begins;
      const MadeOrder made = makeOrder(with, *shape.model, 3, {.seconds = kSeconds});
      return made.certificate ? std::optional(made.certificate->time) : std::nullopt;
    };
    const std::vector<NodeId> chosen = splitsForMadeOrder(shape, balancer, RecomputeNone(), balanced, {.seconds = 10 * kSeconds});
    const std::optional<Ns> ours = madeFor(chosen);
    moved += chosen != balanced ? 1 : 0;
    for (const char* family : {"1f1b", "gpipe", "zb-h1", "zb-h2"}) {
      Evaluator evaluator(shape, rowsOf(family));
      const Candidate candidate =
          evaluator.evaluate({SplitSource::Fit, splitsToFit(shape, balancer, evaluator, RecomputeNone(), balanced)}, RecomputeNone())
              .orThrow();
      if (!candidate.fits()) continue;
      ++families;
      ASSERT_TRUE(ours) << family;
      EXPECT_LE(*ours, candidate.makespan) << family;
    }
    std::optional<Ns> least;
    for (const std::vector<NodeId>& begins : allBegins(9, 3)) {
      const std::optional<Ns> time = madeFor(begins);
      if (time && (!least || *time < *least)) least = time;
    }
    if (!least) continue;
    ++all;
    best += ours && *ours == *least ? 1 : 0;
  }
  EXPECT_GT(families, 60);
  EXPECT_GT(moved, 10);
  EXPECT_GT(best, all / 2) << "of " << all;
  RecordProperty("best", best);
}

TEST(SplitsToFit, FitWheneverSomeCutDoes) {
  int moved = 0, hopeless = 0;
  for (std::uint64_t seed = 1; seed <= 210; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ModelGraph graph = chainOf(randomTable(random, 9), "/t.json");
    const Profile profile = profileOf(graph);
    struct Family {
      const char* name;
      int ranks, stages;
    };
    constexpr std::array<Family, 7> kFamilies{{{"1f1b", 3, 3},
                                               {"gpipe", 3, 3},
                                               {"zb-h1", 3, 3},
                                               {"zb-h2", 3, 3},
                                               {"interleaved-1f1b", 2, 4},
                                               {"zbv", 2, 4},
                                               {"looped-bfs", 2, 4}}};
    const Family& family = kFamilies[seed % 7];
    PlanRequest request;
    request.schedule = family.name;
    request.ranks = family.ranks;
    request.microbatches = 6;
    const Schedule rows = planRows(generate(request.schedule, {family.ranks, family.stages, 6}), 1);
    struct Cut {
      std::vector<NodeId> begins;
      Bytes peak = 0;
    };
    std::vector<Cut> cuts;
    for (const std::vector<NodeId>& begins : allBegins(9, family.stages)) {
      request.begins = begins;
      const Metrics metrics = metricsOf(simulate(rows, price(request, graph, profile, rows).costs));
      Cut cut{begins, 0};
      for (const RankMetrics& rank : metrics.ranks) cut.peak = std::max(cut.peak, rank.peakBytes);
      cuts.push_back(cut);
    }
    const std::vector<NodeId> balanced = balancedSplits(graph, profile, family.stages, Balance::Time);
    std::ranges::sort(cuts, {}, &Cut::peak);
    request.memoryLimit = seed % 5 == 0 ? cuts.front().peak - 1 : cuts[seed / 7 % 7].peak;
    const std::vector<NodeId> found = fitted(request, graph, profile, rows, balanced);
    std::erase_if(cuts, [&](const Cut& cut) { return cut.peak > request.memoryLimit; });
    const bool fits = std::ranges::find(cuts, balanced, &Cut::begins) != cuts.end();
    if (cuts.empty() || fits) {
      EXPECT_EQ(found, balanced);
      hopeless += cuts.empty() ? 1 : 0;
      continue;
    }
    ++moved;
    const auto mine = std::ranges::find(cuts, found, &Cut::begins);
    ASSERT_NE(mine, cuts.end()) << "fits";
  }
  EXPECT_GT(moved, 100);
  EXPECT_EQ(hopeless, 42);
}

TEST(SplitsToFit, FindSomethingThatFitsAmongManyCuts) {
  int moved = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ModelGraph graph = chainOf(randomTable(random, 60), "/t.json");
    const Profile profile = profileOf(graph);
    PlanRequest request;
    request.ranks = 6;
    request.microbatches = 12;
    const Schedule rows = planRows(generate("1f1b", {6, 6, 12}), 1);
    std::vector<StageRoom> rooms;
    rooms.reserve(6);
    for (int s = 0; s < 6; ++s) rooms.push_back({1, 1, 6 - s});
    const Balancer balancer(graph, profile);
    Bytes low = 1, high = 1'000'000;  // the least memory that some cut fits, exactly: a table counts as the rooms do
    while (low < high) {
      const Bytes middle = low + (high - low) / 2;
      for (StageRoom& room : rooms) room.bytes = middle;
      balancer.beginsWithin(rooms) ? high = middle : low = middle + 1;
    }
    request.memoryLimit = low;
    const std::vector<NodeId> balanced = balancer.begins(6, Balance::Time).orThrow(),
                              found = fitted(request, graph, profile, rows, balanced);
    request.begins = found;
    for (const RankMetrics& rank : metricsOf(simulate(rows, price(request, graph, profile, rows).costs)).ranks)
      EXPECT_LE(rank.peakBytes, low);
    moved += found == balanced ? 0 : 1;
  }
  EXPECT_EQ(moved, 20);
}

}  // namespace
}  // namespace pw::test
