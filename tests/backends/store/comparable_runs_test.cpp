// Which runs of a store can be compared with a run, and what is read of them.
#include "backends/store/comparable_runs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

constexpr Ns kMs = 1'000'000;

/// A run of so many steps; step s computes s + 1 ms a forward.
RunRecord recordOf(const std::string& schedule, int steps) {
  RunRecord run;
  run.startedAt = "2026-01-01T00:00:00Z";
  run.transport = Transport::Ucx;
  run.plan.modelName = "chain";
  run.plan.modelFiles = {"/chain.pt2"};
  run.plan.schedule = lower(generate(schedule, {2, 2, 4}));
  run.plan.splitNames = {"second"};
  run.plan.batch = 4;
  run.plan.partition.stages.resize(2);
  for (int stage = 0; stage < 2; ++stage) {
    run.plan.partition.stages[static_cast<std::size_t>(stage)].begin = NodeId(stage);
    run.plan.partition.stages[static_cast<std::size_t>(stage)].end = NodeId(stage + 1);
  }
  for (int step = 0; step < steps; ++step) {
    const CostTable costs = syntheticTable({.forward = {(step + 1) * kMs},
                                            .backward = {2 * kMs},
                                            .backwardInput = {},
                                            .backwardWeight = {},
                                            .latency = 0,
                                            .transfer = 0,
                                            .overlap = {}},
                                           2);
    run.steps.push_back({step, 0, simulate(run.plan.schedule, costs)});
    run.plan.costs = costs;
  }
  run.predicted = run.steps.front().measured;
  return run;
}

TEST(ComparableRuns, AreTheCompletedOnesOfTheSamePlanWithoutTheirFirstSteps) {
  const test::Folder folder;
  RunStore store(folder.file("runs.db"), RunStore::Mode::ReadWrite);
  store.add(recordOf("1f1b", 3));   // 1
  store.add(recordOf("gpipe", 3));  // 2: another schedule
  RunRecord failed = recordOf("1f1b", 3);
  failed.state = RunState::Failed;
  failed.failure = "rank 1 died.";
  store.add(failed);                // 3
  store.add(recordOf("1f1b", 1));   // 4: warms up only
  store.add(recordOf("1f1b", 70));  // 5: more than are read at once
  const ComparableRuns runs = comparableRuns(store, recordOf("1f1b", 1));
  EXPECT_EQ(runs.ids, (std::vector<RunId>{RunId(1), RunId(5)}));
  ASSERT_EQ(runs.times.size(), 2u);
  EXPECT_EQ(runs.times[0].size(), 2u);
  ASSERT_EQ(runs.times[1].size(), 69u);
  for (int step = 1; step < 70; ++step) {
    // Of each stage four forwards of (step + 1) ms and four backwards of 2 ms.
    EXPECT_EQ(runs.times[1][static_cast<std::size_t>(step - 1)].stages, std::vector<Ns>(2, 4 * (step + 1 + 2) * kMs));
  }
  EXPECT_EQ(runs.other, "schedule: gpipe and 1f1b");
}

TEST(ComparableRuns, DifferInWhatChangesTheirTimes) {
  const RunRecord run = recordOf("1f1b", 1);
  EXPECT_EQ(whatDiffers(run, run), std::nullopt);
  RunRecord other = run;
  other.plan.costs = {};
  other.machine.host = "elsewhere";
  EXPECT_EQ(whatDiffers(run, other), std::nullopt) << "predictions and machines do not count";
  other = run;
  other.transport = Transport::Gloo;
  EXPECT_EQ(whatDiffers(run, other), "computed with: ucx and gloo");
  other = run;
  other.facts.precision = DType::BFloat16;
  EXPECT_EQ(whatDiffers(run, other), "computed with: ucx and ucx, bf16");
  other = run;
  other.plan.partition.stages[1].begin = NodeId(7);
  EXPECT_EQ(whatDiffers(run, other), "splits");
  other = run;
  other.plan.batch = 16;
  EXPECT_EQ(whatDiffers(run, other), "batch: 4 and 16");
  other = run;
  std::swap(other.plan.schedule.rows[0][0], other.plan.schedule.rows[0][1]);
  EXPECT_EQ(whatDiffers(run, other), "order of actions in 1f1b");
  other = run;
  other.facts.optimizer = OptimizerSpec::Kind::AdamW;
  EXPECT_EQ(whatDiffers(run, other), "optimizer: unknown and adamw");
}

}  // namespace
}  // namespace pw
