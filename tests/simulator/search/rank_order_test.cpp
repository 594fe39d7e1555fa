#include "simulator/search/rank_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "schedules/generate.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/plan/planner.h"
#include "simulator/report/metrics.h"
#include "simulator/search/profiles.h"
#include "simulator/search/search.h"
#include "simulator/step/simulate.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

constexpr int kRanks = 3;

LayerTable randomTable(std::mt19937_64& random, int layers) {
  LayerTable table{"random", 1, 0, 0, {}};
  for (int l = 0; l < layers; ++l) {
    Layer layer;
    layer.name = fmt::format("l{}", l);
    layer.forward = draw<Ns>(random, 10, 100);
    layer.input = draw<Ns>(random, 10, 100);
    layer.weight = draw<Ns>(random, 10, 100);
    layer.activations = draw<Bytes>(random, 1, 20);
    layer.afterInput = layer.activations;
    layer.output = 10;
    layer.sent = Layer::kByLink;
    table.layers.push_back(layer);
  }
  return table;
}

/// Ranks of half and a quarter of the speed, with memory of their own, on two nodes; every other one has its own times of the layers.
Topology randomRack(std::mt19937_64& random, int layers) {
  Topology topology;
  const auto own = std::make_shared<const Profile>(profileOf(chainOf(randomTable(random, layers), "/own.json")));
  topology.sameNode = {draw<Ns>(random, 0, 20), 0};
  topology.network = {draw<Ns>(random, 20, 200), 0};
  for (int r = 0; r < kRanks; ++r) {
    topology.ranks.push_back({1.0 / static_cast<double>(1 << draw(random, 0, 2)),
                              draw(random, 0, 1) == 0 ? Bytes{0} : draw<Bytes>(random, 60, 400), static_cast<int>(draw(random, 0, 1))});
    if (oneIn(random, 2)) topology.ranks.back().own = {"/own.json", own};
  }
  return topology;
}

/// What a schedule on ranks of a rack takes, computed without topologies: the costs of the stages of a table whose layers were made as slow
/// as the ranks that they are on, with messages that take what the link between those ranks does.
struct Expected {
  Ns makespan = 0;
  std::vector<Bytes> peaks;  ///< by rank
};

Expected expectedOf(LayerTable table, const std::vector<NodeId>& begins, const std::vector<Rank>& order, const Topology& rack,
                    const Schedule& schedule) {
  const auto rankOf = [&](std::size_t stage) { return order[schedule.placement.rankOfStage[stage].index()].index(); };
  std::size_t stage = 0;
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    if (stage < begins.size() && begins[stage].index() == l) ++stage;
    const auto times = static_cast<std::int64_t>(1 / rack.ranks[rankOf(stage)].speed);
    Layer& layer = table.layers[l];
    if (const auto& own = rack.ranks[rankOf(stage)].own.costs) {
      const NodeCost& cost = own->nodes[l];
      layer.forward = cost.forward;
      layer.input = cost.backward - cost.weight;
      layer.weight = cost.weight;
    }
    layer.forward *= times;
    layer.input *= times;
    layer.weight *= times;
    const bool last = stage == begins.size() || begins[stage].index() != l + 1;
    const std::size_t next = last ? rankOf(stage) : rankOf(stage + 1);
    layer.sent = rack.ranks[rankOf(stage)].node == rack.ranks[next].node ? rack.sameNode.latency : rack.network.latency;
  }
  const ModelGraph graph = chainOf(table, "/t.json");
  PlanRequest request;
  request.ranks = kRanks;
  request.begins = begins;
  const Schedule rows = planRows(schedule, 1);
  const CostTable costs = price(request, graph, profileOf(graph), rows).costs;
  const Metrics metrics = metricsOf(simulate(rows, costs));
  Expected expected{metrics.makespan, std::vector<Bytes>(kRanks)};
  for (std::size_t i = 0; i < kRanks; ++i) expected.peaks[order[i].index()] = metrics.ranks[i].peakBytes;
  return expected;
}

std::vector<std::vector<NodeId>> allBegins(int layers, int stages) {
  std::vector<bool> chosen(static_cast<std::size_t>(layers) - 1, false);
  std::fill(chosen.begin(), chosen.begin() + stages - 1, true);
  std::vector<std::vector<NodeId>> all;
  do {
    std::vector<NodeId> begins;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i]) begins.emplace_back(i + 1);
    }
    all.push_back(begins);
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return all;
}

template <class Visit>
void forEachOrder(const Visit& visit) {
  std::vector<Rank> order;
  for (int r = 0; r < kRanks; ++r) order.emplace_back(r);
  do visit(order);
  while (std::next_permutation(order.begin(), order.end()));
}

