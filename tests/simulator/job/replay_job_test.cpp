// Jobs recovered from traces and replayed: what the replay takes is derived by hand or is the trace itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "schedules/error.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/explain_job.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/recover.h"
#include "simulator/job/replay_job.h"
#include "simulator/job/replay_path.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "tests/support/jobs.h"

namespace pw::test {
namespace {

/// Moves everything on a rank from this time on by `by`.
void delay(Trace& trace, Rank rank, Ns from, Ns by) {
  for (Span& span : trace.spans) {
    if (span.rank != rank || span.start < from) continue;
    span.start += by;
    span.end += by;
  }
}

TEST(ReplayJob, GivesEverySchedulesTraceBackWhereNothingWaitsForItsHost) {
  for (const char* name : {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zbv", "looped-bfs"}) {
    const int chunks = std::string(name) == "interleaved-1f1b" || std::string(name) == "zbv" || std::string(name) == "looped-bfs" ? 2 : 1;
    const Schedule schedule = generate(name, {4, 4 * chunks, 8});
    SyntheticCosts costs;
    for (int s = 0; s < 4 * chunks; ++s) {
      costs.forward.push_back(1000 + s % 3 * Ns{100});
      costs.backwardInput.push_back(900 + s % 4 * Ns{50});
      costs.backwardWeight.push_back(800);
    }
    const Trace trace = simulate(schedule, syntheticTable(costs, 4 * chunks));
    const Job job = jobOf(jobOfSteps({trace, trace}));
    EXPECT_EQ(job.schedule.name, schedule.name);
    const JobShape shape(job);
    const std::vector<ReplayError> errors = replayErrors(shape, job, typicalTimes(shape, job));
    for (const ReplayError& error : errors) {
      EXPECT_EQ(error.measured, metricsOf(trace).makespan) << name;
      EXPECT_EQ(error.replayed, error.measured) << name;
      EXPECT_EQ(error.start, 0) << name;
    }
  }
}

TEST(ReplayJob, OfAPredictionKnowsItsMessagesSoThatNoHostIsLate) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zbv"}) {
    const int chunks = std::string(name) == "zbv" ? 2 : 1;
    const Schedule schedule = generate(name, {4, 4 * chunks, 8});
    const SyntheticCosts costs{.forward = {1000},
                               .backward = {},
                               .backwardInput = {900},
                               .backwardWeight = {700},
                               .latency = 350,
                               .transfer = 1150,
                               .overlap = {}};
    const Trace trace = simulate(schedule, syntheticTable(costs, 4 * chunks));  // messages queue for their channels
    MeasuredJob predicted = jobOfSteps({trace});
    predicted.times = TimesOf::Predicted;
    const Job job = jobOf(predicted);
    const JobShape shape(job);
    const std::vector<ReplayError> errors = replayErrors(shape, job, typicalTimes(shape, job));
    EXPECT_EQ(errors.at(0).replayed, metricsOf(trace).makespan) << name;
    EXPECT_EQ(errors.at(0).start, 0) << name;
    for (const Ns wait : job.steps.at(0).waits) EXPECT_LE(wait, 0) << name;
  }
}

TEST(ReplayJob, TakesAMessagesTimeFromWhereItsReceiverWaited) {
  // GPipe on 2 ranks: rank 1 does F0 a latency after rank 0 does, and B of the last microbatch arrives likewise.
  const Trace trace = pipeline("gpipe", 2, {100, 100}, {200, 200}, 30);
  const Job job = jobOf(jobOfSteps({trace}));
  const JobShape shape(job);
  const TypicalTimes typical = typicalTimes(shape, job);
  for (std::size_t s = 0; s < shape.copySlots.size(); ++s) {
    if (shape.copySlots[s].crosses) {
      EXPECT_EQ(typical.times.messages[s], 30) << toString(shape.copySlots[s].action);
    }
  }
  EXPECT_EQ(costsOf(job).messages.front().latency, 30);
}

TEST(ReplayJob, CallsWhatIsFarBeyondUsualAStallAndReplaysItOnlyInItsStep) {
  std::vector<Trace> steps(4, pipeline("1f1b", 4, {1000, 1000}, {2000, 2000}));
  const Ns usual = metricsOf(steps[0]).makespan;
  EXPECT_EQ(usual, (4 + 1) * 3000);
  delay(steps[2], Rank(0), usual - 2000, 5000);  // rank 0's last backward, which ends the step
  const Job job = jobOf(jobOfSteps(steps));
  const JobShape shape(job);
  const TypicalTimes typical = typicalTimes(shape, job);
  const std::vector<Stall> stalls = stallsOf(shape, job, typical);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].step, 2U);
  EXPECT_EQ(stalls[0].worker, JobRank(0));
  EXPECT_EQ(stalls[0].lost, 5000);
  const std::vector<ReplayError> errors = replayErrors(shape, job, typical);
  EXPECT_EQ(errors[2].replayed, usual + 5000);
  EXPECT_EQ(errors[1].replayed, usual);
}

