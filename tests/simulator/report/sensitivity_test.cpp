#include "simulator/report/sensitivity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/report/metrics.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

/// gpipe of two stages with F = B = 10 and 30: the second bounds each microbatch, M (30 + 30), after the first forward and before its
/// backward; and messages of 3 on the way there and back.
TEST(Sensitivity, IsThatOfTheClosedForm) {
  constexpr int kMicrobatches = 4;
  const CostTable costs = syntheticTable({{100, 300}, {100, 300}, {}, {}, 30, 0, {}}, 2);
  const SensitivityReport report = sensitivityOf(generate("gpipe", {2, 2, kMicrobatches}), costs, Sending::Overlapped, 0.1);
  const auto makespan = [](Ns first, Ns second, Ns message) { return first + message + kMicrobatches * 2 * second + message + first; };
  EXPECT_EQ(report.makespan, makespan(100, 300, 30));
  ASSERT_EQ(report.all.size(), 3U);
  EXPECT_EQ(report.all[0], (Sensitivity{Stage(1), kMicrobatches * 600, makespan(100, 270, 30), makespan(100, 330, 30)}));
  EXPECT_EQ(report.all[1], (Sensitivity{Stage(0), 200, makespan(90, 300, 30), makespan(110, 300, 30)}));
  EXPECT_EQ(report.all[2], (Sensitivity{RankPair{Rank(0), Rank(1)}, 60, makespan(100, 300, 27), makespan(100, 300, 33)}));
  EXPECT_EQ(nameOf(report.all[1].of), "stage 0");
  EXPECT_EQ(nameOf(report.all[2].of), "link 0–1");
  EXPECT_THROW((void)sensitivityOf(generate("gpipe", {2, 2, 4}), costs, Sending::Overlapped, 0), UsageError);
}

/// The times are those of costs that are changed by hand; and the makespan is convex in each, so that the path's slope is below it to both
/// sides.
TEST(Sensitivity, IsWhatAChangeByHandGives) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const Schedule schedule = randomSchedule(random);
    CostTable costs = randomCosts(random, schedule);
    for (StageCost& stage : costs.stages) {
      for (Ns* time : {&stage.forward, &stage.backward, &stage.backwardInput, &stage.backwardWeight})
        *time *= 1600;  // so that nothing is rounded
    }
    for (MessageCost& message : costs.messages) {
      message.latency *= 1600;
      message.transfer *= 1600;
    }
    for (Ns& overlap : costs.overlap) overlap *= 1600;
    const SensitivityReport report = sensitivityOf(schedule, costs, Sending::Overlapped, 0.25);
    EXPECT_EQ(report.makespan, metricsOf(simulate(schedule, costs)).makespan);
    std::set<Stage> stages;
    for (const Sensitivity& s : report.all) {
      for (const bool slower : {false, true}) {
        CostTable other = costs;
        const auto change = [&](Ns& time) { time = time * (slower ? 5 : 3) / 4; };
        if (const auto* stage = std::get_if<Stage>(&s.of)) {
          stages.insert(*stage);
          StageCost& cost = other.stages[stage->index()];
          for (Ns* time : {&cost.forward, &cost.backward, &cost.backwardInput, &cost.backwardWeight}) change(*time);
          if (!other.overlap.empty()) change(other.overlap[stage->index()]);
        } else {
          const RankPair link = std::get<RankPair>(s.of);
          for (MessageCost& m : other.messages) {
            const Rank from = schedule.placement.rankOfStage[m.from.index()], to = schedule.placement.rankOfStage[m.to.index()];
            if (std::min(from, to) != link.low || std::max(from, to) != link.high) continue;
            change(m.latency);
            change(m.transfer);
          }
        }
        const Ns by = metricsOf(simulate(schedule, other)).makespan;
        EXPECT_EQ(slower ? s.slower : s.faster, by) << "seed " << seed << " " << nameOf(s.of);
        EXPECT_GE(by, report.makespan + (slower ? s.onPath : -s.onPath) / 4 - 1) << "seed " << seed << " " << nameOf(s.of);
      }
    }
    EXPECT_EQ(stages.size(), costs.stages.size());
    EXPECT_TRUE(std::ranges::is_sorted(report.all, std::greater(), &Sensitivity::span));
  }
}

}  // namespace
}  // namespace pw::test
