#include "simulator/search/search.h"
#include "simulator/search/profiles.h"
#include "simulator/search/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/report/metrics.h"
#include "simulator/search/orders.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

/// Random times and sizes of a chain's nodes for one sample, at least `least` ns long.
Profile randomProfile(std::mt19937_64& random, int nodes, Ns least = 100) {
  Profile profile;
  for (int n = 0; n < nodes; ++n) {
    NodeCost cost;
    cost.forward = draw<Ns>(random, least, 1'000);
    cost.backward = 2 * cost.forward;
    cost.weight = cost.forward;
    cost.saved = draw<Bytes>(random, 10, 500);
    profile.nodes.push_back(cost);
  }
  profile.actionOverhead = 40;
  profile.topology.sameNode = {20, 1e9};
  return profile;
}

/// In proportion to the samples, as `scaledProfile` has it, but not marked.
ProfileSource proportional(const Profile& one) {
  return [one](std::int64_t microbatch) { return SizedProfile{std::make_shared<Profile>(scaledProfile(one, microbatch)), false}; };
}

SearchSpace space(int ranks, std::int64_t batch, std::vector<int> counts, std::vector<std::string> schedules) {
  SearchSpace s;
  s.base.ranks = ranks;
  s.base.batch = batch;
  s.microbatches = std::move(counts);
  s.schedules = std::move(schedules);
  s.improve = 0;
  return s;
}

/// The trace of a plan, made of the plan's own parts.
Metrics measured(const PlanRequest& request, int stages, const ModelGraph& graph, const Profile& profile) {
  ModelCosts model(graph, profile, request.microbatch);
  const Schedule rows = rowsFor(request, model, stages, {.seconds = kOrderSeconds});
  CostTable costs = price(request, graph, profile, rows).costs;
  addOptimizerState(costs, stateCopies(request.optimizer), 1);
  return metricsOf(simulate(rows, costs));
}

Bytes peakOf(const Metrics& metrics) {
  Bytes peak = 0;
  for (const RankMetrics& rank : metrics.ranks) peak = std::max(peak, rank.peakBytes);
  return peak;
}

TEST(Search, PredictsEveryCandidateAsItsTraceMeasures) {
  const ModelGraph graph = chain(8);
  for (const int replicas : {1, 2}) {
    std::mt19937_64 random(5);
    Profile one = randomProfile(random, 8);
    one.optimizerNsPerByte = 3;
    SearchSpace s = space(2, std::int64_t{16} * replicas, {2, 4, 5}, {});  // 16 samples in five microbatches: uneven ones
    s.base.replicas = replicas;
    s.base.optimizer.kind = OptimizerSpec::Kind::AdamW;
    const Found found = searchPlans(graph, proportional(one), s);
    std::set<std::string> schedules;
    for (const Candidate& c : found.candidates) {
      SCOPED_TRACE(fmt::format("{} {} microbatches, {} stages", c.request.schedule, c.request.microbatches, c.stages));
      schedules.insert(c.request.schedule);
      const Metrics metrics = measured(c.request, c.stages, graph, scaledProfile(one, c.request.microbatch));
      EXPECT_EQ(c.step, metrics.step);
      EXPECT_EQ(c.makespan, metrics.makespan);
      EXPECT_EQ(c.bubbleFraction, metrics.bubbleFraction);
      EXPECT_EQ(c.peak, peakOf(metrics));
      EXPECT_NEAR(c.samplesPerSecond, 16.0 * replicas * 1e9 / static_cast<double>(metrics.step), 1e-6);
    }
    EXPECT_EQ(schedules.size(), generators().size()) << "all but forward-only, and auto";
  }
}

TEST(Search, FindsTheBestThatBruteForceFinds) {
  const ModelGraph graph = chain(9);
  const std::vector<std::string> schedules{"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "zbv"};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Profile one = randomProfile(random, 9);
    SearchSpace s = space(3, 12, {3, 6, 12}, schedules);
    s.chunks = {1, 2};
    const Found found = searchPlans(graph, proportional(one), s);
    double best = 0;
    std::size_t plans = 0;
    for (const int microbatches : s.microbatches) {
      const Profile profile = scaledProfile(one, 12 / microbatches);
      for (const std::string& schedule : schedules) {
        for (const int chunks : s.chunks) {
          if (generatorOf(schedule).refusal({3, 3 * chunks, microbatches})) continue;
          std::set<std::vector<NodeId>> splits;
          for (const Balance by : s.balances) splits.insert(balancedSplits(graph, profile, 3 * chunks, by));
          for (const auto& begins : splits) {
            for (const Recompute& recompute : {Recompute(RecomputeNone()), Recompute(RecomputeFull())}) {
              PlanRequest request;
              request.schedule = schedule;
              request.ranks = 3;
              request.microbatches = microbatches;
              request.microbatch = 12 / microbatches;
              request.begins = begins;
              request.recompute = recompute;
              best = std::max(best, 12e9 / static_cast<double>(measured(request, 3 * chunks, graph, profile).step));
              ++plans;
            }
          }
        }
      }
    }
    EXPECT_EQ(found.candidates.size(), plans);
    EXPECT_DOUBLE_EQ(found.candidates.front().samplesPerSecond, best);
    EXPECT_TRUE(std::is_sorted(found.candidates.begin(), found.candidates.end(),
                               [](const auto& a, const auto& b) { return a.samplesPerSecond > b.samplesPerSecond; }));
  }
}

TEST(Search, FindsTheBestOfAllSplitsWhereThereAreFew) {
  constexpr int kNodes = 10;
  const ModelGraph graph = chain(kNodes);
  int moved = 0, optimal = 0;
  constexpr int kSeeds = 20;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Profile one = randomProfile(random, kNodes);
    SearchSpace s = space(3, 6, {6}, {"1f1b"});
    s.balances = {Balance::Parameters};  // far from balanced in time
    s.recompute = false;
    const Candidate before = searchPlans(graph, proportional(one), s).candidates.front();
    s.improve = 1;
    const Candidate after = searchPlans(graph, proportional(one), s).candidates.front();
    moved += after.moves > 0 ? 1 : 0;
    EXPECT_LE(after.step, before.step);
    EXPECT_EQ(after.moves == 0, after.request.begins == before.request.begins);
    Ns best = after.step;
    for (int a = 1; a < kNodes; ++a) {
      for (int b = a + 1; b < kNodes; ++b) {
        PlanRequest request = after.request;
        request.begins = {NodeId(a), NodeId(b)};
        const Ns step = measured(request, 3, graph, one).step;
        best = std::min(best, step);
        const int distance = std::abs(a - after.request.begins[0].value) + std::abs(b - after.request.begins[1].value);
        EXPECT_TRUE(distance != 1 || step >= after.step) << a << ' ' << b;
      }
    }
    optimal += best == after.step ? 1 : 0;
  }
  EXPECT_GE(moved, kSeeds / 2);
  EXPECT_EQ(optimal, kSeeds);
}