TEST(TypicalTimes, AreThoseOfEachReplicaAndCostsThoseOfTheSlowest) {
  // Two replicas of two ranks; in the second, rank 0 takes twice as long, and the sum of gradients waits for it.
  const Trace quick = pipeline("1f1b", 4, {100, 100}, {200, 200}), slow = pipeline("1f1b", 4, {200, 100}, {400, 200});
  MeasuredStep step{"step 0", {}, {}};
  addCopy(step.trace, quick, 0);
  addCopy(step.trace, slow, 1);
  normalize(step.trace);
  const Ns end = metricsOf(slow).makespan;
  ASSERT_GT(end, metricsOf(quick).makespan);
  for (int w = 0; w < 4; ++w) {
    Ns ready = 0;
    for (const Span& span : step.trace.spans) {
      if (span.rank.value == w && isCompute(span.kind)) ready = std::max(ready, span.end);
    }
    step.operations.push_back({JobRank(w), "grads-reduce-scatter", ready, end + 50});
  }
  MeasuredJob measured{.name = "made"};
  measured.replicas = 2;
  measured.steps = {step, step};
  measured.steps[1].name = "step 1";
  const Job job = jobOf(measured);
  const JobShape shape(job);
  const TypicalTimes typical = typicalTimes(shape, job);
  EXPECT_EQ(slowestCopy(shape, job, typical.times), 1U);
  for (std::size_t s = 0; s < shape.slotsOfCopy(); ++s) {
    const JobShape::Slot& slot = shape.copySlots[s];
    const Ns own = slot.action.kind == ActionKind::Forward ? Ns{100} : Ns{200};
    EXPECT_EQ(typical.times.actions[s], own) << toString(slot.action);
    EXPECT_EQ(typical.times.actions[shape.slotsOfCopy() + s], slot.rank == Rank(0) ? 2 * own : own) << toString(slot.action);
  }
  const CostTable costs = costsOf(job);
  EXPECT_EQ(costs.stages[0].forward, 200);
  EXPECT_EQ(costs.stages[1].forward, 100);
  JobReplay replay;
  replayJob(shape, job, typical.times, replay);
  EXPECT_EQ(*std::ranges::max_element(replay.end), end) << "as measured";
}

