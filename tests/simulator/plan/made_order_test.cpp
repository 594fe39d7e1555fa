// Orders made for plans, against all families of the same partition and the simulator's own figures.
#include "simulator/plan/made_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include <fmt/format.h>

#include "schedules/check.h"
#include "schedules/generate.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/order/made.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/report/metrics.h"
#include "simulator/search/orders.h"
#include "simulator/search/profiles.h"
#include "simulator/search/search.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

Profile randomProfile(std::mt19937_64& random, int nodes) {
  Profile profile;
  for (int n = 0; n < nodes; ++n) {
    NodeCost cost;
    cost.forward = draw<Ns>(random, 200, 2'000);
    cost.backward = 2 * cost.forward;
    cost.weight = draw<Ns>(random, 0, cost.forward);
    cost.saved = draw<Bytes>(random, 10, 500);
    profile.nodes.push_back(cost);
  }
  profile.actionOverhead = 40;
  profile.topology.sameNode = {draw<Ns>(random, 0, 500), 1e9};
  profile.optimizerNsPerByte = 2;
  return profile;
}

/// Of rows as a plan has them.
struct Figures {
  Ns makespan = 0, step = 0;
  Bytes peak = 0;
};
Figures figuresOf(const PlanRequest& request, const Schedule& rows, CostTable costs) {
  addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, rows.placement));
  const Metrics metrics = metricsOf(simulate(rows, costs));
  Figures figures{metrics.makespan, metrics.step, 0};
  for (const RankMetrics& rank : metrics.ranks) figures.peak = std::max(figures.peak, rank.peakBytes);
  return figures;
}

constexpr int kNodes = 12;

struct Case {
  ModelGraph graph = chain(kNodes);
  Profile profile;
  PlanRequest request;
  int stages = 0;
};

Case randomCase(std::mt19937_64& random) {
  Case c;
  c.profile = randomProfile(random, kNodes);
  const int chunks = static_cast<int>(draw(random, 1, 2));
  c.request.schedule = kAutoSchedule;
  c.request.ranks = static_cast<int>(draw(random, 2, 4));
  c.request.microbatches = static_cast<int>(draw(random, 2, 8));
  c.request.microbatch = 2;
  c.request.replicas = oneIn(random, 3) ? 2 : 1;
  c.request.optimizer.kind = OptimizerSpec::Kind::AdamW;
  c.request.chunks = chunks;
  c.stages = c.request.ranks * chunks;
  c.request.begins = balancedSplits(c.graph, c.profile, c.stages, Balance::Time);
  if (oneIn(random, 3)) c.request.recompute = RecomputeFull();
  return c;
}

/// Linear layers in a row, the last with the first one's parameter.
ModelGraph tiedChain(int layers) {
  GraphBuilder builder;
  ValueId x = builder.input("x");
  const ValueId first = builder.parameter("first", "", true, GraphBuilder::shape({16, 16}));
  for (int i = 0; i < layers; ++i) {
    const ValueId weight = i == 0 || i + 1 == layers ? first : builder.parameter("w" + std::to_string(i));
    x = builder.call("linear", {{"input", x}, {"weight", weight}}, "y" + std::to_string(i));
  }
  return builder.done(x);
}

TEST(MadeOrder, SaysWhatAnotherMemoryLimitGives) {
  int limited = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Case c = randomCase(random);
    ModelCosts model(c.graph, c.profile, c.request.microbatch);
    const OrderEffort effort{.seconds = 0.05};
    const MadeOrder free = makeOrder(c.request, model, c.stages, effort);
    EXPECT_EQ(limitSensitivity(c.request, model, free.rows, 0.1, effort), std::nullopt) << "there is no limit";
    c.request.memoryLimit = figuresOf(c.request, free.rows, free.priced.costs).peak * 9 / 10;
    if (oneIn(random, 2)) c.request.recompute = RecomputeAuto();
    const MadeOrder made = makeOrder(c.request, model, c.stages, effort);
    if (!made.certificate) continue;
    ++limited;
    const auto limit = limitSensitivity(c.request, model, made.rows, 0.1, effort);
    ASSERT_TRUE(limit);
    EXPECT_EQ(limit->now, made.certificate->time);
    const auto at = [&](double factor) {
      PlanRequest other = c.request;
      other.memoryLimit = static_cast<Bytes>(static_cast<double>(c.request.memoryLimit) * factor);
      return makeOrder(other, model, c.stages, effort).certificate;
    };
    EXPECT_EQ(limit->more, std::min(limit->now, at(1.1)->time));
    const auto less = at(0.9);
    EXPECT_EQ(limit->less, less ? std::optional(std::max(limit->now, less->time)) : std::nullopt);
  }
  EXPECT_GT(limited, 3);
}