/// Moves splits as the search does, simulating every move.
Candidate movedPlainly(Candidate best, const ModelGraph& graph, const Profile& profile) {
  const auto weigh = [&](const PlanRequest& request) {
    const Metrics metrics = measured(request, best.stages, graph, profile);
    const Bytes peak = peakOf(metrics);
    return std::tuple(request.memoryLimit > 0 ? std::max<Bytes>(0, peak - request.memoryLimit) : 0, metrics.step, peak);
  };
  auto weight = weigh(best.request);
  bool moved = true;
  const auto tryMove = [&](std::size_t first, std::size_t last, int further) {
    PlanRequest tried = best.request;
    for (std::size_t i = first; i <= last; ++i) tried.begins[i] = NodeId(tried.begins[i].value + further);
    const auto outside = [&](NodeId begin) { return begin.value < 1 || begin.index() >= graph.nodes.size(); };
    if (std::ranges::any_of(tried.begins, outside)) return;
    if (std::ranges::adjacent_find(tried.begins, [](NodeId a, NodeId b) { return b <= a; }) != tried.begins.end()) return;
    const auto now = weigh(tried);
    if (!(now < weight)) return;
    weight = now;
    best.request = tried;
    moved = true;
  };
  const std::size_t count = best.request.begins.size();
  for (int round = 0; round < 8 && moved; ++round) {
    moved = false;
    for (std::size_t i = 0; i < count; ++i) {
      for (const int further : {-1, 1, -2, 2, -4, 4}) tryMove(i, i, further);
    }
    const bool single = moved;
    for (std::size_t length = 2; length <= count && !single; ++length) {
      for (std::size_t first = 0; first + length <= count; ++first) {
        for (const int further : {-1, 1}) tryMove(first, first + length - 1, further);
      }
    }
  }
  std::tie(std::ignore, best.step, best.peak) = weight;
  return best;
}