TEST(ReplayJob, EndsACollectiveADurationAfterItsLastWorkerCame) {
  // Two replicas of one rank; the second computes 300 longer. A sum of 50 follows on both, then an optimizer of 20 on each.
  const Trace quick = pipeline("gpipe", 1, {100}, {100}), slow = pipeline("gpipe", 1, {100}, {400});
  MeasuredStep step{"step 0", {}, {}};
  addCopy(step.trace, quick, 0);
  addCopy(step.trace, slow, 1);
  normalize(step.trace);
  for (int w = 0; w < 2; ++w) {
    const Ns ready = w == 0 ? Ns{200} : Ns{500};
    step.operations.push_back({JobRank(w), "grads-reduce-scatter", ready, 550});
    step.operations.push_back({JobRank(w), "optimizer", 550, 570});
  }
  MeasuredJob measured{.name = "made"};
  measured.replicas = 2;
  measured.steps = {step};
  Job job = jobOf(measured);
  ASSERT_EQ(job.operations.size(), 2U);
  EXPECT_EQ(job.operations[0].group, OperationGroup::Replicas);
  for (const char* name : {"grads-all-reduce", "GRADS_REDUCE_SCATTER", "REDUCE_GRAD", "UNSHARD"}) {
    EXPECT_EQ(groupNamed(name), OperationGroup::Replicas) << name;
    EXPECT_TRUE(communicates(name)) << name;
  }
  EXPECT_EQ(groupNamed("RESHARD"), OperationGroup::Alone);
  EXPECT_FALSE(communicates("RESHARD"));
  EXPECT_EQ(job.steps[0].operations, (std::vector<Ns>{50, 20, 50, 20}));  // the quick one's wait is not the sum's
  const JobShape shape(job);
  JobTimes times = ownTimes(shape, job, 0, typicalTimes(shape, job), {});
  JobReplay replay;
  replayJob(shape, job, times, replay);
  EXPECT_EQ(replay.step, 570);
  times.actions[3] -= 250;  // the slow replica's backward, now 150: the sum starts at 250
  replayJob(shape, job, times, replay);
  EXPECT_EQ(replay.step, 320);
  const ReplayPath path = pathOf(shape, job, times, replay);
  EXPECT_EQ(path.byKind,
            (std::map<std::string, Ns>{{"F", Ns{100}}, {"B", Ns{150}}, {"grads-reduce-scatter", Ns{50}}, {"optimizer", Ns{20}}}));
}

TEST(ReplayJob, OperationsBesideTheRowDelayOnlyThoseAfterThem) {
  // F0 F1 B0 B1 of 100 each from 0 on. The first gather is waited for, the second runs beside F0; the first sum runs beside B1.
  MeasuredStep step{"step 0", pipeline("gpipe", 2, {100}, {100}), {}};
  step.operations = {{JobRank(0), "params-all-gather", -50, -10},
                     {JobRank(0), "params-all-gather 2", -10, 60},
                     {JobRank(0), "grads-reduce-scatter", 300, 350},
                     {JobRank(0), "grads-reduce-scatter 2", 400, 450},
                     {JobRank(0), "optimizer-clip-main-grad", 450, 460}};
  MeasuredJob measured{.name = "made"};
  measured.steps = {step};
  const Job job = jobOf(measured);
  ASSERT_EQ(job.operations.size(), 5U);
  EXPECT_TRUE(job.operations[0].blocks);
  EXPECT_FALSE(job.operations[1].blocks);
  EXPECT_EQ(job.operations[2].after, std::vector<std::int32_t>{3});
  EXPECT_EQ(job.operations[3].after, std::vector<std::int32_t>{4});
  EXPECT_EQ(kindOf(job.operations[3]), "grads-reduce-scatter");
  const JobShape shape(job);
  JobTimes times = ownTimes(shape, job, 0, typicalTimes(shape, job), {});
  JobReplay replay;
  replayJob(shape, job, times, replay);
  EXPECT_EQ(replay.step, 510);  // from the first gather's start
  EXPECT_EQ(replay.makespan, 400);
  times.operations[1] += 1000;  // the second gather, until 1110: the row goes on, the sums and the norm of 110 come after it
  replayJob(shape, job, times, replay);
  EXPECT_EQ(replay.makespan, 400);
  EXPECT_EQ(replay.step, 1110 + 110);
  const ReplayPath path = pathOf(shape, job, times, replay);
  EXPECT_EQ(path.byKind, (std::map<std::string, Ns>{
                             {"params-all-gather", Ns{1110}}, {"grads-reduce-scatter", Ns{100}}, {"optimizer-clip-main-grad", Ns{10}}}));
}

