// What passes between the steps of a job, which is in none of them.
#include "simulator/job/between_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "simulator/job/job_json.h"
#include "simulator/job/recover.h"
#include "simulator/report/metrics.h"
#include "tests/support/jobs.h"

namespace pw::test {
namespace {

/// Steps of 1F1B with an optimizer of 400 after each, which begin so much after the end of the one before.
MeasuredJob stepsApart(const std::vector<Ns>& apart) {
  MeasuredJob measured{"apart"};
  Ns begin = 5'000'000;
  for (const Ns before : apart) {
    MeasuredStep step{"step " + std::to_string(measured.steps.size() + 1), {}, {}};
    addCopy(step.trace, pipeline("1f1b", 4, {100, 110}, {200, 210}, 0), 0);
    normalize(step.trace);
    const Ns end = metricsOf(step.trace).makespan;
    for (int w = 0; w < 2; ++w) step.operations.push_back({JobRank(w), "optimizer", end, end + 400});
    begin += before;
    step.begin = begin;
    begin += end + 400;
    measured.steps.push_back(step);
  }
  return measured;
}

std::vector<Ns> beforeOf(const Job& job) {
  std::vector<Ns> before;
  for (const JobStep& step : job.steps) before.push_back(step.before);
  return before;
}

TEST(BetweenSteps, AreWhatTheStepsOfARecordingDoNotHold) {
  const MeasuredJob measured = stepsApart({0, 30, 5000, 40});
  const Job job = jobOf(measured);
  EXPECT_EQ(beforeOf(job), (std::vector<Ns>{kUnknownTime, 30, 5000, 40}));
  Ns sum = 0;
  for (const JobStep& step : job.steps) sum += step.step + std::max<Ns>(0, step.before);
  EXPECT_EQ(sum, *measured.steps.back().begin + job.steps.back().step - *measured.steps.front().begin) << "of the whole recording";
  const std::optional<BetweenSteps> between = betweenSteps(job);
  ASSERT_TRUE(between);
  EXPECT_EQ(between->usual, 40);
  EXPECT_EQ(between->longest, 5000);
  EXPECT_EQ(job.steps[between->longestBefore].name, "step 3");
  EXPECT_DOUBLE_EQ(between->share, 5070.0 / static_cast<double>(5070 + 3 * job.steps[0].step.value));
  EXPECT_NE(betweenText(job).find("at most 5.00 µs (before step 3)"), std::string::npos) << betweenText(job);
  EXPECT_EQ(parseJob(toJson(job), "job.json"), job);
}

/// FSDP's gathered parameters begin a step, and its optimizer ends it.
TEST(BetweenSteps, AreNotWhatTheTraceHasOfOperations) {
  MeasuredJob measured{"fsdp"};
  Ns begin = 0;
  for (const Ns before : {Ns(0), Ns(30), Ns(70)}) {
    Trace trace = pipeline("1f1b", 4, {100, 110}, {200, 210}, 0);
    const Ns end = metricsOf(trace).makespan;
    trace.spans.push_back({Rank(0), SpanKind::Load, Stage(-1), Microbatch(-1), Rank(0), 0, -60, 0});
    for (const int r : {0, 1}) trace.spans.push_back({Rank(r), SpanKind::Optimizer, Stage(-1), Microbatch(-1), Rank(r), 0, end, end + 400});
    normalize(trace);
    begin += before;
    measured.steps.push_back({.name = "step " + std::to_string(measured.steps.size()), .trace = std::move(trace), .begin = begin});
    begin += 60 + end + 400;
  }
  const Job job = jobOf(measured);
  EXPECT_EQ(beforeOf(job), (std::vector<Ns>{kUnknownTime, 30, 70}));
  ASSERT_EQ(job.operations.size(), 2U);
  EXPECT_EQ(job.operations[0].name, "UNSHARD");
  EXPECT_EQ(job.operations[0].group, OperationGroup::Replicas);
}

TEST(BetweenSteps, AreNotKnownWhereStepsWereNotRecordedOrNotTimed) {
  MeasuredJob measured = stepsApart({0, 30, 50, 40});
  measured.steps[2].name = "step 7";  // the profiler slept
  measured.steps[3].name = "step 8";
  EXPECT_EQ(beforeOf(jobOf(measured)), (std::vector<Ns>{kUnknownTime, 30, kUnknownTime, 40}));
  for (MeasuredStep& step : measured.steps) step.begin.reset();
  const Job job = jobOf(measured);
  EXPECT_EQ(betweenSteps(job), std::nullopt);
  EXPECT_EQ(betweenText(job), "");
}

TEST(BetweenSteps, OfAStepThatIsLeftOutEndWithIt) {
  MeasuredJob measured = stepsApart({0, 30, 50, 40});
  std::erase_if(measured.steps[1].trace.spans, [](const Span& span) { return span.microbatch == Microbatch(2); });
  const Job job = jobOf(measured);
  ASSERT_EQ(job.steps.size(), 3U);
  EXPECT_EQ(beforeOf(job), (std::vector<Ns>{kUnknownTime, 50, 40}));
}

TEST(BetweenSteps, HoldEvaluations) {
  MeasuredJob measured = stepsApart({0, 30, 50, 40});
  MeasuredStep& evaluation = measured.steps[2];
  std::erase_if(evaluation.trace.spans, [](const Span& span) { return span.kind != SpanKind::Forward; });
  measured.steps[1].name = "step 2, pass 1";
  evaluation.name = "step 2, pass 2";
  measured.steps[3].name = "step 3";
  const Ns whole = *measured.steps[3].begin - 40 - (*measured.steps[2].begin - 50);  // of the step that evaluates
  const Job job = jobOf(measured);
  ASSERT_EQ(job.steps.size(), 3U);
  EXPECT_EQ(beforeOf(job), (std::vector<Ns>{kUnknownTime, 30, whole + 40}));
  EXPECT_EQ(withSteps(job, 2, 2).steps.size(), 1U) << "a pass has its step's number";
}

/// Without a profiler's marks an evaluation is numbered as a step, 2 of 3.
TEST(BetweenSteps, HoldEvaluationsThatAreNumberedAsSteps) {
  MeasuredJob measured = stepsApart({0, 30, 50, 40});
  std::erase_if(measured.steps[1].trace.spans, [](const Span& span) { return span.kind != SpanKind::Forward; });
  const Ns training = *measured.steps[1].begin - 30;  // the end of step 1
  const Ns evaluated = *measured.steps[2].begin - training;
  EXPECT_EQ(beforeOf(jobOf(measured)), (std::vector<Ns>{kUnknownTime, evaluated, 40}));
  measured.steps[1].name = "step 7";  // the profiler slept before it
  EXPECT_EQ(beforeOf(jobOf(measured)), (std::vector<Ns>{kUnknownTime, kUnknownTime, 40}));
}

/// A job's file holds times of at most 4e18 ns.
TEST(BetweenSteps, BeyondWhatAJobHoldsAreUnknown) {
  MeasuredJob measured = stepsApart({0, 30});
  measured.steps[0].begin = Ns(-2'500'000'000'000'000'000);
  measured.steps[1].begin = Ns(2'500'000'000'000'000'000);
  const Job job = jobOf(measured);
  EXPECT_EQ(beforeOf(job), (std::vector<Ns>{kUnknownTime, kUnknownTime}));
  EXPECT_EQ(parseJob(toJson(job), "job.json"), job);
}

TEST(BetweenSteps, OverlappingOnesHaveNothingBetween) {
  MeasuredJob measured = stepsApart({0, 0});
  measured.steps[1].begin = *measured.steps[1].begin - 7;
  EXPECT_EQ(beforeOf(jobOf(measured)), (std::vector<Ns>{kUnknownTime, 0}));
}

}  // namespace
}  // namespace pw::test
