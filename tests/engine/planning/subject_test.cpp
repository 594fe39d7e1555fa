// What `simulate` is asked about, and its prediction.
#include "engine/planning/subject.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/planning/prediction.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "tests/support/folder.h"
#include "tests/support/graph_builder.h"
#include "tests/support/two_stages.h"

namespace pw::test {
namespace {

constexpr Ns kMs = 1'000'000;

SubjectOptions named(const char* schedule, int ranks, int microbatches) {
  SubjectOptions options;
  options.schedule = schedule;
  options.shape = {.ranks = ranks, .microbatches = microbatches};
  return options;
}

std::string refusalOf(const SubjectOptions& options) {
  return usageErrorOf([&] { static_cast<void>(subjectOf(options)); });
}

TEST(Subject, HasTheTimesOfTheOptionsAndABackwardOfTwoForwards) {
  SubjectOptions options = named("1f1b", 2, 4);
  options.forward = "1ms,3ms";
  const Subject subject = subjectOf(options);
  ASSERT_EQ(subject.costs.stages.size(), 2U);
  EXPECT_EQ(subject.costs.stages[0].forward, kMs);
  EXPECT_EQ(subject.costs.stages[1].forward, 3 * kMs);
  EXPECT_EQ(subject.costs.stages[0].backward, 2 * kMs);
  EXPECT_EQ(subject.costs.stages[1].backward, 6 * kMs);
  options.backward = "4ms";
  EXPECT_EQ(subjectOf(options).costs.stages[1].backward, 4 * kMs);
  options.forward.clear();
  EXPECT_EQ(subjectOf(options).costs.stages[1].forward, 2 * kMs) << "half the backward";
}

TEST(Subject, RefusesPartsOfABackwardThatDoNotGoTogether) {
  SubjectOptions options = named("zb-h1", 2, 4);
  options.input = "1ms";
  EXPECT_NE(refusalOf(options).find("give both --input and --weight"), std::string::npos);
  options.backward = "1ms";
  options.input = "2ms";
  EXPECT_EQ(refusalOf(options), "a part of the backward takes 2.00 ms, longer than the whole of 1.00 ms");
  options.backward = "3ms";
  const Subject subject = subjectOf(options);
  EXPECT_EQ(subject.costs.stages[0].backwardInput, 2 * kMs);
  EXPECT_EQ(subject.costs.stages[0].backwardWeight, kMs) << "what it leaves";
}

TEST(Subject, SlowsDownARankOrALink) {
  SubjectOptions options = named("gpipe", 2, 2);
  options.forward = "2ms";
  options.latency = "1ms";
  options.slow = {"1=1.5", "0-1=3"};
  const Subject subject = subjectOf(options);
  EXPECT_EQ(subject.costs.stages[0].forward, 2 * kMs);
  EXPECT_EQ(subject.costs.stages[1].forward, 3 * kMs);
  EXPECT_EQ(subject.costs.stages[1].backward, 6 * kMs);
  for (const MessageCost& message : subject.costs.messages) EXPECT_EQ(message.latency, 3 * kMs);
  for (const char* wrong : {"2", "2=", "=3", "1=0", "1=-2", "1=1e7", "1-1=2", "a=2"}) {
    options.slow = {wrong};
    EXPECT_NE(refusalOf(options).find("is not a rank or link and factor"), std::string::npos) << wrong;
  }
  options.slow = {"2=2"};
  EXPECT_EQ(refusalOf(options), "--slow 2=2 names rank 2, but ranks go from 0 to 1");
  options = named("gpipe", 3, 2);
  options.slow = {"0-2=2"};
  EXPECT_NE(refusalOf(options).find("carries no message"), std::string::npos);
}

TEST(Subject, HasALimitForEachRank) {
  SubjectOptions options = named("gpipe", 2, 2);
  options.memoryLimit = "1KiB";
  EXPECT_EQ(refusalOf(options), "--memory-limit needs the memory of stages, and these have times only; give a plan, --layers or --costs");
  const Folder folder;
  options.layers = folder.with("l.csv",
                               "name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes\n"
                               "a,1,2,3,4,5\nb,1,2,3,4,5\n");
  options.liveLimit = {2};
  const Subject subject = subjectOf(options);
  EXPECT_EQ(subject.limits, (std::vector<Bytes>{1024, 1024}));
  EXPECT_EQ(subject.liveLimits, (std::vector<int>{2, 2}));
  options.liveLimit = {1, 2, 3};
  EXPECT_EQ(refusalOf(options), "--live-limit has 3 numbers for 2 ranks; give one, or one per rank");
}

TEST(Subject, RefusesOptionsOfAnotherKindOfCosts) {
  SubjectOptions options = named("gpipe", 2, 2);
  options.optimizer = OptimizerSpec::Kind::Adam;
  EXPECT_NE(refusalOf(options).find("are for a layer table"), std::string::npos);
  options = named("gpipe", 2, 2);
  options.layers = "l.csv";
  options.forward = "1ms";
  EXPECT_NE(refusalOf(options).find("--layers has all times"), std::string::npos);
  options.layers.clear();
  options.costs = "p.json";
  EXPECT_NE(refusalOf(options).find("--costs has all times"), std::string::npos);
  options.forward = "40000000s";
  options.costs.clear();
  EXPECT_NE(refusalOf(options).find("use less than a year"), std::string::npos);
}

TEST(Subject, OfAPlanHasItsScheduleAndCosts) {
  const Plan plan = planOfTwoStages();
  const Subject subject = subjectOf(plan, {});
  EXPECT_EQ(subject.schedule, plan.schedule);
  for (std::size_t s = 0; s < plan.costs.stages.size(); ++s) EXPECT_EQ(subject.costs.stages[s].forward, plan.costs.stages[s].forward);
  SubjectOptions times;
  times.forward = "1ms";
  EXPECT_NE(usageErrorOf([&] { static_cast<void>(subjectOf(plan, times)); }), "no error");
}

/// GPipe of R equal ranks without messages: (M + R − 1) (f + b).
TEST(PredictSubject, OfGPipeIsItsClosedForm) {
  for (const int ranks : {1, 2, 4}) {
    SubjectOptions options = named("gpipe", ranks, 8);
    options.forward = "1ms";
    options.backward = "2ms";
    const SubjectPrediction prediction = predictSubject(subjectOf(options), Sending::Overlapped);
    EXPECT_TRUE(prediction.problems.empty());
    EXPECT_EQ(prediction.report.metrics.makespan, (8 + ranks - 1) * 3 * kMs) << ranks;
    EXPECT_FALSE(prediction.excess);
  }
}

TEST(PredictSubject, NamesTheFirstRankAboveALimit) {
  SubjectOptions options = named("1f1b", 2, 4);
  options.liveLimit = {1};
  const SubjectPrediction prediction = predictSubject(subjectOf(options), Sending::Overlapped);
  EXPECT_FALSE(prediction.report.fits);
  EXPECT_EQ(prediction.excess, "rank 0 has 2 live (stage, microbatch) pairs, more than its limit of 1") << "1F1B keeps R − r on rank r";
}

TEST(PredictSubject, SaysWhatStopsAScheduleInPlaceOfAPrediction) {
  Subject subject = subjectOf(named("gpipe", 2, 2));
  std::swap(subject.schedule.rows[0][1], subject.schedule.rows[0][2]);  // rank 0: F0 B0 F1 B1, but rank 1 wants F1 before it does B0
  const SubjectPrediction prediction = predictSubject(subject, Sending::Overlapped);
  ASSERT_FALSE(prediction.problems.empty());
  EXPECT_TRUE(prediction.problems.front().message.starts_with("deadlock: ")) << prediction.problems.front().message;
  EXPECT_TRUE(prediction.trace.spans.empty());
}

TEST(PredictSubject, RefusesDrawsAndJitterOutOfRange) {
  const Subject subject = subjectOf(named("gpipe", 2, 2));
  const auto refusal = [&](const JitterOptions& jitter) {
    return usageErrorOf([&] { static_cast<void>(predictSubject(subject, Sending::Overlapped, false, jitter)); });
  };
  EXPECT_NE(refusal({.sigma = -0.1}).find("--jitter"), std::string::npos);
  EXPECT_NE(refusal({.sigma = 0.1, .draws = 0}).find("--draws"), std::string::npos);
}

}  // namespace
}  // namespace pw::test