TEST(ReplayJob, HoldsAMessageForASumOnlyWhereItsReceiverWaitedForIt) {
  // Rank 1 sums from 400, where its backward ends, to 450. Rank 0's backward of 200 starts at once, as where a device sums beside, or then.
  for (const bool held : {false, true}) {
    SCOPED_TRACE(held);
    MeasuredStep step{"step 0", pipeline("gpipe", 1, {100, 100}, {200, 200}), {}};
    if (held) delay(step.trace, Rank(0), 400, 50);
    step.trace.spans.push_back({Rank(1), SpanKind::ReduceGrad, Stage(-1), Microbatch(-1), Rank(1), 0, 400, 450});
    MeasuredJob measured{.name = "made"};
    measured.steps = {step};
    const Job job = jobOf(measured);
    ASSERT_EQ(job.operations.size(), 1U);
    EXPECT_EQ(job.operations[0].holdsMessage, held);
    const JobShape shape(job);
    JobReplay replay;
    replayJob(shape, job, ownTimes(shape, job, 0, typicalTimes(shape, job), {}), replay);
    EXPECT_EQ(replay.makespan, held ? Ns{650} : Ns{600});
  }
}

TEST(ReplayJob, ThePathOfAUsualStepAddsUpToIt) {
  const Trace trace = pipeline("1f1b", 8, {1000, 1100, 900, 1500}, {2000, 2100, 1900, 2500}, 40);
  const Job job = jobOf(jobOfSteps({trace, trace, trace}));
  const JobShape shape(job);
  const TypicalTimes typical = typicalTimes(shape, job);
  JobReplay replay;
  replayJob(shape, job, typical.times, replay);
  const ReplayPath path = pathOf(shape, job, typical.times, replay);
  const Ns sum = std::accumulate(path.byKind.begin(), path.byKind.end(), Ns{0}, [](Ns s, const auto& kind) { return s + kind.second; });
  EXPECT_EQ(sum, replay.step);
  EXPECT_EQ(std::accumulate(path.byRank.begin(), path.byRank.end(), Ns{0}), replay.step);
  // The last stage is the slowest: filling, 8 microbatches there, draining, and three messages each way.
  EXPECT_EQ(replay.step, 1000 + 1100 + 900 + 8 * 4000 + 1900 + 2100 + 2000 + 6 * 40);
  EXPECT_EQ(path.byKind.at("SEND_F"), 120);
  EXPECT_EQ(path.byKind.at("SEND_B"), 120);
}

TEST(ReplayJob, LeavesOutAStepThatLacksAnActionAndSaysSo) {
  Trace whole = pipeline("1f1b", 4, {1000, 1000}, {2000, 2000}), cut = whole;
  std::erase_if(cut.spans,
                [](const Span& s) { return s.rank == Rank(1) && s.kind == SpanKind::Backward && s.microbatch == Microbatch(3); });
  const Job job = jobOf(jobOfSteps({whole, cut, whole}));
  ASSERT_EQ(job.steps.size(), 2U);
  EXPECT_EQ(job.notes.at(0), "step 1 was left out: worker 1 does not do 1B3.");
  EXPECT_THROW((void)jobOf(jobOfSteps({cut})), UsageError);
}

TEST(ReplayJob, CostsOfAJobPredictItsOwnTrace) {
  const Trace trace = pipeline("1f1b", 6, {1000, 1200, 800}, {2000, 2200, 1800}, 50);
  const Job job = jobOf(jobOfSteps({trace, trace, trace}));
  const CostTable costs = costsOf(job);
  EXPECT_EQ(costs.stages[1].forward, 1200);
  EXPECT_EQ(costs.stages[1].backwardInput, 1100);
  EXPECT_EQ(metricsOf(simulate(job.schedule, costs)).makespan, metricsOf(trace).makespan);
  // Half as many stages: what they took together; twice as many: half of it each.
  const CostTable one = timesFor(job, generate("1f1b", {1, 1, 6})).costs, six = timesFor(job, generate("1f1b", {6, 6, 6})).costs;
  EXPECT_EQ(one.stages[0].forward, 3000);
  EXPECT_EQ(one.stages[0].backward, 6000);
  EXPECT_EQ(six.stages[2].forward, 600);
  EXPECT_EQ(six.stages[3].forward, 600);
  EXPECT_EQ(six.stages[5].backward, 900);
  EXPECT_EQ(six.messages.size(), 10U);
  const LayerTable layers = layersOf(job);
  EXPECT_EQ(layers.layers.size(), 3U * kPartsOfStage);
  Ns forward = 0;
  for (const Layer& layer : layers.layers) forward += layer.forward;
  EXPECT_EQ(forward, 3000);
}

