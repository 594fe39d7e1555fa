#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/problem_file.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"
#include "simulator/step/cost_table.h"
#include "tests/support/random_costs.h"
#include "tests/support/split_backward.h"

namespace pw {
namespace {

CostTable uniform(int stages, Ns forward, Ns input, Ns weight, Ns latency = 0) {
  SyntheticCosts costs;
  costs.forward = {forward};
  costs.backwardInput = {input};
  costs.backwardWeight = {weight};
  costs.latency = latency;
  return syntheticTable(costs, stages);
}

std::vector<int> same(int ranks, int limit) { return std::vector<int>(static_cast<std::size_t>(ranks), limit); }

std::vector<int> peaksOf(const Metrics& metrics) {
  std::vector<int> peaks;
  for (const RankMetrics& rank : metrics.ranks) peaks.push_back(rank.peakLiveMicrobatches);
  return peaks;
}

TEST(LowerBounds, Of1f1bWithItsMemoryAreReachedAtEqualTimes) {
  for (const auto& [f, b] : {std::pair{1, 2}, {7, 5}, {3, 3}}) {
    for (int r = 1; r <= 7; ++r) {
      std::vector<int> limits;
      for (int i = 0; i < r; ++i) limits.push_back(r - i);
      for (int m = 1; m <= 3 * r; ++m) {
        const LowerBounds bounds = lowerBounds(generate("1f1b", {r, r, m}), uniform(r, Ns(f), Ns(b), 0), limits);
        EXPECT_EQ(bounds.flush, (m + r - 1) * (f + b)) << "R=" << r << " M=" << m;
        EXPECT_EQ(bounds.window, (m + r - 1) * (f + b)) << "R=" << r << " M=" << m;
      }
    }
  }
}

TEST(LowerBounds, ShowThatZbH1IsTheBestForItsMemory) {
  // M(F+I+W) + (R−1)(F+I−W+4c) for R live on every rank, M > R, W ≤ F, W ≤ I, 2c ≤ W: (b) on rank 0 with both of its idle times.
  struct Case {
    Ns f, i, w, c;
  };
  for (const auto& [f, i, w, c] : {Case{1, 1, 1, 0}, Case{10, 7, 5, 0}, Case{10, 9, 8, 4}, Case{7, 12, 6, 3}, Case{8, 20, 8, 2}}) {
    for (int r = 1; r <= 7; ++r) {
      for (int m = r + 1; m <= 3 * r; ++m) {
        const Schedule schedule = generate("zb-h1", {r, r, m});
        const CostTable costs = uniform(r, f, i, w, c);
        const LowerBounds bounds = lowerBounds(schedule, costs, same(r, r));
        EXPECT_EQ(bounds.flush, m * (f + i + w) + (r - 1) * (f + i - w + 4 * c)) << "R=" << r << " M=" << m;
        EXPECT_EQ(bounds.flush, metricsOf(simulate(schedule, costs)).makespan) << "R=" << r << " M=" << m;
      }
    }
  }
}

TEST(LowerBounds, OfAVWithEqualPassesAreSixMPlusSixRMinusThreeKMinusOne) {
  // For more pairs than the limit (2M > k) and k ≤ 2R; more memory leaves 6M.
  for (int r = 1; r <= 9; ++r) {
    for (int k = 2; k <= 2 * r; ++k) {
      for (const int m : {k / 2 + 1, r + k, 4 * r + 3}) {
        const LowerBounds bounds = lowerBounds(generate("zbv", {r, 2 * r, m}), uniform(2 * r, 5, 5, 5), same(r, k));
        // Few places let a pair in only when another leaves: M(4R+4) passes of life on each rank, and the ramps of k(k−1)/2 on both sides.
        const int lives = (m * (4 * r + 4) + k * (k - 1) + k - 1) / k;
        EXPECT_GE(bounds.window, 5 * (lives - 1)) << "R=" << r << " M=" << m << " k=" << k;
        EXPECT_GE(bounds.window, 5 * std::max(6 * m, 6 * m + 6 * r - 3 * k - 1)) << "R=" << r << " M=" << m << " k=" << k;
        if (lives <= 6 * m && 3 * k >= 2 * r + 2) {
          EXPECT_EQ(bounds.window, 5 * std::max(6 * m, 6 * m + 6 * r - 3 * k - 1)) << "R=" << r << " M=" << m << " k=" << k;
        }
      }
    }
  }
}

TEST(LowerBounds, OfAVCountTheForwardsThatFindRoomTogether) {
  // The last rank starts after 7 F and waits for its first I (9 F and 7 I) with the Fs that find room: 1562 bytes hold both stages of 7
  // microbatches, and the first of one more. Counted by themselves, 19 of the second would fit.
  CostTable costs = uniform(16, 500, 450, 400);
  for (StageCost& stage : costs.stages) stage.activationBytes = 100;
  costs.stages[7].activationBytes = 119;
  costs.stages[8].activationBytes = 80;
  std::vector<Bytes> limits(8, 0);
  limits.back() = 1562;
  const LowerBounds bounds = lowerBounds(generate("zbv", {8, 16, 24}), costs, {}, limits);
  EXPECT_EQ(bounds.flush, 7 * 500 + 24 * 2700 + (9 * 500 + 7 * 450 - 15 * 500));
}

TEST(LowerBounds, AreReachedByVHalfVMinZbVAndInterleaved) {
  for (int r = 1; r <= 10; ++r) {
    for (const int m : {2 * r, 3 * r + 3}) {
      for (const std::string_view name : {"v-half", "v-min", "zbv"}) {
        if (name == "v-min" && (r % 3 == 2 || r == 1)) continue;
        const Schedule schedule = generate(name, {r, 2 * r, m});
        const CostTable costs = uniform(2 * r, 3, 3, 3);
        const Metrics metrics = metricsOf(simulate(schedule, costs));
        const std::vector<int> peaks = peaksOf(metrics);
        const LowerBounds bounds = lowerBounds(schedule, costs, same(r, *std::max_element(peaks.begin(), peaks.end())));
        EXPECT_EQ(bounds.window, metrics.window) << name << " R=" << r << " M=" << m;
      }
    }
    for (int v = 1; v <= 4; ++v) {
      const Schedule schedule = generate("interleaved-1f1b", {r, r * v, 3 * r});
      const CostTable costs = uniform(r * v, 2, 3, 1);
      const Metrics metrics = metricsOf(simulate(schedule, costs));
      EXPECT_EQ(lowerBounds(schedule, costs, peaksOf(metrics)).flush, metrics.makespan) << "R=" << r << " V=" << v;
      EXPECT_EQ(metrics.makespan, (3 * r * v + r - 1) * 6) << "R=" << r << " V=" << v;
    }
  }
}

TEST(LowerBounds, OfOneLiveMicrobatchAreItsWholeLifeEachTime) {
  // One at a time on rank 0: F0 0–10, F1 13–23, I1 23–33, I0 36–46, W0 46–51; then the next.
  const Schedule schedule = test::splitBackward(generate("1f1b", {2, 2, 3}));
  const LowerBounds bounds = lowerBounds(schedule, uniform(2, 10, 10, 5, 3), std::vector{1, 1});
  EXPECT_EQ(bounds.flush, 3 * 51);
  EXPECT_EQ(bounds.window, 3 * 51);
}

TEST(LowerBounds, GrowWithLatencyAs1f1bDoes) {
  // R more microbatches cost R(F+B) + 2(R−1)c: the round trip of all hops cannot be hidden with R places.
  for (int r = 2; r <= 6; ++r) {
    for (const int c : {1, 5, 40}) {
      std::vector<int> limits;
      for (int i = 0; i < r; ++i) limits.push_back(r - i);
      const auto at = [&](int m) { return lowerBounds(generate("1f1b", {r, r, m}), uniform(r, 10, 20, 0, Ns(c)), limits).flush; };
      // With enough of them this bound is the largest.
      EXPECT_EQ(at(1001 * r) - at(1000 * r), r * 30 + 2 * (r - 1) * c) << "R=" << r << " c=" << c;
    }
  }
}

TEST(LowerBounds, CountTheWayToASlowRankAndTheWItCannotPutOff) {
  // F = I = 10, W = 5 on rank 0 and 20, 20, 4 on rank 1, hops of 3, M = 4, 2 live on each: rank 1 has F and I of all four, 160, and W of
  // two before the last F, 8; the way there and back takes 10 + 3 + 3 + 10, and a W on rank 0 another 5.
  const Schedule schedule = generate("zb-h1", {2, 2, 4});
  CostTable costs = uniform(2, 10, 10, 5, 3);
  costs.stages[1] = {.forward = 20, .backward = 24, .backwardInput = 20, .backwardWeight = 4};
  EXPECT_EQ(lowerBounds(schedule, costs, std::vector{2, 2}).flush, 160 + 8 + 26 + 5);
  // Rank 1 with 1 live: W of three before the last F.
  EXPECT_EQ(lowerBounds(schedule, costs, std::vector{2, 1}).flush, 160 + 12 + 26 + 5);
  // Rank 0 with 1 live: its life F0 0–10, F1 13–33, I1 33–53, I0 56–66, W0 66–71, four times.
  EXPECT_EQ(lowerBounds(schedule, costs, std::vector{1, 2}).flush, 4 * 71);
  // Without limits no W need come early. Rank 0 works from the first to the last of it, so its window is as long.
  EXPECT_EQ(lowerBounds(schedule, costs, {}).flush, 160 + 26 + 5);
  EXPECT_EQ(lowerBounds(schedule, costs, {}).window, 160 + 26 + 5);
  EXPECT_EQ(lowerBound(schedule, costs), 160 + 26 + 5);
}

TEST(LowerBounds, OfForwardsKnowNoGradients) {
  // Four forwards of 3 and three hops of 2; the table's gradient messages are not sent.
  EXPECT_EQ(lowerBound(generate("forward-only", {4, 4, 1}), uniform(4, 3, 5, 5, 2)), 4 * 3 + 3 * 2);
}

TEST(LowerBounds, OfStagesThatExchangeNothingAreTheirWork) {
  CostTable costs = uniform(3, 5, 4, 3);
  costs.messages.clear();
  const LowerBounds bounds = lowerBounds(generate("1f1b", {3, 3, 6}), costs, same(3, 1));
  EXPECT_EQ(bounds, (LowerBounds{6 * 12, 6 * 12}));
}

TEST(LowerBounds, OfOverlappedPairsCountTheirOwnDuration) {
  // F = 3, B = 6 and both at once 6: 3 + 6 + 6, where one after the other would be 18.
  const Schedule schedule = parseCsv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n", "csv", "csv");
  CostTable costs = uniform(1, 3, 3, 3);
  costs.overlap = {6};
  EXPECT_EQ(lowerBounds(schedule, costs, {}), (LowerBounds{3 + 6 + 6, 3 + 6 + 6}));
}

TEST(LowerBounds, RefuseLimitsThatAreNone) {
  const Schedule schedule = generate("1f1b", {2, 2, 3});
  EXPECT_THROW((void)lowerBounds(schedule, uniform(2, 1, 1, 1), std::vector{2}), UsageError);
  EXPECT_THROW((void)lowerBounds(schedule, uniform(2, 1, 1, 1), std::vector{2, 0}), UsageError);
}

/// An order drawn at random: repeatedly some rank does some action whose inputs are there, and begins no forward beyond its limit.
/// Empty rows where the limits brought it to a standstill (several stages on a rank).
Schedule randomOrder(std::mt19937_64& random, const Placement& placement, int microbatches, bool split, const std::vector<int>& limits) {
  Schedule schedule{.name = "random", .microbatches = microbatches, .placement = placement, .rows = {}};
  schedule.rows.resize(limits.size());
  const std::size_t stages = placement.stages();
  enum { kF = 1, kI = 2, kW = 4 };
  std::vector<std::vector<int>> done(stages, std::vector<int>(static_cast<std::size_t>(microbatches), 0));
  std::vector<int> live(limits.size(), 0);
  const std::int64_t eager = test::draw(random, 0, 3);  // how much a backward is preferred
  while (true) {
    std::vector<Action> ready;
    for (std::size_t s = 0; s < stages; ++s) {
      for (std::size_t m = 0; m < done[s].size(); ++m) {
        const int state = done[s][m];
        const std::size_t rank = placement.rankOfStage[s].index();
        const Action action{Stage(s), ActionKind::Forward, Microbatch(m)};
        if (state == 0 && live[rank] < limits[rank] && (s == 0 || (done[s - 1][m] & kF) != 0)) ready.push_back(action);
        if (state == kF && (s + 1 == stages || (done[s + 1][m] & kI) != 0)) {
          for (std::int64_t i = 0; i <= eager; ++i)
            ready.push_back({Stage(s), split ? ActionKind::BackwardInput : ActionKind::Backward, Microbatch(m)});
        }
        if (state == (kF | kI)) ready.push_back({Stage(s), ActionKind::BackwardWeight, Microbatch(m)});
      }
    }
    if (ready.empty()) break;
    const Action a = ready[static_cast<std::size_t>(test::draw(random, 0, static_cast<std::int64_t>(ready.size()) - 1))];
    const std::size_t rank = placement.rankOfStage[a.stage.index()].index();
    done[a.stage.index()][a.microbatch.index()] |= a.kind == ActionKind::Forward         ? kF
                                                   : a.kind == ActionKind::BackwardInput ? kI
                                                   : a.kind == ActionKind::Backward      ? kI | kW
                                                                                         : kW;
    if (a.kind == ActionKind::Forward) ++live[rank];
    if (a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardWeight) --live[rank];
    schedule.rows[rank].push_back(a);
  }
  const bool whole = std::all_of(done.begin(), done.end(), [](const auto& stage) {
    return std::all_of(stage.begin(), stage.end(), [](int d) { return d == (kF | kI | kW); });
  });
  if (!whole) schedule.rows.clear();
  return schedule;
}

/// Small times, so that limits and latencies matter now and then; equal on all stages in a third of the cases.
CostTable smallCosts(std::mt19937_64& random, int stages, int microbatches) {
  SyntheticCosts costs;
  const int count = test::oneIn(random, 3) ? 1 : stages;
  for (auto* list : {&costs.forward, &costs.backwardInput, &costs.backwardWeight}) {
    for (int s = 0; s < count; ++s) list->push_back(test::draw<Ns>(random, list == &costs.backwardWeight ? Ns{0} : Ns{1}, 6));
  }
  costs.latency = test::oneIn(random, 2) ? test::draw<Ns>(random, 1, 8) : 0;
  costs.transfer = test::oneIn(random, 3) ? test::draw<Ns>(random, 1, 4) : 0;
  CostTable table = syntheticTable(costs, stages);
  if (test::oneIn(random, 4)) {
    for (int m = 0; m < microbatches; ++m) table.microbatchScale.push_back(static_cast<double>(test::draw(random, 1, 8)) / 4.0);
  }
  return table;
}

TEST(LowerBounds, AreNeverAboveAnyOrderWithinTheLimits) {
  int orders = 0, reached = 0;
  for (std::uint64_t seed = 1; seed <= 6000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = static_cast<int>(test::draw(random, 1, 4));
    const int chunks = test::oneIn(random, 3) ? 2 : 1;
    const int microbatches = static_cast<int>(test::draw(random, 1, 6));
    const Shape shape{ranks, ranks * chunks, microbatches};
    Placement placement = chunks == 2 && test::oneIn(random, 2) ? wavePlacement(shape) : loopPlacement(shape);
    if (test::oneIn(random, 4)) std::shuffle(placement.rankOfStage.begin(), placement.rankOfStage.end(), random);
    std::vector<int> limits;
    for (int r = 0; r < ranks; ++r) limits.push_back(static_cast<int>(test::draw(random, 1, chunks * 4)));
    const Schedule schedule = randomOrder(random, placement, microbatches, test::oneIn(random, 2), limits);
    if (schedule.rows.empty()) continue;
    ++orders;
    ASSERT_TRUE(check(schedule).empty());
    const CostTable costs = smallCosts(random, shape.stages, microbatches);
    const Metrics metrics = metricsOf(simulate(schedule, costs));
    const LowerBounds bounds = lowerBounds(schedule, costs, limits);
    ASSERT_LE(bounds.flush, metrics.makespan);
    ASSERT_LE(bounds.window, metrics.window);
    // What it really holds is a tighter limit.
    std::vector<int> peaks;
    for (std::size_t r = 0; r < limits.size(); ++r) peaks.push_back(metrics.ranks[r].peakLiveMicrobatches);
    const LowerBounds tighter = lowerBounds(schedule, costs, peaks);
    ASSERT_LE(tighter.flush, metrics.makespan);
    ASSERT_LE(tighter.window, metrics.window);
    ASSERT_GE(tighter.flush, bounds.flush);
    ASSERT_GE(bounds.flush, lowerBound(schedule, costs));
    reached += tighter.flush == metrics.makespan ? 1 : 0;
  }
  EXPECT_GT(orders, 4000);
  EXPECT_GT(reached, 300);  // else the test would not see a bound that is a little too high
}

TEST(LowerBounds, AreNeverAboveAnyOrderWithinItsBytes) {
  int orders = 0, raised = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = static_cast<int>(test::draw(random, 1, 4)), microbatches = static_cast<int>(test::draw(random, 1, 6));
    const Shape shape{ranks, 2 * ranks, microbatches};
    const Placement placement = test::oneIn(random, 2) ? wavePlacement(shape) : loopPlacement(shape);
    const std::vector<int> limits = same(ranks, static_cast<int>(test::draw(random, 2, 8)));
    const Schedule schedule = randomOrder(random, placement, microbatches, test::oneIn(random, 4), limits);
    if (schedule.rows.empty()) continue;
    ++orders;
    CostTable costs = smallCosts(random, shape.stages, microbatches);
    for (StageCost& stage : costs.stages) {
      stage.parameterBytes = test::draw<Bytes>(random, 0, 50);
      stage.activationBytes = test::draw<Bytes>(random, 0, 20);
      stage.freedByInput = test::draw<Bytes>(random, 0, stage.activationBytes);
      stage.addedByInput = test::oneIn(random, 4) ? test::draw<Bytes>(random, 0, 30) : 0;
    }
    for (std::size_t s = 1; s < costs.stages.size(); ++s) {
      if (placement.rankOfStage[s - 1] == placement.rankOfStage[s]) costs.stages[s].sharedForWeight = heldForWeight(costs.stages[s]);
    }
    const Metrics metrics = metricsOf(simulate(schedule, costs));
    std::vector<Bytes> peaks;
    for (const RankMetrics& rank : metrics.ranks) peaks.push_back(rank.peakBytes);
    const LowerBounds bounds = lowerBounds(schedule, costs, {}, peaks);
    ASSERT_LE(bounds.flush, metrics.makespan);
    ASSERT_LE(bounds.window, metrics.window);
    raised += bounds.flush > lowerBound(schedule, costs) ? 1 : 0;
  }
  EXPECT_GT(orders, 2000);
  EXPECT_GT(raised, 200);
}

TEST(LowerBounds, InBytesAreThoseOfAsManyPairs) {
  // Equal activations that W frees: a limit of k of them and a bit is one of k pairs.
  for (int r = 1; r <= 5; ++r) {
    for (int k = 1; k <= 2 * r; ++k) {
      const Schedule schedule = generate("gpipe", {r, r, 3 * r});
      CostTable costs = uniform(r, 10, 9, 8, 4);
      for (StageCost& stage : costs.stages) stage.activationBytes = 100;
      const std::vector<Bytes> bytes(static_cast<std::size_t>(r), Bytes(100 * k + 99));
      EXPECT_EQ(lowerBounds(schedule, costs, {}, bytes), lowerBounds(schedule, costs, same(r, k))) << r << " ranks, " << k;
    }
  }
}

TEST(LowerBounds, InBytesHoldWhereAPieceHasNeitherTimeNorBytes) {
  // W of some stages takes no time and keeps nothing; the order below stays within the limits, so that no bound can be above its makespan.
  constexpr std::string_view kProblem =
      R"({"ranks": 2, "microbatches": 5, "place": [0, 1, 1, 0, 0, 1, 1, 0], "forward_ns": [1, 6, 6, 0, 4, 4, 4, 5],
          "input_ns": [3, 1, 2, 0, 6, 2, 1, 4], "weight_ns": [1, 0, 0, 0, 0, 0, 9, 1], "latency_ns": [2],
          "activation": [4, 9, 10, 0, 0, 0, 4, 8], "activation_after_input": [4, 0, 9, 0, 0, 0, 2, 7], "limit": [38, 45]})";
  constexpr std::string_view kOrder =
      "0F0,0F1,0F2,0F3,0F4,3F0,4F0,7F0,7I0,3F1,4F1,4I0,3I0,7F1,7I1,3F2,4F2,4I1,3I1,0I0,3W0,4W0,7W0,7F2,7I2,3W1,4W1,3F3,4F3,"
      "4I2,3I2,0I1,7W1,0W0,7W2,7F3,7I3,3F4,4F4,0I2,0W1,0W2,3W2,4W2,7W3,7F4,7I4,4I3,3I3,4I4,3I4,0I3,0W3,3W3,3W4,4W3,4W4,7W4,"
      "0I4,0W4\n"
      "1F0,2F0,1F1,5F0,6F0,2F1,6I0,5I0,5F1,6F1,2I0,2W0,1F2,1I0,2F2,6I1,5I1,6W0,5F2,6F2,2I1,2W1,1F3,1I1,2F3,6I2,5I2,6W1,5F3,"
      "6F3,2I2,2W2,1F4,1I2,2F4,6I3,6W2,5F4,6F4,5I3,6W3,6I4,5I4,1W0,1W1,1W2,5W0,5W1,5W2,5W3,5W4,2I3,1I3,1W3,2W3,2I4,1I4,1W4,"
      "2W4,6W4\n";
  const ProblemFile problem = parseProblem(kProblem, "problem");
  const Schedule order = parseCsv(kOrder, "order", "order");
  const Metrics metrics = metricsOf(simulate(order, problem.costs));
  EXPECT_EQ(metrics.makespan, 198);
  for (std::size_t r = 0; r < 2; ++r) EXPECT_LE(metrics.ranks[r].peakBytes, problem.limits[r]);
  const LowerBounds bounds = lowerBounds(order, problem.costs, {}, problem.limits);
  EXPECT_LE(bounds.flush, metrics.makespan);
  EXPECT_LE(bounds.window, metrics.window);
}

