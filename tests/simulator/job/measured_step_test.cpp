// Steps of jobs beside their actions: pairs, operations, waits for hosts, one pipeline of several.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "schedules/error.h"
#include "simulator/job/explain_job.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/recover.h"
#include "simulator/job/replay_job.h"
#include "simulator/report/metrics.h"
#include "tests/support/jobs.h"

namespace pw::test {
namespace {

Ns timeOf(const Trace& trace, SpanKind kind) {
  Ns sum = 0;
  for (const Span& span : trace.spans) sum += span.kind == kind ? span.end - span.start : Ns{0};
  return sum;
}

/// Two ranks of two stages each whose optimizers take 400 after the pipeline.
MeasuredJob interleaved() {
  SyntheticCosts costs;
  costs.forward.assign(4, 100);
  costs.backward.assign(4, 200);
  Trace trace = simulate(generate("interleaved-1f1b", {2, 4, 4}), syntheticTable(costs, 4));
  const Ns end = metricsOf(trace).makespan;
  for (int r = 0; r < 2; ++r) trace.spans.push_back({Rank(r), SpanKind::Optimizer, Stage(-1), Microbatch(-1), Rank(r), 0, end, end + 400});
  normalize(trace);
  return jobOfSteps({trace, trace});
}

/// A message that arrives while its rank computes, or just after, is no wait of the rank's host.
TEST(MeasuredSteps, MessagesThatAreHiddenInPartAreNoWaitsOfHosts) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zbv", "interleaved-1f1b"}) {
    for (const Ns latency : {Ns(30), Ns(80), Ns(170)}) {
      for (const TimesOf times : {TimesOf::Predicted, TimesOf::Measured}) {
        const int stages = std::string(name) == "zbv" || std::string(name) == "interleaved-1f1b" ? 8 : 4;
        SCOPED_TRACE(std::string(name) + " " + std::to_string(latency.value) + " " + std::string(nameOf(times)));
        SyntheticCosts costs;
        for (int s = 0; s < stages; ++s) {
          costs.forward.push_back(Ns(100 + 10 * (s % 3)));
          costs.backward.push_back(Ns(200 + 20 * (s % 4)));
          costs.backwardInput.push_back(Ns(100 + 10 * (s % 4)));
          costs.backwardWeight.push_back(Ns(100 + 10 * (s % 4)));
        }
        costs.latency = latency;
        Trace trace = simulate(generate(name, {4, stages, 8}), syntheticTable(costs, stages));
        const Ns makespan = metricsOf(trace).makespan;
        if (times == TimesOf::Measured) std::erase_if(trace.spans, [](const Span& span) { return isMessage(span.kind); });
        MeasuredJob measured = jobOfSteps({trace, trace});
        measured.times = times;
        const Job job = jobOf(measured);
        const JobShape shape(job);
        const TypicalTimes typical = typicalTimes(shape, job);
        for (std::size_t s = 0; s < shape.slotsOfCopy(); ++s) EXPECT_EQ(typical.times.waits[s], 0) << toString(shape.copySlots[s].action);
        JobReplay replay;
        replayJob(shape, job, typical.times, replay);
        EXPECT_EQ(replay.makespan, makespan);
      }
    }
  }
}

TEST(MeasuredSteps, APairTakesAsLongAsItDidOnceNotTwice) {
  const Schedule schedule = generate("dualpipev", {2, 4, 6});
  SyntheticCosts costs;
  costs.forward.assign(4, 1000);
  costs.backward.assign(4, 2000);
  costs.overlap.assign(4, 3000);
  costs.backwardInput.assign(4, 1000);
  costs.backwardWeight.assign(4, 1000);
  const Trace trace = simulate(schedule, syntheticTable(costs, 4));
  const Job job = jobOf(jobOfSteps({trace, trace}));
  const JobShape shape(job);
  const auto measured = static_cast<double>(metricsOf(trace).makespan);
  for (const ReplayError& error : replayErrors(shape, job, typicalTimes(shape, job)))
    EXPECT_NEAR(static_cast<double>(error.replayed), measured, 0.02 * measured);
  for (std::size_t s = 0; s < shape.slotsOfCopy(); ++s) {
    const Action& action = shape.copySlots[s].action;
    EXPECT_EQ(job.steps[0].actions[s], action.kind == ActionKind::Backward ? 2000 : 1000) << toString(action);
  }
}