TEST(MadeOrder, IsWhatAPlanOfItTakesAndNoFamilyThatFitsIsFaster) {
  int limited = 0, onV = 0, better = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Case c = randomCase(random);
    ModelCosts model(c.graph, c.profile, c.request.microbatch);
    const auto familyRows = [&](const Generator& family) {
      return planRows(family.generate({c.request.ranks, c.stages, c.request.microbatches}), c.request.replicas);
    };
    if (oneIn(random, 2)) {
      const MadeOrder free = makeOrder(c.request, model, c.stages, {.seconds = 0.01});
      const Bytes peak = figuresOf(c.request, free.rows, free.priced.costs).peak;
      c.request.memoryLimit = peak - draw<Bytes>(random, 0, peak / 4);
      if (oneIn(random, 2)) c.request.recompute = RecomputeAuto();
      ++limited;
    }
    const MadeOrder made = makeOrder(c.request, model, c.stages, {.seconds = 0.05});
    EXPECT_EQ(made, makeOrder(c.request, model, c.stages, {.seconds = 0.05}));
    for (const Problem& problem : check(made.rows)) EXPECT_NE(problem.stops, Stops::Always) << problem.message;
    EXPECT_EQ(made.priced, price(c.request, c.graph, c.profile, made.rows));
    const Figures figures = figuresOf(c.request, made.rows, made.priced.costs);
    const bool fits = c.request.memoryLimit == 0 || figures.peak <= c.request.memoryLimit;
    ASSERT_EQ(fits, made.certificate.has_value());
    if (fits) {
      EXPECT_EQ(made.certificate->time, figures.makespan);
      EXPECT_NE(made.certificate->foundBy, "forward-only");
      EXPECT_LE(made.certificate->lowerBound, figures.makespan);
    }
    onV += made.rows.placement == wavePlacement({c.request.ranks, c.stages, 1}) && c.stages > c.request.ranks ? 1 : 0;
    for (const Generator& family : generators()) {
      if (!family.trains || family.placement == PlacementKind::Bidirectional) continue;
      if (family.refusal({c.request.ranks, c.stages, c.request.microbatches})) continue;
      const Schedule rows = familyRows(family);
      const bool searched = std::ranges::count(orderPlacements({c.request.ranks, c.stages, 1}), rows.placement) > 0;
      const Figures other = figuresOf(c.request, rows, price(c.request, c.graph, c.profile, rows).costs);
      if (!searched || (c.request.memoryLimit > 0 && other.peak > c.request.memoryLimit)) continue;
      ASSERT_TRUE(fits) << family.name;
      EXPECT_LE(std::pair(figures.step, figures.makespan), std::pair(other.step, other.makespan)) << family.name;
      better += figures.makespan < other.makespan ? 1 : 0;
    }
  }
  EXPECT_GT(limited, 10);
  EXPECT_GT(onV, 3);
  EXPECT_GT(better, 100);
}