TEST(ReplayJob, LayersOfAJobKeepItsOptimizer) {
  CostTable table = syntheticTable({.forward = {1000}, .backward = {2000}, .backwardInput = {}, .backwardWeight = {}, .overlap = {}}, 3);
  for (StageCost& stage : table.stages) stage.optimizer = 700 + stage.forward / 10;
  const Schedule schedule = generate("1f1b", {3, 3, 4});
  const Trace trace = simulate(schedule, table);
  const Job job = jobOf(jobOfSteps({trace, trace}));
  const ModelGraph chain = chainOf(layersOf(job), "/t.json");
  const Partition cut = cutGraph(chain, {NodeId(kPartsOfStage), NodeId(2 * kPartsOfStage)}, bindBatch(chain, 1), nullptr);
  const CostTable planned = costTable(chain, cut, profileOf(chain), schedule.placement, 1);
  EXPECT_EQ(metricsOf(simulate(schedule, planned)).step, metricsOf(trace).step);
}

// Each rank holds two stages, one of them as its second replica.
TEST(ReplayJob, CostsOfABidirectionalJobPredictItsOwnStepAndMemory) {
  constexpr Ns kOptimizer = 700;
  const Schedule schedule = generate("chimera", {4, 4, 4});
  SyntheticCosts times;
  times.forward = std::vector<Ns>(4, 1000);
  times.backward = std::vector<Ns>(4, 2000);
  CostTable table = syntheticTable(times, 4);
  for (StageCost& stage : table.stages) stage.optimizer = kOptimizer;
  const Trace trace = simulate(schedule, table);
  Job job = jobOf(jobOfSteps({trace, trace}));
  ASSERT_TRUE(job.schedule.placement.bidirectional());
  job.memory.assign(4, {1000, 1600});
  const CostTable costs = costsOf(job);
  const Metrics own = metricsOf(simulate(job.schedule, costs));
  EXPECT_EQ(own.step, metricsOf(trace).step);
  for (const StageCost& stage : costs.stages) {
    EXPECT_EQ(stage.optimizer, kOptimizer);
    EXPECT_EQ(stage.parameterBytes, 500);
  }
  for (const RankMetrics& rank : own.ranks) EXPECT_EQ(rank.peakBytes, 1600);
}

TEST(ReplayJob, ActionTimesKeepWhatDiffersBetweenMicrobatches) {
  Trace trace = pipeline("gpipe", 2, {100, 100}, {200, 200});
  // The last backward of rank 0, which ends the step, takes 70 more.
  Span* last = nullptr;
  for (Span& span : trace.spans) {
    if (span.rank == Rank(0) && (last == nullptr || span.end > last->end)) last = &span;
  }
  last->end += 70;
  const Job job = jobOf(jobOfSteps({trace}));
  const CostTable costs = costsOf(job);
  Program program = compile(job.schedule, costs);
  setActionTimes(job.schedule, actionTimes(job), program);
  Times times;
  execute(program, times);
  EXPECT_EQ(metricsOf(traceOf(job.schedule, costs, program, times)).makespan, metricsOf(trace).makespan);
  EXPECT_EQ(costs.stages[0].backward, 235);
  EXPECT_EQ(leastCosts(costs, actionTimes(job)).stages[0].backward, 200);
}

