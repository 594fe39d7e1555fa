// Simulated schedules against the closed forms of their papers, over grids inside the domain of each formula.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "simulator/report/metrics.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw {
namespace {

/// Times of every stage, and the latency of every hop between ranks.
struct Times {
  Ns forward = 1;
  Ns input = 1;
  Ns weight = 1;
  Ns latency = 0;

  [[nodiscard]] Ns whole() const { return forward + input + weight; }
};

CostTable table(const Times& times, int stages) {
  SyntheticCosts costs;
  costs.forward = {times.forward};
  costs.backwardInput = {times.input};
  costs.backwardWeight = {times.weight};
  costs.latency = times.latency;
  return syntheticTable(costs, stages);
}

Metrics simulated(std::string_view name, const Shape& shape, const Times& times) {
  return metricsOf(simulate(generate(name, shape), table(times, shape.stages)));
}

/// Most (stage, microbatch) pairs live at once, by rank.
std::vector<int> peaks(const Metrics& metrics) {
  std::vector<int> live;
  for (const RankMetrics& rank : metrics.ranks) live.push_back(rank.peakLiveMicrobatches);
  return live;
}

int highestPeak(const Metrics& metrics) { return std::ranges::max(peaks(metrics)); }

std::string said(const Shape& shape, const Times& times = {}) {
  return fmt::format("R={} stages={} M={} F={} I={} W={} c={}", shape.ranks, shape.stages, shape.microbatches, times.forward.value,
                     times.input.value, times.weight.value, times.latency.value);
}

/// Forward shorter, equal, longer than either part of the backward, and the parts uneven; W ≤ F and W ≤ I, the domain of ZB-H1.
constexpr std::array kTimes{Times{1, 1, 1}, Times{10, 7, 5}, Times{7, 12, 7}, Times{3, 20, 2}, Times{9, 4, 4}, Times{5, 6, 0}};

TEST(ClosedForms, GpipeTakesMPlusRMinus1RoundsAndHoldsAllMicrobatches) {
  for (const Times& t : kTimes) {
    for (int r = 1; r <= 7; ++r) {
      for (const int m : {1, 2, 5, 7, 16}) {
        const Metrics metrics = simulated("gpipe", {r, r, m}, t);
        EXPECT_EQ(metrics.makespan, (m + r - 1) * t.whole()) << said({r, r, m}, t);
        EXPECT_EQ(peaks(metrics), std::vector<int>(static_cast<std::size_t>(r), m)) << said({r, r, m}, t);
      }
    }
  }
}

TEST(ClosedForms, OneForwardOneBackwardTakesAsLongAsGpipeWithRMinusIMicrobatchesLive) {
  for (const Times& t : kTimes) {
    for (int r = 1; r <= 7; ++r) {
      for (const int m : {1, 2, 5, 7, 16}) {
        const Metrics metrics = simulated("1f1b", {r, r, m}, t);
        EXPECT_EQ(metrics.makespan, (m + r - 1) * t.whole()) << said({r, r, m}, t);
        for (int i = 0; i < r; ++i) {
          EXPECT_EQ(metrics.ranks[static_cast<std::size_t>(i)].peakLiveMicrobatches, std::min(r - i, m)) << said({r, r, m}, t);
        }
      }
    }
  }
}

TEST(ClosedForms, LatencyAddsOneRoundTripOfAllHopsForEveryRMicrobatchesTo1f1b) {
  // For R ≥ 2 (one rank sends nothing) and R | M; latencies longer than any action too.
  for (Times t : kTimes) {
    for (const int c : {1, 4, 50}) {
      t.latency = Ns(c);
      for (int r = 2; r <= 7; ++r) {
        for (int m = r; m <= 4 * r; m += r) {
          EXPECT_EQ(simulated("1f1b", {r, r, m}, t).makespan, (m + r - 1) * t.whole() + Ns(2 * (r - 1) * c * m / r + 2 * (r - 2) * c))
              << said({r, r, m}, t);
        }
      }
    }
  }
}

TEST(ClosedForms, InterleavingDividesTheBubbleByTheChunks) {
  // Times are of one chunk: the bubble is (R−1)(F+B) of one chunk, where all work is M·V of them. R | M.
  for (const Times& t : kTimes) {
    for (int v = 1; v <= 4; ++v) {
      for (int r = 1; r <= 5; ++r) {
        for (int m = r; m <= 4 * r; m += r) {
          const Shape shape{r, r * v, m};
          const Metrics metrics = simulated("interleaved-1f1b", shape, t);
          EXPECT_EQ(metrics.makespan, (m * v + r - 1) * t.whole()) << said(shape, t);
          const std::vector<int> live = peaks(metrics);
          for (int i = 0; i < r && v > 1; ++i) {
            EXPECT_EQ(live[static_cast<std::size_t>(i)], std::min(r * v + r - 1 - 2 * i, m * v)) << said(shape, t);
          }
        }
      }
    }
  }
}

TEST(ClosedForms, ZbH1HidesWInTheDrainOf1f1b) {
  // Flush, W ≤ F, W ≤ I, M ≥ R.
  for (const Times& t : kTimes) {
    for (int r = 1; r <= 8; ++r) {
      for (int m = r; m <= 3 * r + 1; ++m) {
        const Metrics metrics = simulated("zb-h1", {r, r, m}, t);
        EXPECT_EQ(metrics.makespan, m * t.whole() + (r - 1) * (t.forward + t.input - t.weight)) << said({r, r, m}, t);
        EXPECT_EQ(peaks(metrics), std::vector<int>(static_cast<std::size_t>(r), r)) << said({r, r, m}, t);
      }
    }
  }
}

TEST(ClosedForms, LatencyAddsFourHopsARankToZbH1) {
  // For 2c ≤ W: a round trip fits into the W between two forwards. M > R: with fewer the warmup ends before the second round trip.
  for (const Times& t : {Times{10, 9, 8, 1}, Times{10, 9, 8, 4}, Times{7, 12, 6, 3}, Times{8, 20, 8, 2}}) {
    for (int r = 1; r <= 8; ++r) {
      for (int m = r + 1; m <= 3 * r + 1; ++m) {
        EXPECT_EQ(simulated("zb-h1", {r, r, m}, t).makespan, m * t.whole() + (r - 1) * (t.forward + t.input - t.weight + 4 * t.latency))
            << said({r, r, m}, t);
      }
    }
  }
}

TEST(ClosedForms, ZbH1RunsFewerMicrobatchesThanRanksWithinItsMemory) {
  for (int r = 2; r <= 8; ++r) {
    for (int m = 1; m < r; ++m) {
      const Metrics metrics = simulated("zb-h1", {r, r, m}, {});
      EXPECT_EQ(highestPeak(metrics), m) << said({r, r, m});
      EXPECT_GE(metrics.makespan, 2 * r + m) << said({r, r, m});  // the first microbatch's chain, then m W on rank 0 or later
    }
  }
}

TEST(ClosedForms, ZbH2HasTheBubbleOfWhatWCannotHideOnTheWindow) {
  // W ≤ F, 2W ≤ F+I+2c, 2c ≤ F+I, M ≥ 2R−1. With F = I = W there is none.
  for (const Times& t :
       {Times{1, 1, 1}, Times{10, 7, 5}, Times{7, 12, 7}, Times{3, 20, 2}, Times{10, 9, 8, 1}, Times{10, 9, 8, 9}, Times{6, 4, 6, 2}}) {
    for (int r = 1; r <= 7; ++r) {
      for (int m = 2 * r - 1; m <= 4 * r + 1; ++m) {
        const Metrics metrics = simulated("zb-h2", {r, r, m}, t);
        EXPECT_EQ(metrics.window, m * t.whole() + (r - 1) * (t.forward + t.input + 2 * t.latency - 2 * t.weight)) << said({r, r, m}, t);
        EXPECT_EQ(peaks(metrics), std::vector<int>(static_cast<std::size_t>(r), 2 * r - 1)) << said({r, r, m}, t);
      }
    }
  }
}

TEST(ClosedForms, ZbVHasNoBubbleOnTheWindowWhereAllTimesAreEqual) {
  for (int r = 1; r <= 8; ++r) {
    for (int m = 2 * r - 1; m <= 4 * r + 1; ++m) {
      const Shape shape{r, 2 * r, m};
      const Metrics metrics = simulated("zbv", shape, {3, 3, 3});
      EXPECT_EQ(metrics.window, 6 * m * 3) << said(shape);
      EXPECT_EQ(metrics.makespan, 6 * m * 3 + (r - 1) * 3) << said(shape);
      EXPECT_EQ(peaks(metrics), std::vector<int>(static_cast<std::size_t>(r), 2 * r)) << said(shape);
    }
  }
}

/// Most live chunks of V-Half and V-Min (Controllable Memory, section 3), and their makespans in equal passes.
int liveOfVHalf(int ranks) { return 2 * ((ranks + 2) / 2); }
int liveOfVMin(int ranks) { return 2 * ((ranks + 4) / 3); }
int passesOfVHalf(int r, int m) { return std::max(6 * m, 6 * m + 6 * r - 3 * liveOfVHalf(r) - 1); }
int passesOfVMin(int r, int m) { return 6 * m + 6 * r - 3 * liveOfVMin(r) - 1 + (r % 3 == 2 ? 4 : 0); }

/// A few numbers of microbatches from the least of the closed forms on.
std::vector<int> fromRanksOn(int ranks) { return {ranks, ranks + 1, 2 * ranks, 3 * ranks + 2}; }

TEST(ClosedForms, VHalfReachesItsLowerBoundWithHalfTheMemory) {
  for (const int r : {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 21, 32}) {
    for (const int m : fromRanksOn(r)) {
      const Shape shape{r, 2 * r, m};
      const Metrics metrics = simulated("v-half", shape, {5, 5, 5});
      EXPECT_EQ(metrics.makespan, 5 * passesOfVHalf(r, m)) << said(shape);
      EXPECT_EQ(metrics.window, metrics.makespan) << said(shape);
      EXPECT_EQ(highestPeak(metrics), std::min(liveOfVHalf(r), 2 * m)) << said(shape);
    }
  }
}

TEST(ClosedForms, VHalfOnTwoRanksHasNoBubbleOnTheWindow) {
  // 6M passes on each rank; the second starts one later, so the flush clock cannot show less than 6M + 1.
  for (int m = 3; m <= 12; ++m) {
    const Metrics metrics = simulated("v-half", {2, 4, m}, {5, 5, 5});
    EXPECT_EQ(metrics.window, 5 * passesOfVHalf(2, m));
    EXPECT_EQ(metrics.window, 5 * 6 * m);
    EXPECT_EQ(metrics.makespan, 5 * (6 * m + 1));
    EXPECT_EQ(highestPeak(metrics), 4);
  }
}

TEST(ClosedForms, VMinTakesItsPassesWithAThirdOfTheMemory) {
  for (const int r : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 20, 21, 32}) {
    for (const int m : fromRanksOn(r)) {
      const Shape shape{r, 2 * r, m};
      const Metrics metrics = simulated("v-min", shape, {5, 5, 5});
      EXPECT_EQ(metrics.makespan, 5 * passesOfVMin(r, m)) << said(shape);
      EXPECT_EQ(highestPeak(metrics), std::min(liveOfVMin(r), 2 * m)) << said(shape);
    }
  }
}