/// The last layer has the first one's parameter, so that either both ranks keep AdamW's state of it, or the first alone. The bound holds
/// for all that fit.
TEST(MadeOrder, HasABoundThatHoldsForEveryWayOfSharing) {
  int differ = 0, limited = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Case c = randomCase(random);
    c.graph = tiedChain(kNodes);
    c.request.replicas = 1;
    c.request.recompute = RecomputeNone();
    ModelCosts model(c.graph, c.profile, c.request.microbatch);
    const OrderEffort effort{.seconds = 0.05};
    const auto madeWith = [&](std::optional<Sharing> sharing) {
      PlanRequest request = c.request;
      request.sharing = sharing;
      return makeOrder(request, model, c.stages, effort);
    };
    const MadeOrder free = madeWith(Sharing::Transmit);
    c.request.memoryLimit = figuresOf(c.request, free.rows, free.priced.costs).peak * draw(random, 70, 100) / 100;
    const MadeOrder transmit = madeWith(Sharing::Transmit), replicate = madeWith(Sharing::Replicate), open = madeWith(std::nullopt);
    for (const MadeOrder* order : {&transmit, &replicate, &open}) {
      if (!order->certificate) continue;
      ++limited;
      ASSERT_TRUE(open.certificate);
      EXPECT_LE(open.certificate->lowerBound, order->certificate->time);
      EXPECT_LE(orderBound(c.request, model, c.stages), order->certificate->time);
    }
    differ += transmit.certificate && (!replicate.certificate || transmit.certificate->time < replicate.certificate->time) ? 1 : 0;
  }
  EXPECT_GT(limited, 20);
  EXPECT_GT(differ, 3);
}

/// A limit that leaves less room to two copies of the optimizer's state; how they are kept equal is left open, or not.
TEST(MadeOrder, IsNoSlowerThanWithEitherWayOfSharing) {
  int transmitted = 0, recomputed = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    constexpr int kLayers = 6, kRanks = 2;
    const ModelGraph graph = tiedChain(kLayers);
    Profile profile = randomProfile(random, kLayers);
    for (NodeCost& node : profile.nodes) node.saved = draw<Bytes>(random, 500, 1'500);
    PlanRequest request;
    request.ranks = kRanks;
    request.microbatches = static_cast<int>(draw(random, 2, 4));
    request.microbatch = 2;
    request.optimizer.kind = OptimizerSpec::Kind::AdamW;
    request.begins = {NodeId(draw<std::int32_t>(random, 1, kLayers - 1))};
    const bool made = oneIn(random, 2);
    request.schedule = made ? kAutoSchedule : "1f1b";
    ModelCosts model(graph, profile, request.microbatch);
    const Schedule rows = planRows(generate("1f1b", {kRanks, kRanks, request.microbatches}), 1);
    const auto peakWith = [&](Sharing sharing) {
      PlanRequest with = request;
      with.sharing = sharing;
      return figuresOf(with, rows, price(with, graph, profile, rows).costs).peak;
    };
    const Bytes most = peakWith(Sharing::Replicate), least = peakWith(Sharing::Transmit);
    request.memoryLimit = least - (most - least) * draw(random, -4, 8) / 4;
    request.recompute = oneIn(random, 2) ? Recompute(RecomputeAuto()) : Recompute(RecomputeNone());
    /// Nothing where it does not fit.
    const auto stepWith = [&](std::optional<Sharing> sharing) -> std::optional<Ns> {
      PlanRequest with = request;
      with.sharing = sharing;
      const Schedule order = made ? makeOrder(with, model, kRanks, {.seconds = 0.1}).rows : rows;
      const Priced priced = price(with, graph, profile, order);
      const Figures figures = figuresOf(with, order, priced.costs);
      if (!sharing && figures.peak <= request.memoryLimit) {
        transmitted += priced.sharing.front().forMemory ? 1 : 0;
        recomputed += std::ranges::any_of(priced.partition.stages, [](const StageSpec& s) { return !s.checkpoints.empty(); }) ? 1 : 0;
      }
      return figures.peak <= request.memoryLimit ? std::optional(figures.step) : std::nullopt;
    };
    const std::optional<Ns> open = stepWith(std::nullopt);
    for (const Sharing sharing : {Sharing::Replicate, Sharing::Transmit}) {
      const std::optional<Ns> one = stepWith(sharing);
      EXPECT_TRUE(!one || (open && *open <= *one)) << request.schedule << ", " << nameOf(sharing);
    }
  }
  EXPECT_GT(transmitted, 5);
  EXPECT_GT(recomputed, 3);
}