/// With blocking sends, and in lockstep, the last stage waits before its backwards, too, and nothing is missing.
TEST(MeasuredSteps, AJobWithoutItsLastRanksIsRefusedAndNoOtherWhoseLastStageWaits) {
  SyntheticCosts costs;
  costs.forward.assign(4, 100);
  costs.backward.assign(4, 200);
  costs.transfer = 50;
  const Trace trace = simulate(generate("1f1b", {4, 4, 4}), syntheticTable(costs, 4), Sending::Blocking);
  ASSERT_TRUE(
      std::ranges::any_of(trace.spans, [](const Span& span) { return span.kind == SpanKind::WaitBackward && span.stage == Stage(3); }));
  MeasuredJob measured = jobOfSteps({trace, trace});
  EXPECT_EQ(jobOf(measured).schedule.rows.size(), 4U);
  measured.lacksLastStages = true;
  try {
    static_cast<void>(jobOf(measured));
    FAIL() << "taken for a whole pipeline";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("lacks the last part of its pipeline: its last stage, 3, has messages"), std::string::npos)
        << error.what();
  }
}

TEST(MeasuredSteps, ARanksOperationsStayAsLongWhereItsStagesAreCutAnew) {
  const Job job = jobOf(interleaved());
  const auto optimizerOf = [&](int stages, std::size_t s) {
    return timesFor(job, generate("gpipe", {stages, stages, 4})).costs.stages[s].optimizer;
  };
  for (std::size_t s = 0; s < 4; ++s) EXPECT_EQ(optimizerOf(4, s), 200);
  for (std::size_t s = 0; s < 2; ++s) EXPECT_EQ(optimizerOf(2, s), 400) << "two of the stages";
}

TEST(MeasuredSteps, AReplayedStepHasTheOperationsOfTheMeasuredOne) {
  const MeasuredJob measured = interleaved();
  const Job job = jobOf(measured);
  const JobShape shape(job);
  const TypicalTimes typical = typicalTimes(shape, job);
  JobReplay replay;
  replayJob(shape, job, typical.times, replay);
  const Trace step = stepOf(shape, job, typical.times, replay, 0);
  EXPECT_EQ(timeOf(step, SpanKind::Optimizer), 800);
  EXPECT_EQ(metricsOf(step), metricsOf(measured.steps[0].trace));
}

TEST(MeasuredSteps, OfSeveralPipelinesTheSlowestStandsForTheStep) {
  const Trace quick = pipeline("1f1b", 4, {100, 100}, {200, 200}), slow = pipeline("1f1b", 4, {200, 100}, {400, 200});
  MeasuredStep step{"step 0", {}, {}};
  addCopy(step.trace, quick, 0);
  addCopy(step.trace, slow, 1);
  normalize(step.trace);
  MeasuredJob measured{.name = "made", .replicas = 2, .steps = {step, step}};
  EXPECT_EQ(slowestPipeline(measured, measured.steps[0]).spans, slow.spans);
  measured.replicas = 1;
  EXPECT_EQ(slowestPipeline(measured, measured.steps[0]).spans, step.trace.spans) << "one pipeline of four ranks";
}

TEST(MeasuredSteps, WaitsForHostsAreIdleTime) {
  // Rank 0 starts each of its 4 forwards 50 late, though nothing holds it up; rank 1 waits for it.
  Trace trace = pipeline("gpipe", 4, {100, 100}, {200, 200});
  for (Span& span : trace.spans) {
    const bool isForward = span.kind == SpanKind::Forward;
    const Ns late = Ns{50} * std::int64_t{isForward ? span.microbatch.value + 1 : 4};
    span.start += late;
    span.end += late;
  }
  normalize(trace);
  const Job job = jobOf(jobOfSteps({trace, trace, trace}));
  const JobExplanation explained = explainJob(JobShape(job), job);
  ASSERT_EQ(explained.hostWaits.size(), 2U);
  EXPECT_EQ(explained.hostWaits[0], 150) << "all but the first, before which the step begins";
  const Metrics measured = metricsOf(trace);
  EXPECT_NEAR(explained.metrics.bubbleFraction, measured.bubbleFraction, 0.01);
  EXPECT_EQ(explained.metrics.ranks[0].busy, measured.ranks[0].busy);
}

}  // namespace
}  // namespace pw::test