TEST(ReplayJob, TakesAStepThatWarmsUpIntoNoMeanOrMedian) {
  // 1F1B takes (M + R - 1) (F + B).
  MeasuredJob measured = jobOfSteps({pipeline("1f1b", 4, {5000, 5000}, {9000, 9000}), pipeline("1f1b", 4, {1000, 1000}, {2000, 2000})});
  measured.steps[0].name = "step 0 (warm-up)";
  const Job job = jobOf(measured);
  ASSERT_EQ(job.steps.size(), 2U);
  EXPECT_EQ(job.notes.front(), "A step that warms up counts in no mean or median.");
  EXPECT_EQ(std::ranges::count(withSteps(job, 1, 1).notes, job.notes.front()), 0) << "it is not there";
  EXPECT_EQ(std::ranges::count(withSteps(job, 0, 1).notes, job.notes.front()), 1);
  const JobShape shape(job);
  const TypicalTimes typical = typicalTimes(shape, job);
  for (std::size_t s = 0; s < shape.copySlots.size(); ++s)
    EXPECT_EQ(typical.times.actions[s], shape.copySlots[s].action.kind == ActionKind::Forward ? 1000 : 2000);
  const Slowdowns slow = slowdownsOf(shape, job);
  EXPECT_EQ(slow.measured, 5 * 3000);
  EXPECT_EQ(slow.replayed, 5 * 3000);
  EXPECT_EQ(slow.ideal, 5 * 3000);
  EXPECT_EQ(slow.replayedSteps, (std::vector<Ns>{5 * 14000, 5 * 3000}));
  measured.steps.pop_back();
  EXPECT_EQ(usualSteps(jobOf(measured)), std::vector<std::size_t>{0});  // there is no other
}

TEST(ReplayJob, FindsWhatMadeAStepSlowHoweverManyStepsWarmUp) {
  for (const int warming : {0, 1, 2, 4}) {
    SCOPED_TRACE(warming);
    const Trace usual = pipeline("1f1b", 4, {1000, 1000}, {2000, 2000}), slow = pipeline("1f1b", 4, {1000, 1000}, {4000, 2000});
    std::vector<Trace> steps(static_cast<std::size_t>(warming), slow);
    steps.insert(steps.end(), {usual, usual, slow});
    MeasuredJob measured = jobOfSteps(std::move(steps));
    for (int k = 0; k < warming; ++k) measured.steps[static_cast<std::size_t>(k)].name += " (warm-up)";
    const Job job = jobOf(measured);
    const JobExplanation explained = explainJob(JobShape(job), job);
    ASSERT_FALSE(explained.worst.empty());
    EXPECT_EQ(explained.worst.front().step, static_cast<std::size_t>(warming) + 2);
    EXPECT_EQ(explained.worst.front().rank, std::optional<std::size_t>(0));
    ASSERT_TRUE(explained.worst.front().kind);
    EXPECT_EQ(explained.slowdowns.byKind[*explained.worst.front().kind].name, "B");
    EXPECT_EQ(stepsText(job), "3 measured steps");
  }
}

TEST(ReplayJob, SaysWhichStepsHaveAnotherOrder) {
  const Trace usual = pipeline("1f1b", 4, {1000, 1000}, {2000, 2000}), other = pipeline("gpipe", 4, {1000, 1000}, {2000, 2000});
  const Job job = jobOf(jobOfSteps({usual, other, usual}));
  EXPECT_EQ(job.schedule.name, "1f1b");
  EXPECT_EQ(job.steps.size(), 3U);
  EXPECT_EQ(job.notes.front(),
            "In 1 of 3 steps (step 1) a rank does its actions in another order than in most; they are replayed in the order of most, so "
            "that only their durations mean something.");
}

TEST(ReplayJob, AddsUpTheLongestTimesThatAJobMayHold) {
  // With one microbatch the ranks work one after the other: each is idle for all but 1/R of the step.
  for (const int ranks : {1, 2, 64, 500}) {
    const std::vector<Ns> each(static_cast<std::size_t>(ranks), 10);
    Job job = jobOf(jobOfSteps({pipeline("gpipe", 1, each, each)}));
    const JobShape shape(job);
    const Ns longest = longestTime(shape);
    EXPECT_GE(longest, 1'000'000'000'000) << "1000 s";
    for (Ns& time : job.steps[0].actions) time = longest;
    const JobExplanation explained = explainJob(shape, job);
    EXPECT_EQ(explained.usual.makespan, 2 * ranks * longest);
    EXPECT_NEAR(explained.metrics.bubbleFraction, 1 - 1.0 / ranks, 1e-9) << ranks;
  }
}

}  // namespace
}  // namespace pw::test
