// Slowdowns by stragglers, against closed forms of 1F1B.
#include <gtest/gtest.h>

#include <cmath>

#include "simulator/job/explain_job.h"
#include "simulator/job/explain_job_json.h"
#include "simulator/job/recover.h"
#include "simulator/job/slowdown.h"
#include "tests/support/jobs.h"

namespace pw::test {
namespace {

constexpr int kMicrobatches = 8;

/// 1F1B on R ranks: filling and draining through the other stages, and all microbatches on the slowest, which is the last.
double step(double others, double last, int ranks) { return (ranks - 1) * others + kMicrobatches * last; }

TEST(Slowdown, IsOneWhereAllStagesTakeEquallyLong) {
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 1000, 1000}, {2000, 2000, 2000});
  const Job job = jobOf(jobOfSteps({trace, trace}));
  const Slowdowns slow = slowdownsOf(JobShape(job), job);
  EXPECT_EQ(slow.slowdown, 1);
  EXPECT_EQ(slow.ideal, 10 * 3000);
  for (const Culprit& worker : slow.byWorker) EXPECT_EQ(worker.slowdown, 1);
  EXPECT_EQ(stragglerText(explainJob(JobShape(job), job)),
            "No straggler: with all operations of a kind equally long the step would take as long.");
}

// With a last stage half a percent slower the step is 2 × 3000 + 8 × 3015, and 10 × 3005 where all are alike: 0.2 % longer.
TEST(Slowdown, SaysThatASmallOneIsSmall) {
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 1000, 1005}, {2000, 2000, 2010});
  const Job job = jobOf(jobOfSteps({trace, trace}));
  const JobExplanation explained = explainJob(JobShape(job), job);
  EXPECT_NEAR(explained.slowdowns.slowdown, 30120.0 / 30050, 1e-4);
  EXPECT_EQ(stragglerText(explained),
            "No straggler: with all operations of a kind equally long the step would be less than 1.0 % shorter.");
}

// Forwards of 1 and 2 and backwards of 2 and 1: both stages take 3. With equal ones, and as it is, the step is 3 of filling and draining
// and 8 × 3; with the forwards as they are and backwards of 1.5 it is 1 + 1.5 and 8 × 3.5.
TEST(Slowdown, SaysWhichKindsMakeUpForEachOther) {
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 2000}, {2000, 1000});
  const Job job = jobOf(jobOfSteps({trace, trace}));
  const JobExplanation explained = explainJob(JobShape(job), job);
  EXPECT_EQ(explained.slowdowns.slowdown, 1);
  const std::string text = stragglerText(explained);
  EXPECT_NE(text.find("others make up for"), std::string::npos) << text;
  EXPECT_NE(text.find("F (13.0 %)"), std::string::npos) << text;  // 30.5 / 27
}

TEST(Slowdown, StopsBeforeTheNextReplay) {
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 1000, 1000}, {2000, 2000, 2000});
  const Job job = jobOf(jobOfSteps({trace, trace}));
  const JobShape shape(job);
  int polls = 0;
  ASSERT_TRUE(explainJob(shape, job, [&] { return ++polls > 0; }));
  EXPECT_GT(polls, 2 * (2 + 2 + 3 + 3)) << "kinds, messages, stages and ranks, of both steps";
  for (const int last : {1, 2, polls / 2, polls}) {
    int seen = 0;
    EXPECT_FALSE(explainJob(shape, job, [&] { return ++seen < last; }));
    EXPECT_EQ(seen, last) << "it is not asked again";
  }
}

TEST(Slowdown, OfALongLastStageIsItsClosedForm) {
  constexpr int kRanks = 4;
  constexpr double kLonger = 2;
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 1000, 1000, 2000}, {2000, 2000, 2000, 4000});
  const Job job = jobOf(jobOfSteps({trace, trace, trace}));
  const Slowdowns slow = slowdownsOf(JobShape(job), job);
  const double mean = (kRanks - 1 + kLonger) / kRanks;  // of F + B, in units of 3000
  const double ideal = step(mean, mean, kRanks);
  EXPECT_NEAR(slow.slowdown, step(1, kLonger, kRanks) / ideal, 1e-9);
  // Only the last stage as measured: the others take the mean. Only another one as measured: it takes less than the mean.
  EXPECT_NEAR(slow.byStage[3].slowdown, step(mean, kLonger, kRanks) / ideal, 1e-9);
  EXPECT_NEAR(slow.byStage[0].slowdown, ((kRanks - 2) * mean + 1 + kMicrobatches * mean) / ideal, 1e-9);
  EXPECT_EQ(slow.byRank[3].slowdown, slow.byStage[3].slowdown);
  EXPECT_EQ(slow.byWorker[3].slowdown, std::min(slow.slowdown, slow.byStage[3].slowdown));
  // F alone: its share is a third of the whole.
  EXPECT_EQ(slow.byKind[0].name, "B");
  EXPECT_GT(slow.byKind[0].slowdown, slow.byKind[1].slowdown);
  EXPECT_NEAR(slow.waits, 1, 1e-9);
}

