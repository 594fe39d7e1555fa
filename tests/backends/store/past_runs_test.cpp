// Which runs of a store a profile is calibrated by.
#include "backends/store/past_runs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/step/simulate.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

constexpr Ns kMs = 1'000'000;

/// A run of which every duration is `factor` times as long as predicted.
RunRecord recordOf(const std::string& schedule, double factor, int steps) {
  RunRecord run;
  run.startedAt = "2026-01-01T00:00:00Z";
  run.transport = Transport::Ucx;
  Plan& plan = run.plan;
  plan.modelFiles = {"/chain.pt2"};
  plan.modelName = "chain";
  plan.splitNames = {"second"};
  plan.batch = 4;
  plan.schedule = lower(generate(schedule, {2, 2, 4}));
  plan.partition.stages.resize(2);
  for (int stage = 0; stage < 2; ++stage) {
    plan.partition.stages[static_cast<std::size_t>(stage)].begin = NodeId(stage);
    plan.partition.stages[static_cast<std::size_t>(stage)].end = NodeId(stage + 1);
  }
  plan.profile.model = "chain";
  plan.profile.nodes = {{.forward = kMs, .backward = 2 * kMs}, {.forward = kMs, .backward = 2 * kMs}};
  plan.costs = syntheticTable(
      {.forward = {kMs}, .backward = {2 * kMs}, .backwardInput = {}, .backwardWeight = {}, .latency = 0, .transfer = 0, .overlap = {}}, 2);
  run.predicted = simulate(plan.schedule, plan.costs);
  const CostTable measured =
      calibrated(plan.costs, {.forward = factor, .backward = factor, .optimizer = 1, .perAction = 0, .perSend = 0, .perMessage = 0}, 0,
                 plan.schedule.placement);
  for (int step = 0; step < steps; ++step) run.steps.push_back({step, 0, simulate(plan.schedule, measured)});
  return run;
}

class PastRuns : public testing::Test {
 protected:
  test::Folder folder;
  RunStore store{folder.file("runs.db"), RunStore::Mode::ReadWrite};
};

TEST_F(PastRuns, CalibrateTheProfileThatTheyWerePlannedFrom) {
  store.add(recordOf("gpipe", 1.5, 4));  // 1
  store.add(recordOf("1f1b", 1.5, 50));  // 2: another schedule, the same profile
  RunRecord other = recordOf("gpipe", 9, 4);
  other.plan.profile.nodes.front().forward = 7;
  store.add(other);  // 3: another profile
  RunRecord rehearsed = recordOf("gpipe", 9, 4);
  rehearsed.facts.synthetic = true;
  store.add(rehearsed);                // 4
  store.add(recordOf("gpipe", 9, 1));  // 5: warms up only
  RunRecord gloo = recordOf("gpipe", 9, 4);
  gloo.transport = Transport::Gloo;
  store.add(gloo);  // 6
  const CalibratedProfile result = calibratedBy(store, RunId(2));
  EXPECT_EQ(result.ids, (std::vector<RunId>{RunId(1), RunId(2)}));
  EXPECT_NEAR(result.report.calibration.forward, 1.5, 1e-9);
  EXPECT_NEAR(result.report.calibration.backward, 1.5, 1e-9);
  EXPECT_EQ(result.profile.nodes.front().forward, kMs * 3 / 2);
  EXPECT_EQ(result.profile.uncertainty, result.report.uncertainty);
  EXPECT_EQ(calibratedBy(store, {}).ids, (std::vector<RunId>{RunId(6)})) << "the newest that can be used";
}

TEST_F(PastRuns, AreMissedInOneSentence) {
  EXPECT_THROW((void)calibratedBy(store, {}), UsageError);
  store.add(recordOf("gpipe", 1, 1));
  EXPECT_THROW((void)calibratedBy(store, {}), UsageError);
  EXPECT_THROW((void)calibratedBy(store, RunId(1)), UsageError);
  EXPECT_THROW((void)calibratedBy(store, RunId(2)), UsageError);
}

}  // namespace
}  // namespace pw