TEST(ClosedForms, VHalfAndVMinRunAnyNumberOfMicrobatchesWithinTheirMemory) {
  // One microbatch takes the chain of 4R passes and a last W on rank 0.
  for (int r = 1; r <= 9; ++r) {
    for (int m = 1; m < r; ++m) {
      const Shape shape{r, 2 * r, m};
      const Metrics half = simulated("v-half", shape, {});
      const Metrics least = simulated("v-min", shape, {});
      EXPECT_LE(highestPeak(half), std::min(liveOfVHalf(r), 2 * m)) << said(shape);
      EXPECT_LE(highestPeak(least), std::min(liveOfVMin(r), 2 * m)) << said(shape);
      EXPECT_GE(std::min(half.makespan, least.makespan), std::max(4 * r + 1, 6 * m)) << said(shape);
      if (m == 1) {
        EXPECT_EQ(half.makespan, 4 * r + 1) << said(shape);
        EXPECT_EQ(least.makespan, 4 * r + 1) << said(shape);
      }
    }
  }
}

TEST(ClosedForms, UnitCostsOnFourRanksAndEightMicrobatches) {
  struct Case {
    std::string_view name;
    int chunks;
    Ns makespan;
    std::vector<int> peaks;
  };
  // 33 = (8+3)·3; 57 = (2·8+3)·3; 27 = 8·3 + 3·(1+1−1); 51 = 2·8·3 + 3.
  const std::vector<Case> cases{
      {"gpipe", 1, 33, {8, 8, 8, 8}},
      {"1f1b", 1, 33, {4, 3, 2, 1}},
      {"zb-h1", 1, 27, {4, 4, 4, 4}},
      {"interleaved-zb", 1, 27, {4, 4, 4, 4}},
      {"interleaved-1f1b", 2, 57, {11, 9, 7, 5}},
      {"looped-bfs", 2, 57, {16, 16, 16, 16}},
      {"interleaved-zb", 2, 51, {8, 8, 8, 8}},
      {"zbv", 2, 51, {8, 8, 8, 8}},
  };
  for (const Case& c : cases) {
    const Metrics metrics = simulated(c.name, {4, 4 * c.chunks, 8}, {});
    EXPECT_EQ(metrics.makespan, c.makespan) << c.name << " V=" << c.chunks;
    EXPECT_EQ(peaks(metrics), c.peaks) << c.name << " V=" << c.chunks;
  }
}

}  // namespace
}  // namespace pw