/// A limit of a byte: what is named then is the nearest to it.
TEST(Price, IsOfTheLeastMemoryWhereNoWayOfSharingFits) {
  int smaller = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    constexpr int kLayers = 6, kRanks = 2;
    const ModelGraph graph = tiedChain(kLayers);
    const Profile profile = randomProfile(random, kLayers);
    PlanRequest request;
    request.schedule = "1f1b";
    request.ranks = kRanks;
    request.microbatches = 4;
    request.microbatch = 2;
    request.optimizer.kind = OptimizerSpec::Kind::AdamW;
    request.begins = {NodeId(draw<std::int32_t>(random, 1, kLayers - 1))};
    request.memoryLimit = 1;
    request.recompute = RecomputeAuto();
    const Schedule rows = planRows(generate("1f1b", {kRanks, kRanks, request.microbatches}), 1);
    const auto peakWith = [&](std::optional<Sharing> sharing) {
      PlanRequest with = request;
      with.sharing = sharing;
      return figuresOf(with, rows, price(with, graph, profile, rows).costs).peak;
    };
    const Bytes copied = peakWith(Sharing::Replicate), sent = peakWith(Sharing::Transmit);
    EXPECT_EQ(peakWith(std::nullopt), std::min(copied, sent));
    smaller += sent < copied ? 1 : 0;
  }
  EXPECT_GT(smaller, 3);
}

TEST(MadeOrder, IsOneMicrobatchAfterTheOtherWhereNothingFits) {
  std::mt19937_64 random(3);
  Case c = randomCase(random);
  c.request.memoryLimit = 1;
  ModelCosts model(c.graph, c.profile, c.request.microbatch);
  const MadeOrder made = makeOrder(c.request, model, c.stages);
  EXPECT_FALSE(made.certificate);
  const Placement loop = loopPlacement({c.request.ranks, c.stages, c.request.microbatches});
  EXPECT_EQ(made.rows, planRows(serialSchedule(loop, c.request.ranks, c.request.microbatches), c.request.replicas));
}

TEST(MadeOrder, OfASearchIsThatOfItsPlanAndNoSlowerThanTheBest) {
  for (const bool alone : {false, true}) {
    std::mt19937_64 random(8);
    const ModelGraph graph = chain(kNodes);
    const Profile one = randomProfile(random, kNodes);
    const ProfileSource source = [&](std::int64_t microbatch) {
      return SizedProfile{std::make_shared<Profile>(scaledProfile(one, microbatch)), false};
    };
    SearchSpace space;
    space.base.ranks = 3;
    space.base.batch = 24;
    space.microbatches = {4, 6};
    space.orders = 3;
    space.threads = 2;
    if (alone) space.schedules = {"auto"};
    const Found found = searchPlans(graph, source, space);
    int orders = 0;
    for (const Candidate& candidate : found.candidates) {
      if (candidate.request.schedule != kAutoSchedule) continue;
      ++orders;
      const Profile profile = scaledProfile(one, candidate.request.microbatch);
      ModelCosts model(graph, profile, candidate.request.microbatch);
      const Schedule rows = rowsFor(candidate.request, model, candidate.stages, {.seconds = kOrderSeconds});
      const Figures figures = figuresOf(candidate.request, rows, price(candidate.request, graph, profile, rows).costs);
      EXPECT_EQ(figures.makespan, candidate.makespan);
      EXPECT_EQ(figures.peak, candidate.peak);
      EXPECT_EQ(candidate.stages, candidate.request.ranks * candidate.request.chunks);
    }
    EXPECT_EQ(orders, 3);
    EXPECT_EQ(alone, static_cast<int>(found.candidates.size()) == orders);
    EXPECT_EQ(found.candidates.front().request.schedule, "auto") << "the best family's split has an order that is no slower";
  }
}

}  // namespace
}  // namespace pw::test