TEST(Slowdown, OfASlowReplicaIsThatOfItsWorkersAndOfNoOthers) {
  // Three replicas of two ranks, a sum of gradients that joins them; replica 1 takes 1.5 times as long.
  MeasuredJob measured{.name = "made"};
  measured.replicas = 3;
  const Trace quick = pipeline("1f1b", kMicrobatches, {1000, 1000}, {2000, 2000}),
              slow = pipeline("1f1b", kMicrobatches, {1500, 1500}, {3000, 3000});
  for (int k = 0; k < 2; ++k) {
    MeasuredStep one{"step " + std::to_string(k), {}, {}};
    for (int replica = 0; replica < 3; ++replica) addCopy(one.trace, replica == 1 ? slow : quick, replica);
    normalize(one.trace);
    for (int w = 0; w < 6; ++w) {
      Ns end = 0;
      for (const Span& span : one.trace.spans) {
        if (span.rank == Rank(w)) end = std::max(end, span.end);
      }
      const Ns together = w % 2 == 0 ? Ns{9 * 4500} : Ns{9 * 4500 - 3000};  // rank 1 ends before rank 0's last backward
      one.operations.push_back({JobRank(w), "grads-reduce-scatter", end, together + 100});
    }
    measured.steps.push_back(one);
  }
  const Job job = jobOf(measured);
  const JobShape shape(job);
  const Slowdowns slowdowns = slowdownsOf(shape, job);
  const double mean = (3000 + 4500 + 3000) / 3.0, ideal = 9 * mean + 100;
  EXPECT_NEAR(slowdowns.slowdown, (9 * 4500.0 + 100) / ideal, 1e-4);  // means are whole ns
  EXPECT_NEAR(slowdowns.byReplica[1].slowdown, slowdowns.slowdown, 1e-4);
  EXPECT_NEAR(slowdowns.byReplica[0].slowdown, 1, 1e-4);
  EXPECT_NEAR(slowdowns.byWorker[2].slowdown, std::min(slowdowns.byReplica[1].slowdown, slowdowns.byRank[0].slowdown), 1e-9);
  EXPECT_NEAR(slowdowns.byWorker[0].slowdown, 1, 1e-4);
  EXPECT_NE(stragglerText(explainJob(shape, job)).find("replica 1"), std::string::npos);
}

TEST(Slowdown, WorstStepsNameWhatGrewInThem) {
  const Trace usual = pipeline("1f1b", kMicrobatches, {1000, 1000}, {2000, 2000});
  const Trace slow = pipeline("1f1b", kMicrobatches, {1000, 1000}, {2000, 3000});  // B of rank 1
  std::vector<Trace> steps(9, usual);
  steps[3] = steps[5] = steps[7] = slow;
  const Job job = jobOf(jobOfSteps(steps));
  const JobShape shape(job);
  const JobExplanation explained = explainJob(shape, job);
  ASSERT_GE(explained.worst.size(), 3U);
  EXPECT_EQ(explained.worst[0].step, 3U);
  EXPECT_NEAR(explained.worst[0].aboveUsual, (3000 + 8 * 4000.0) / (9 * 3000) - 1, 1e-9);
  ASSERT_TRUE(explained.worst[0].kind && explained.worst[0].rank);
  EXPECT_EQ(explained.slowdowns.byKind[*explained.worst[0].kind].name, "B");
  EXPECT_EQ(*explained.worst[0].rank, 1U);
  EXPECT_EQ(explained.replay[3].replayed, explained.replay[3].measured);
  const std::string json = explanationJson(shape, job, explained);
  for (const char* key : {"step_ns", "slowdown", "by_kind", "by_stage", "by_rank", "by_worker", "bubbles", "worst_steps", "critical_path"})
    EXPECT_NE(json.find("\"" + std::string(key) + "\""), std::string::npos) << key;
}

}  // namespace
}  // namespace pw::test
