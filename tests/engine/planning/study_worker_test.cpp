// What cannot be planned is an answer: a point of a study with the sentence that `plan` refuses it with.
#include "engine/planning/study_worker.h"

#include <gtest/gtest.h>

#include "backends/resources/resources.h"
#include "engine/planning/plan_model.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/partition/balancer.h"
#include "simulator/partition/recomputed_ranges.h"
#include "simulator/plan/planner.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

const std::string kModel = PW_SOURCE_DIR "/resources/models/gpt_small.pt2";
constexpr const char* kCluster = "cpu-workstation";

Study study() {
  Study study;
  study.models = {kModel};
  study.clusters = {kCluster};
  study.ranks = {2};
  study.microbatches = {4};
  return study;
}

StudyPoint good() {
  StudyPoint point;
  point.model = kModel;
  point.cluster = kCluster;
  point.schedule = "1f1b";
  point.ranks = 2;
  point.microbatches = 4;
  return point;
}

class StudyWorkerTest : public ::testing::Test {
 protected:
  StudyResult resultOf(const StudyPoint& point) {
    const StudyResult result = worker_.run(point);
    EXPECT_EQ(result.problem.empty(), result.step > 0);
    EXPECT_EQ(worker_.run(good()), first_) << "a refused point leaves nothing behind";
    return result;
  }

  const Study study_ = study();
  StudyCosts costs_{study_, ""};
  StudyWorker worker_{study_, costs_, [] { return true; }};
  const ModelGraph& graph_ = costs_.graph(kModel);
  const Profile profile_ = estimate(graph_, exportedBatch(graph_), loadCluster(kCluster));
  const StudyResult first_ = worker_.run(good());
};

TEST_F(StudyWorkerTest, ABatchThatDoesNotDivideIsRefusedAsPlanRefusesIt) {
  StudyPoint point = good();
  point.batch = 3;
  EXPECT_EQ(resultOf(point).problem, usageErrorOf([&] { static_cast<void>(settledBatch({3, 0}, 4, graph_)); }));
  point.batch = 16;
  point.microbatchSize = 3;
  EXPECT_EQ(resultOf(point).problem, usageErrorOf([&] { static_cast<void>(settledBatch({16, 3}, 4, graph_)); }));
}

TEST_F(StudyWorkerTest, AShapeThatItsScheduleDoesNotTakeIsRefused) {
  StudyPoint point = good();
  point.schedule = "dualpipe";
  point.ranks = 3;
  EXPECT_EQ(resultOf(point).problem, *generatorOf("dualpipe").refusal({3, 3 * usualChunks("dualpipe"), 4}));
}

TEST_F(StudyWorkerTest, APrecisionThatTheClusterDoesNotHaveIsRefused) {
  StudyPoint point = good();
  point.precision = DType::Float8;
  const Cluster cluster = loadCluster(kCluster);
  ASSERT_FALSE(cluster.peakFlops.contains("fp8"));
  EXPECT_EQ(resultOf(point).problem, usageErrorOf([&] { static_cast<void>(estimate(graph_, 1, cluster, DType::Float8)); }));
}

TEST_F(StudyWorkerTest, MoreStagesThanPlacesToSplitAtAreRefused) {
  StudyPoint point = good();
  point.schedule = "interleaved-1f1b";
  point.chunks = 500;
  const std::string refusal = usageErrorOf([&] { static_cast<void>(balancedSplits(graph_, profile_, 1000, Balance::Time)); });
  EXPECT_EQ(resultOf(point).problem, refusal);
  EXPECT_NE(refusal.find("cannot be cut into 1000 stages"), std::string::npos) << refusal;
}

TEST_F(StudyWorkerTest, WhatCannotBeRecomputedIsRefused) {
  StudyPoint point = good();
  point.recompute = RecomputeModules{{"no.such.module"}};
  EXPECT_EQ(resultOf(point).problem, usageErrorOf([&] { static_cast<void>(moduleRanges(graph_, {"no.such.module"})); }));
  point.recompute = RecomputeAuto();
  EXPECT_NE(resultOf(point).problem.find("set a memory limit"), std::string::npos);
  point.memoryLimit = Bytes{1} << 40;
  EXPECT_EQ(resultOf(point).problem, "");
}

TEST_F(StudyWorkerTest, SplitsMoveToFitAsPlanMovesThem) {
  StudyPoint point = good();
  point.schedule = "zbv";
  point.ranks = 6;
  point.microbatches = 29;
  point.recompute = RecomputeFull();
  point.memoryLimit = Bytes{2} << 20;
  PlanOptions options;
  options.models = {kModel};
  options.cluster = kCluster;
  options.schedule = point.schedule;
  options.ranks = point.ranks;
  options.microbatches = point.microbatches;
  options.recompute = point.recompute;
  options.memoryLimit = "2MiB";
  const PlannedModel planned = planModel(options, {});
  ASSERT_TRUE(planned.movedToFit && planned.prediction.fits);
  const StudyResult result = resultOf(point);
  EXPECT_EQ(result.step, planned.prediction.metrics.step);
  EXPECT_EQ(result.makespan, planned.prediction.metrics.makespan);
  EXPECT_EQ(result.excess, 0);
}

TEST_F(StudyWorkerTest, AnOrderIsNotSearchedForTooManyMicrobatches) {
  StudyPoint point = good();
  point.schedule = "auto";
  point.microbatches = 3'000'000;
  EXPECT_EQ(resultOf(point).problem,
            "2 stages and 3000000 microbatches are too many to search an order for; use fewer than 4000000 of both multiplied");
  point.microbatches = 4;
  const StudyResult order = resultOf(point);
  EXPECT_EQ(order.problem, "");
  EXPECT_LE(order.step, first_.step) << "never slower than a family";
}

}  // namespace
}  // namespace pw::test