TEST(LowerBounds, AreNeverAboveAnyFamily) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (const Generator& family : generators()) {
      const int ranks = static_cast<int>(test::draw(random, 1, 6));
      const Shape shape{ranks, ranks * family.chunks, static_cast<int>(test::draw(random, 1, 14))};
      if (family.refusal != nullptr && family.refusal(shape)) continue;
      const Schedule schedule = generate(family.name, shape);
      CostTable costs = test::oneIn(random, 2) ? test::randomCosts(random, schedule) : smallCosts(random, shape.stages, shape.microbatches);
      if (costs.microbatchScale.empty() && test::oneIn(random, 2)) {
        // A slot takes as long as the longer of the two, and no longer than both.
        Ns longest = 0;
        for (const StageCost& stage : costs.stages) longest = std::max({longest, stage.forward, stage.backward});
        costs.overlap.assign(costs.stages.size(), longest);
      }
      const Metrics metrics = metricsOf(simulate(schedule, costs));
      const LowerBounds bounds = lowerBounds(schedule, costs, peaksOf(metrics));
      ASSERT_LE(bounds.flush, metrics.makespan) << family.name;
      ASSERT_LE(bounds.window, metrics.window) << family.name;
    }
  }
}

// 1000 chunks on each rank, whose round trips take in each other's: their sum is beyond 64 bits. A sum that wraps bounds less, so only
// the sanitizers of `./dev check asan` see one.
TEST(LowerBounds, OfLongStepsOfManyChunksStayBelowThem) {
  const Schedule schedule = generate("interleaved-1f1b", {2, 2000, 100});
  const CostTable costs = uniform(2000, Ns(100'000'000'000), Ns(100'000'000'000), Ns(100'000'000'000));
  const Metrics metrics = metricsOf(simulate(schedule, costs));
  const LowerBounds bounds = lowerBounds(schedule, costs, peaksOf(metrics));
  EXPECT_LE(bounds.flush, metrics.makespan);
  EXPECT_GE(bounds.flush, Ns(100'000'000'000) * 3 * 1000 * 100) << "the work of a rank";
}

}  // namespace
}  // namespace pw