TEST(Search, MovesSplitsAsIfEveryMoveWereSimulated) {
  int moved = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    for (const char* schedule : {"1f1b", "zb-h1", "interleaved-1f1b", "zbv"}) {
      SCOPED_TRACE(fmt::format("{} {}", schedule, seed));
      std::mt19937_64 random(seed);
      const int nodes = generatorOf(schedule).chunks == 1 ? 120 : 26;  // too many ways to cut into 3 or 6 for trying all
      const ModelGraph graph = chain(nodes);
      const Profile one = randomProfile(random, nodes);
      SearchSpace s = space(3, 6, {6}, {schedule});
      s.balances = {Balance::Layers};
      s.chunks = {generatorOf(schedule).chunks};
      s.recompute = false;
      const Candidate before = searchPlans(graph, proportional(one), s).candidates.front();
      if (seed % 3 == 1) s.base.memoryLimit = before.peak - 200;
      s.improve = 1;
      const Candidate start = searchPlans(graph, proportional(one),
                                          [&] {
                                            auto unmoved = s;
                                            unmoved.improve = 0;
                                            return unmoved;
                                          }())
                                  .candidates.front();
      const Candidate after = searchPlans(graph, proportional(one), s).candidates.front();
      const Candidate plain = movedPlainly(start, graph, one);
      EXPECT_EQ(after.request.begins, plain.request.begins);
      EXPECT_EQ(after.step, plain.step);
      EXPECT_EQ(after.peak, plain.peak);
      moved += after.moves > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(moved, 24);
}

TEST(Search, SaysWhichMicrobatchCountsItCouldNotTry) {
  const ModelGraph graph = chain(9);
  std::mt19937_64 random(3);
  SearchSpace s = space(2, 16, {4, 32}, {"1f1b"});
  const Found found = searchPlans(graph, proportional(randomProfile(random, 9)), s);
  EXPECT_FALSE(found.candidates.empty());
  ASSERT_EQ(found.skipped.size(), 1U);
  EXPECT_EQ(found.skipped.front(), "32 microbatches: a batch of 16 cannot be cut into so many");
}

TEST(Search, FindsTheSameWhateverTheThreads) {
  const ModelGraph graph = chain(9);
  std::mt19937_64 random(3);
  const Profile one = randomProfile(random, 9);
  SearchSpace s = space(2, 16, {}, {});
  s.base.memoryLimit = 9'000;
  s.improve = 6;
  s.threads = 1;
  const Found alone = searchPlans(graph, proportional(one), s);
  s.threads = 4;
  const Found together = searchPlans(graph, proportional(one), s);
  EXPECT_EQ(alone.candidates, together.candidates);
  EXPECT_EQ(alone.skipped, together.skipped);
  EXPECT_GT(alone.candidates.size(), 50U);
}

TEST(Search, RecomputesWhereTheMemoryLimitDemandsIt) {
  const ModelGraph graph = chain(8);
  std::mt19937_64 random(1);
  const Profile one = randomProfile(random, 8);
  SearchSpace s = space(2, 8, {4, 8}, {"1f1b", "gpipe"});
  std::vector<Bytes> peaks;
  for (const Candidate& c : searchPlans(graph, proportional(one), s).candidates) {
    EXPECT_TRUE(c.fits());
    EXPECT_FALSE(std::holds_alternative<RecomputeAuto>(c.request.recompute)) << "no limit";
    if (std::holds_alternative<RecomputeNone>(c.request.recompute)) peaks.push_back(c.peak);
  }
  std::sort(peaks.begin(), peaks.end());
  s.base.memoryLimit = peaks[peaks.size() / 2];
  const Found limited = searchPlans(graph, proportional(one), s);
  int automatic = 0;
  bool fits = true;
  for (const Candidate& c : limited.candidates) {
    EXPECT_EQ(c.fits(), c.peak <= s.base.memoryLimit);
    EXPECT_TRUE(fits || !c.fits()) << "those that fit stand first";
    fits = c.fits();
    if (!std::holds_alternative<RecomputeAuto>(c.request.recompute)) continue;
    ++automatic;
    EXPECT_TRUE(c.fits());
  }
  EXPECT_GT(automatic, 0);
  s.base.memoryLimit = 1;
  const Found none = searchPlans(graph, proportional(one), s);
  EXPECT_FALSE(none.candidates.front().fits());
  EXPECT_TRUE(std::ranges::all_of(none.candidates, [&](const Candidate& c) { return c.peak >= none.candidates.front().peak; }))
      << "least memory first";
}

TEST(Search, StopsWhenItIsTold) {
  const ModelGraph graph = chain(8);
  std::mt19937_64 random(1);
  int seen = 0;
  const Found found =
      searchPlans(graph, proportional(randomProfile(random, 8)), space(2, 16, {}, {}), [&](int done, int all, const Candidate* c) {
        EXPECT_LE(done, all);
        seen += c == nullptr ? 0 : 1;
        return seen < 3;
      });
  EXPECT_TRUE(found.cancelled);
  EXPECT_EQ(seen, 3) << "nothing is reported after that";
  EXPECT_LE(found.candidates.size(), 8U);
}

TEST(Search, CutsOneBatchIntoEveryCount) {
  const ModelGraph graph = chain(4);
  std::mt19937_64 random(1);
  const ProfileSource source = proportional(randomProfile(random, 4));
  std::map<int, std::int64_t> sizes;
  const auto sizesOf = [&](const SearchSpace& s) {
    sizes.clear();
    for (const Candidate& c : searchPlans(graph, source, s).candidates) sizes[c.request.microbatches] = c.request.microbatch;
    return sizes;
  };
  EXPECT_EQ(sizesOf(space(2, 10, {2, 4, 10, 11}, {"1f1b"})), (std::map<int, std::int64_t>{{2, 5}, {4, 3}, {10, 1}}))
      << "11 microbatches have no sample each";
  EXPECT_EQ(sizesOf(space(2, 0, {2, 8}, {"1f1b"})), (std::map<int, std::int64_t>{{2, 8}, {8, 2}})) << "exported with 2";
  EXPECT_EQ(usageErrorOf([&] {
              static_cast<void>(searchPlans(graph, source, space(2, 3, {4, 8}, {"1f1b"})));
            }),
            "A batch of 3 cannot be cut into 4, 8 microbatches; use another batch or other counts.");
  EXPECT_NE(usageErrorOf([&] { static_cast<void>(searchPlans(graph, source, space(2, 8, {4}, {"1f2b"}))); }).find("unknown schedule"),
            std::string::npos);
}

TEST(Search, KeepsTheMicrobatchOfAModelWithAFixedBatch) {
  GraphBuilder b;
  ValueId x = b.input("x", GraphBuilder::shape({3, 4}));
  for (int i = 0; i < 4; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    const ValueId weight = b.parameter(name + ".weight");
    x = b.within({name}).op("linear", {x, weight}, "linear_" + std::to_string(i), GraphBuilder::shape({3, 4}));
  }
  const ModelGraph graph = b.done(x);
  std::mt19937_64 random(1);
  const Profile three = scaledProfile(randomProfile(random, 4), 3);
  const ProfileSource source = measuredProfiles({std::make_shared<Profile>(three)});
  for (const Candidate& c : searchPlans(graph, source, space(2, 0, {2, 4}, {"1f1b"})).candidates) {
    EXPECT_EQ(c.request.microbatch, 3);
    EXPECT_EQ(c.samples, 3 * c.request.microbatches);
    EXPECT_FALSE(c.scaled);
  }
  for (const Candidate& c : searchPlans(graph, source, space(2, 12, {2, 4}, {"1f1b"})).candidates)
    EXPECT_EQ(c.request.microbatches, 4) << "4 · 3 = 12";
  EXPECT_NE(usageErrorOf([&] {
              static_cast<void>(searchPlans(graph, source, space(2, 10, {2, 4}, {"1f1b"})));
            }).find("of 3, the size the model was exported with"),
            std::string::npos);
}

TEST(Search, SaysWhichShapesWereRefused) {
  const ModelGraph graph = chain(4);
  std::mt19937_64 random(1);
  const Found found =
      searchPlans(graph, proportional(randomProfile(random, 4)), space(2, 8, {2, 4}, {"zb-h2", "1f1b", "interleaved-1f1b"}));
  // zb-h2 needs 2R − 1 = 3 microbatches, and 8 stages are more than four layers.
  ASSERT_EQ(found.skipped.size(), 2U);
  EXPECT_TRUE(found.skipped[0].starts_with("8 stages: ")) << found.skipped[0];
  EXPECT_TRUE(found.skipped[1].starts_with("zb-h2, 2 microbatches: ")) << found.skipped[1];
  EXPECT_EQ(found.shapes, 1 + 2 + 2 * 2);
}

TEST(ParetoFront, IsWhatItsDefinitionSays) {
  std::mt19937_64 random(17);
  for (int run = 0; run < 200; ++run) {
    std::vector<Candidate> all(static_cast<std::size_t>(draw(random, 0, 40)));
    for (Candidate& c : all) {
      c.samplesPerSecond = static_cast<double>(draw(random, 1, 12));
      c.peak = draw<Bytes>(random, 1, 12);
    }
    markFront(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      bool beaten = false;
      for (std::size_t j = 0; j < all.size(); ++j) {
        const bool noWorse = all[j].samplesPerSecond >= all[i].samplesPerSecond && all[j].peak <= all[i].peak;
        const bool equal = all[j].samplesPerSecond == all[i].samplesPerSecond && all[j].peak == all[i].peak;
        beaten = beaten || (noWorse && (!equal || j < i));
      }
      EXPECT_EQ(all[i].onFront, !beaten) << "run " << run << ", candidate " << i;
    }
  }
}

TEST(ProfileSources, TakeTheNearestSizeAndScaleIt) {
  Profile two;
  two.microbatch = 2;
  two.actionOverhead = 5;
  NodeCost cost;
  cost.forward = 10;
  cost.saved = 100;
  cost.flops = 1e6;
  two.nodes = {cost};
  Profile eight = scaledProfile(two, 8);
  EXPECT_EQ(eight.nodes[0].forward, 40);
  EXPECT_EQ(eight.nodes[0].saved, 400);
  EXPECT_EQ(eight.nodes[0].flops, 4e6);
  EXPECT_EQ(eight.actionOverhead, 5);
  EXPECT_TRUE(eight.estimated) << "it was not measured";
  eight.nodes[0].forward = 32;
  const ProfileSource source = measuredProfiles({std::make_shared<Profile>(two), std::make_shared<Profile>(eight)});
  EXPECT_EQ(source(2).profile->nodes[0].forward, 10);
  EXPECT_FALSE(source(8).scaled);
  EXPECT_EQ(source(1).profile->nodes[0].forward, 5);
  EXPECT_TRUE(source(1).scaled);
  EXPECT_EQ(source(4).profile->nodes[0].forward, 20) << "as near to both: the smaller";
  EXPECT_EQ(source(6).profile->nodes[0].forward, 24) << "nearer to 8";
}

TEST(UsualCounts, AreMultiplesOfTheRanksAndAllThatDivideTheBatch) {
  EXPECT_EQ(usualCounts(4, 1, 0), (std::vector<int>{4, 8, 16, 32}));
  EXPECT_EQ(usualCounts(4, 2, 32), (std::vector<int>{1, 2, 4, 8, 16})) << "down to one sample in each of 2 · 16 microbatches";
  EXPECT_EQ(usualCounts(4, 1, 3), (std::vector<int>{1, 3}));
  EXPECT_EQ(usualCounts(8, 1, 128), (std::vector<int>{1, 2, 4, 8, 16, 32, 64, 128})) << "eight times the ranks is not the end";
  EXPECT_EQ(usualCounts(2, 1, 10), (std::vector<int>{1, 2, 4, 5, 8, 10})) << "4 and 8 leave uneven microbatches";
}

TEST(Search, TriesSingleSamplesWithoutBeingTold) {
  const ModelGraph graph = chain(4);
  std::mt19937_64 random(1);
  SearchSpace s = space(2, 0, {}, {"1f1b"});  // exported with 2 samples: 2 · 16 in the most microbatches of the ranks' multiples
  bool single = false;
  for (const Candidate& c : searchPlans(graph, proportional(randomProfile(random, 4)), s).candidates)
    single = single || (c.request.microbatch == 1 && c.request.microbatches == 32);
  EXPECT_TRUE(single);
}

}  // namespace
}  // namespace pw::test
