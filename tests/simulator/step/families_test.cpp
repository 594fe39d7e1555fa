// Simulated schedules of the families that overlap, fold, mirror or go in step, against their closed forms; and all against free messages
// timed apart.

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
#include "tests/support/unit_times.h"

namespace pw {
namespace {

using test::UnitCosts;

CostTable table(const UnitCosts& unit, int stages, Ns latency = 0, Ns transfer = 0) {
  SyntheticCosts costs;
  costs.forward = {Ns(unit.f)};
  costs.backward = {Ns(unit.b)};
  costs.backwardInput = {Ns(unit.i)};
  costs.backwardWeight = {Ns(unit.w)};
  costs.latency = latency;
  costs.transfer = transfer;
  return syntheticTable(costs, stages);
}

Metrics simulated(std::string_view name, const Shape& shape, const UnitCosts& unit, Ns latency = 0, Ns transfer = 0) {
  return metricsOf(simulate(generate(name, shape), table(unit, shape.stages, latency, transfer)));
}

/// Times of a B that is its I and W, one after the other.
UnitCosts whole(int f, int i, int w) { return {.f = f, .b = i + w, .i = i, .w = w}; }

std::vector<int> peaks(const Metrics& metrics) {
  std::vector<int> live;
  for (const RankMetrics& rank : metrics.ranks) live.push_back(rank.peakLiveMicrobatches);
  return live;
}

std::string said(const Shape& shape, const UnitCosts& unit = {}) {
  return fmt::format("R={} stages={} M={} F={} B={} I={} W={}", shape.ranks, shape.stages, shape.microbatches, unit.f, unit.b, unit.i,
                     unit.w);
}

/// Bubble of every rank where all do the same work: M microbatches of V chunks.
Ns bubble(const Metrics& metrics, const Shape& shape, const UnitCosts& unit) {
  return metrics.makespan - Ns(shape.microbatches * (shape.stages / shape.ranks) * (unit.f + unit.b));
}

TEST(Families, FreeMessagesGiveEveryGeneratorTheTimesOfItsRowsAlone) {
  int shapes = 0;
  for (const Generator& generator : generators()) {
    for (const int ranks : {1, 2, 3, 4, 6, 7}) {
      for (const int chunks : {1, 2, 3, 4}) {
        for (const int microbatches : {1, 2, 3, 4, 7, 8, 12, 14, 16}) {
          const Shape shape{ranks, ranks * chunks, microbatches};
          if (generator.refusal(shape)) continue;
          Schedule schedule = generator.generate(shape);
          for (auto& row : schedule.rows) std::erase(row, kIdle);
          for (const UnitCosts& unit : {UnitCosts{1, 2, 1, 1}, UnitCosts{7, 12, 9, 4}, UnitCosts{5, 3, 2, 6}, UnitCosts{2, 9, 8, 1}}) {
            const Metrics metrics = metricsOf(simulate(schedule, table(unit, shape.stages)));
            const bool trains = generator.name != "forward-only";  // else a microbatch lives as long as its F
            EXPECT_EQ(peaks(metrics), trains ? test::peakLive(schedule) : std::vector<int>(schedule.rows.size(), 1))
                << generator.name << " " << said(shape, unit);
            if (schedule.lockstep) continue;  // its ranks wait for each other beyond their messages
            const test::UnitTimes times(schedule, unit);
            ASSERT_TRUE(times.finished()) << generator.name << " " << said(shape, unit);
            EXPECT_EQ(metrics.makespan, times.makespan()) << generator.name << " " << said(shape, unit);
            EXPECT_EQ(metrics.window, times.window()) << generator.name << " " << said(shape, unit);
          }
          ++shapes;
        }
      }
    }
  }
  EXPECT_GT(shapes, 50 * static_cast<int>(generators().size()));
}

TEST(Families, GpipeWithMessagesIsTwoPipelinesOfItsSlowestLink) {
  // Each way a row of queues: the first microbatch passes R actions and R−1 messages, each other one comes after the slower of action and
  // transfer. The last rank turns round at once.
  for (const UnitCosts& unit : {whole(10, 7, 5), whole(3, 20, 2), whole(9, 4, 0)}) {
    for (const int transfer : {0, 3, 10, 15, 40}) {
      for (const int latency : {0, 1, 30}) {
        for (int r = 1; r <= 6; ++r) {
          for (const int m : {1, 2, 5, 11}) {
            const int steady = r == 1 ? unit.f + unit.b : std::max(unit.f, transfer) + std::max(unit.b, transfer);
            EXPECT_EQ(simulated("gpipe", {r, r, m}, unit, Ns(latency), Ns(transfer)).makespan,
                      r * (unit.f + unit.b) + 2 * (r - 1) * (latency + transfer) + (m - 1) * steady)
                << said({r, r, m}, unit) << " c=" << latency << " transfer=" << transfer;
          }
        }
      }
    }
  }
}

TEST(Families, DualPipeHasTheBubbleOfItsReportAndRPlus1Microbatches) {
  // (R/2−1)(F&B + B − 3W), slots of F + B, exact where W ≤ F = I.
  for (const UnitCosts& unit : {whole(1, 1, 1), whole(6, 6, 4), whole(5, 5, 0), whole(7, 7, 7)}) {
    for (int r = 2; r <= 12; r += 2) {
      for (const int m : {2 * r, 2 * r + 2, 4 * r + 6}) {
        const Shape shape{r, r, m};
        const Metrics metrics = simulated("dualpipe", shape, unit);
        EXPECT_EQ(bubble(metrics, shape, unit), (r / 2 - 1) * (unit.f + unit.b + unit.b - 3 * unit.w)) << said(shape, unit);
        EXPECT_EQ(peaks(metrics), std::vector<int>(static_cast<std::size_t>(r), r + 1)) << said(shape, unit);
      }
    }
  }
}

TEST(Families, DualPipeVHasTheBubbleOfDualPipeOfTwiceTheRanks) {
  // (R−1)(F&B + B − 3W) in times of a chunk, again where W ≤ F = I: outside, no other times were found to fit.
  for (const UnitCosts& unit : {whole(1, 1, 1), whole(6, 6, 4), whole(5, 5, 0), whole(7, 7, 7)}) {
    for (int r = 1; r <= 8; ++r) {
      for (const int m : {2 * r, 2 * r + 1, 4 * r + 3}) {
        const Shape shape{r, 2 * r, m};
        const Metrics metrics = simulated("dualpipev", shape, unit);
        EXPECT_EQ(bubble(metrics, shape, unit), (r - 1) * (unit.f + unit.b + unit.b - 3 * unit.w)) << said(shape, unit);
        EXPECT_EQ(peaks(metrics), std::vector<int>(static_cast<std::size_t>(r), 2 * r + 1)) << said(shape, unit);
      }
    }
  }
}

TEST(Families, DualPipeVOnFourRanksTakes54UnitsAnd51WithoutSlots) {
  // 8·2·3 = 48 of work, and 3·(3 + 2 − 3) = 6.
  Schedule schedule = generate("dualpipev", {4, 8, 8});
  const CostTable costs = table({.f = 1, .b = 2, .i = 1, .w = 1}, 8);
  Metrics metrics = metricsOf(simulate(schedule, costs));
  EXPECT_EQ(metrics.makespan, 54);
  EXPECT_EQ(peaks(metrics), std::vector<int>(4, 9));
  for (auto& row : schedule.rows) {
    for (Action& action : row) action.overlapsNext = false;
  }
  metrics = metricsOf(simulate(schedule, costs));
  EXPECT_EQ(metrics.makespan, 51);
  EXPECT_EQ(peaks(metrics), std::vector<int>(4, 9));
}

TEST(Families, SlotsOfTheirOwnTimeShortenDualPipe) {
  // F = I = W = 10, B = 20 on two ranks, no bubble: every rank's work is its actions one after the other, but slots take 22 instead of 30.
  const Schedule schedule = generate("dualpipe", {2, 2, 8});
  CostTable costs = table(whole(10, 10, 10), 2);
  const auto slots = std::ranges::count_if(schedule.rows[0], [](const Action& a) { return a.overlapsNext; });
  ASSERT_GT(slots, 0);
  EXPECT_EQ(metricsOf(simulate(schedule, costs)).makespan, 8 * 30);
  costs.overlap = {22, 22};
  EXPECT_EQ(metricsOf(simulate(schedule, costs)).makespan, 8 * 30 - slots * 8);
}

TEST(Families, ChimeraHasRMinus2OfTheLongerPartAsBubble) {
  for (const auto& [f, b] : {std::pair{1, 1}, {1, 2}, {3, 2}, {7, 12}}) {
    for (int r = 2; r <= 12; r += 2) {
      for (const int m : {r, r + 2, 2 * r, 4 * r, 6 * r - 2}) {
        const Shape shape{r, r, m};
        const UnitCosts unit{.f = f, .b = b};
        const Metrics metrics = simulated("chimera", shape, unit);
        EXPECT_EQ(bubble(metrics, shape, unit), (r - 2) * std::max(f, b)) << said(shape, unit);
        for (int i = 0; m == r && i < r; ++i) {
          EXPECT_EQ(metrics.ranks[static_cast<std::size_t>(i)].peakLiveMicrobatches, r / 2 + 1 + std::min(i, r - 1 - i))
              << said(shape, unit);
        }
      }
    }
  }
}

TEST(Families, HanayoHasTheLongerPartOfAChunkForEveryRankButOneTwice) {
  // 2(R−1)·max(F, B)/V, here in times of a chunk; R | M.
  for (const auto& [f, b] : {std::pair{1, 1}, {1, 2}, {3, 2}, {7, 12}}) {
    for (int r = 1; r <= 7; ++r) {
      for (const int chunks : {2, 4, 6}) {
        for (const int m : {r, 2 * r, 4 * r}) {
          const Shape shape{r, r * chunks, m};
          const UnitCosts unit{.f = f, .b = b};
          EXPECT_EQ(bubble(simulated("hanayo", shape, unit), shape, unit), 2 * (r - 1) * std::max(f, b)) << said(shape, unit);
        }
      }
    }
  }
}

TEST(Families, LockstepTakesACycleForEveryExchangeAndTheSlowestRanksSum) {
  // Of M+2R−2 cycles R−1 have forwards only, then M have a rank that does both, then R−1 backwards only; all but the last end in an
  // exchange. In the first R−1 the first rank loads; in the M the last one loads and stores. The first load is before the makespan.
  for (const auto& [f, b] : {std::pair{1, 2}, {12, 7}, {5, 5}}) {
    for (const auto& [latency, transfer] : {std::pair{0, 0}, {3, 0}, {0, 4}, {50, 60}}) {
      for (const auto& [load, store] : {std::pair{0, 0}, {2, 0}, {1, 30}}) {
        for (int r = 2; r <= 6; ++r) {
          for (const int m : {r - 1, r, r + 1, 3 * r}) {
            const Shape shape{r, r, m};
            const UnitCosts unit{.f = f, .b = b};
            CostTable costs = table(unit, r, Ns(latency), Ns(transfer));
            costs.load = Ns(load);
            costs.store = Ns(store);
            const Metrics metrics = metricsOf(simulate(generate("lockstep", shape), costs));
            EXPECT_EQ(metrics.makespan,
                      (m + r - 1) * (f + b) + (m + 2 * r - 3) * (latency + transfer) + (r - 1) * load + m * (load + store) - load)
                << said(shape, unit) << " c=" << latency << " transfer=" << transfer << " load=" << load << " store=" << store;
            for (int i = 0; i < r; ++i) {
              EXPECT_EQ(metrics.ranks[static_cast<std::size_t>(i)].peakLiveMicrobatches, std::min(m, 2 * (r - 1 - i) + 1))
                  << said(shape, unit);
            }
          }
        }
      }
    }
  }
}

TEST(Families, LockstepWaitsInEveryCycleForTheOneSlowRank) {
  // Where every rank but k takes nothing, what that one does is all: M forwards and backwards, whether or not they share a cycle.
  for (int r = 2; r <= 6; ++r) {
    for (int k = 0; k < r; ++k) {
      for (const int m : {1, 2, 5, 20}) {
        CostTable costs = table({.f = 0, .b = 0, .i = 0, .w = 0}, r);
        costs.stages[static_cast<std::size_t>(k)].forward = 5;
        costs.stages[static_cast<std::size_t>(k)].backward = 9;
        EXPECT_EQ(metricsOf(simulate(generate("lockstep", {r, r, m}), costs)).makespan, m * (5 + 9))
            << "R=" << r << " k=" << k << " M=" << m;
        // Where the others take 6 and 6, rank k sets the pace in cycles k … k+M−1 and 2R−2−k … 2R−3−k+M, the others before and after.
        costs = table({.f = 6, .b = 6}, r);
        costs.stages[static_cast<std::size_t>(k)].forward = 60;
        costs.stages[static_cast<std::size_t>(k)].backward = 90;
        Ns expected = 0;
        for (int cycle = 0; cycle < m + 2 * r - 2; ++cycle) {
          int slowest = 0;
          for (int i = 0; i < r; ++i) {
            const bool forward = cycle >= i && cycle < i + m;
            const bool backward = cycle >= 2 * r - 2 - i && cycle < 2 * r - 2 - i + m;
            slowest = std::max(slowest, (forward ? (i == k ? 60 : 6) : 0) + (backward ? (i == k ? 90 : 6) : 0));
          }
          expected += Ns(slowest);
        }
        EXPECT_EQ(metricsOf(simulate(generate("lockstep", {r, r, m}), costs)).makespan, expected) << "R=" << r << " k=" << k << " M=" << m;
      }
    }
  }
}

}  // namespace
}  // namespace pw