TEST(RankOrder, CostsAreThoseOfSlowerLayersAndLongerLinks) {
  std::mt19937_64 random(7);
  for (int t = 0; t < 30; ++t) {
    const LayerTable table = randomTable(random, 6);
    const Topology rack = randomRack(random, 6);
    const ModelGraph graph = chainOf(table, "/t.json");
    Profile profile = profileOf(graph);
    profile.topology = rack;
    const bool two = t % 3 == 2;
    const Schedule schedule = generate(t % 3 == 0 ? "1f1b" : two ? "zbv" : "zb-h1", {kRanks, two ? 2 * kRanks : kRanks, 6});
    for (const std::vector<NodeId>& begins : allBegins(6, two ? 6 : 3)) {
      forEachOrder([&](const std::vector<Rank>& order) {
        const Expected expected = expectedOf(table, begins, order, rack, schedule);
        PlanRequest request;
        request.ranks = kRanks;
        request.begins = begins;
        const Schedule rows = planRows(schedule, 1, order);
        const Metrics metrics = metricsOf(simulate(rows, price(request, graph, profile, rows).costs));
        ASSERT_EQ(metrics.makespan, expected.makespan) << t;
        for (std::size_t r = 0; r < kRanks; ++r) ASSERT_EQ(metrics.ranks[r].peakBytes, expected.peaks[r]) << t;
      });
    }
  }
}

TEST(RankOrder, SearchFindsTheBestOfAllOrdersAndSplits) {
  std::mt19937_64 random(8);
  int placed = 0, none = 0;
  for (int t = 0; t < 60; ++t) {
    const LayerTable table = randomTable(random, 8);
    const Topology rack = randomRack(random, 8);
    const ModelGraph graph = chainOf(table, "/t.json");
    auto profile = std::make_shared<Profile>(profileOf(graph));
    profile->topology = rack;
    const Schedule schedule = generate(t % 2 == 0 ? "1f1b" : "zb-h1", {kRanks, kRanks, 4});
    Ns best = -1;
    forEachOrder([&](const std::vector<Rank>& order) {
      for (const std::vector<NodeId>& begins : allBegins(8, kRanks)) {
        const Expected expected = expectedOf(table, begins, order, rack, schedule);
        bool fits = true;
        for (std::size_t r = 0; r < kRanks; ++r)
          fits = fits && (rack.ranks[r].memoryBytes == 0 || expected.peaks[r] <= rack.ranks[r].memoryBytes);
        if (fits && (best < 0 || expected.makespan < best)) best = expected.makespan;
      }
    });
    SearchSpace space;
    space.base.ranks = kRanks;
    space.microbatches = {4};
    space.schedules = {schedule.name};
    space.recompute = false;
    const Candidate found = searchPlans(graph, measuredProfiles({profile}), space).candidates.front();
    EXPECT_EQ(found.fits(), best >= 0) << t;
    if (best < 0) {
      ++none;
      continue;
    }
    EXPECT_EQ(found.makespan, best) << t;
    placed += found.request.rankOrder.empty() ? 0 : 1;
    const Schedule rows = planRows(schedule, 1, found.request.rankOrder);
    EXPECT_EQ(metricsOf(simulate(rows, price(found.request, graph, *profile, rows).costs)).makespan, best) << "its plan is what it says";
  }
  EXPECT_GT(placed, 20);
  EXPECT_LT(none, 20);
}

TEST(RankOrder, MadeOrdersKeepTheirRanksAndLimits) {
  std::mt19937_64 random(9);
  int made = 0;
  for (int t = 0; t < 20; ++t) {
    const LayerTable table = randomTable(random, 6);
    const ModelGraph graph = chainOf(table, "/t.json");
    Profile profile = profileOf(graph);
    profile.topology = randomRack(random, 6);
    PlanRequest request;
    request.schedule = "auto";
    request.ranks = kRanks;
    request.microbatches = 4;
    request.rankOrder = {Rank(2), Rank(0), Rank(1)};
    request.begins = balancedFor(request, graph, profile, kRanks, Balance::Time);
    ModelCosts model(graph, profile, 1);
    const MadeOrder order = makeOrder(request, model, kRanks, {.seconds = 0.05});
    EXPECT_EQ(order.rows.placement.rankOfStage, request.rankOrder);
    if (!order.certificate) continue;
    ++made;
    const Metrics metrics = metricsOf(simulate(order.rows, order.priced.costs));
    EXPECT_EQ(metrics.makespan, order.certificate->time);
    EXPECT_LE(order.certificate->lowerBound, metrics.makespan);
    const std::vector<Bytes> limits = memoryLimits(request, profile, kRanks);
    for (std::size_t r = 0; r < kRanks; ++r) EXPECT_EQ(excessOf(metrics.ranks[r].peakBytes, limits[r]), 0);
    for (const char* family : {"1f1b", "gpipe", "zb-h1"}) {
      const Schedule rows = planRows(generate(family, {kRanks, kRanks, 4}), 1, request.rankOrder);
      const Metrics other = metricsOf(simulate(rows, price(request, graph, profile, rows).costs));
      bool fits = true;
      for (std::size_t r = 0; r < kRanks; ++r) fits = fits && excessOf(other.ranks[r].peakBytes, limits[r]) == 0;
      if (fits) {
        EXPECT_LE(metrics.makespan, other.makespan) << family;
      }
    }
  }
  EXPECT_GT(made, 8);
}

/// Six ranks that all differ have 720 orders, more than are tried one by one: two are exchanged as long as that is better.
TEST(RankOrder, ExchangesRanksWhereThereAreMoreOrdersThanItTries) {
  constexpr int kSix = 6;
  std::mt19937_64 random(31);
  int better = 0;
  for (int t = 0; t < 6; ++t) {
    const LayerTable table = randomTable(random, kSix + 2);
    const ModelGraph graph = chainOf(table, "/t.json");
    auto profile = std::make_shared<Profile>(profileOf(graph));
    profile->topology.sameNode = {5, 0};
    profile->topology.network = {300, 0};
    for (int r = 0; r < kSix; ++r) profile->topology.ranks.push_back({1 / static_cast<double>(r % 3 + 1), 0, (r * 7 + t) % 2});
    const Schedule schedule = generate("1f1b", {kSix, kSix, 6});
    SearchShape shape;
    shape.request.schedule = "1f1b";
    shape.request.ranks = kSix;
    shape.request.microbatches = 6;
    shape.stages = kSix;
    shape.profile.profile = profile;
    shape.model = std::make_shared<ModelCosts>(graph, *profile, 1);
    const auto makespanOf = [&](const std::vector<NodeId>& begins, const std::vector<Rank>& order) {
      PlanRequest request = shape.request;
      request.begins = begins;
      const Schedule rows = planRows(schedule, 1, order);
      return metricsOf(simulate(rows, price(request, graph, *profile, rows).costs)).makespan;
    };
    Evaluator evaluator(shape);
    const Candidate start =
        evaluator.evaluate({SplitSource::Time, balancedFor(shape.request, graph, *profile, kSix, Balance::Time)}, RecomputeNone())
            .orThrow();
    int tried = 0;
    const std::vector<Candidate> orders = withRankOrders(shape, start, 1e9, [&] {
      ++tried;
      return true;
    });
    ASSERT_FALSE(orders.empty());
    const Candidate& best = orders.front();
    EXPECT_GT(tried, 15) << "every pair once";
    EXPECT_LE(best.makespan, start.makespan);
    better += best.makespan < start.makespan ? 1 : 0;
    std::vector<Rank> order = best.request.rankOrder;
    for (int r = 0; order.size() < kSix; ++r) order.emplace_back(r);
    EXPECT_EQ(makespanOf(best.request.begins, order), best.makespan);
    for (std::size_t i = 0; i < kSix; ++i) {  // no exchange with these splits is better
      for (std::size_t j = i + 1; j < kSix; ++j) {
        std::swap(order[i], order[j]);
        EXPECT_GE(makespanOf(best.request.begins, order), best.makespan) << t;
        std::swap(order[i], order[j]);
      }
    }
    int calls = 0;
    EXPECT_EQ(withRankOrders(shape, start, 1e9, [&] { return ++calls < 4; }).size(), 2U) << "ends early with what it has";
  }
  EXPECT_GT(better, 3);
}

/// One slow rank of eight: it gets fewer layers.
TEST(RankOrder, SlowRanksGetLessWork) {
  LayerTable table{"even", 1, 0, 0, {}};
  for (int l = 0; l < 64; ++l) table.layers.push_back({fmt::format("l{}", l), 10, 10, 10, 0, 1, 1, 0, 0, ""});
  const ModelGraph graph = chainOf(table, "/t.json");
  Profile profile = profileOf(graph);
  profile.topology.ranks.assign(8, {});
  profile.topology.ranks[3].speed = 0.5;
  PlanRequest request;
  request.schedule = "1f1b";
  request.ranks = 8;
  const std::vector<NodeId> begins = balancedFor(request, graph, profile, 8, Balance::Time);
  // 64 layers in 7.5 shares: 8.53 each and half of that for the slow one; nobody takes longer than 9 layers.
  EXPECT_LE(begins[3].value - begins[2].value, 4);
  for (std::size_t s = 0; s + 1 < begins.size(); ++s) EXPECT_LE(begins[s + 1].value - begins[s].value, 9);
}

}  // namespace
}  // namespace pw::test
