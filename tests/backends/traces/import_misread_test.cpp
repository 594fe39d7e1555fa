// Jobs whose labels leave out what a reader must then find: stages, chunks, passes within a step, steps of another size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "backends/traces/import.h"
#include "schedules/generate.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/recover.h"
#include "simulator/step/simulate.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

using Json = nlohmann::json;

constexpr Ns kForward(4'000'000), kBackward(8'000'000);

Json event(const std::string& name, int rank, double start, double duration) {
  return {{"ph", "X"}, {"cat", "user_annotation"}, {"name", name}, {"pid", rank}, {"tid", 1}, {"ts", start}, {"dur", duration}};
}

double microseconds(Ns time) { return static_cast<double>(time.value) / 1000; }

/// When each action of a step runs, where every F takes 4 ms, every B 8 ms or so long, its parts half of it, and messages no time.
Trace stepOf(const Schedule& schedule, Ns backward = kBackward) {
  CostTable costs;
  for (std::size_t s = 0; s < schedule.placement.stages(); ++s) {
    StageCost cost;
    cost.forward = kForward;
    cost.backward = backward;
    cost.backwardInput = cost.backwardWeight = backward / 2;
    costs.stages.push_back(cost);
  }
  for (std::size_t s = 0; s + 1 < schedule.placement.stages(); ++s) {
    costs.messages.push_back({Stage(s), Stage(s + 1), false, 0, 0, 0});
    costs.messages.push_back({Stage(s + 1), Stage(s), true, 0, 0, 0});
  }
  return simulate(schedule, costs);
}

/// A step's actions from `begin` [µs] on, under the names that `nameOf` gives them, on the ranks that `rankOf` gives. Returns its end.
template <class Name, class RankOf>
double addStep(Json& events, const Schedule& schedule, double begin, Name name, RankOf rankOf, Ns backward = kBackward) {
  double end = begin;
  for (const Span& span : stepOf(schedule, backward).spans) {
    if (!isCompute(span.kind)) continue;
    events.push_back(event(name(span), rankOf(span.rank.value), begin + microseconds(span.start), microseconds(span.end - span.start)));
    end = std::max(end, begin + microseconds(span.end));
  }
  return end;
}

std::string functionOf(const Span& span) { return span.kind == SpanKind::Forward ? "forward_step" : "backward_step"; }
std::string labelOf(const Span& span) {
  return "PP:" + std::to_string(span.stage.value) + std::string(nameOf(span.kind)) + std::to_string(span.microbatch.value);
}
int sameRank(int rank) { return rank; }

ImportedTrace imported(const Json& events) {
  const test::Folder folder;
  return importTrace({folder.with("trace.json", Json{{"traceEvents", events}}.dump())}).value();
}

TEST(Misread, CopiesOfAPipelineAreToldByTheirWarmUps) {
  for (const int copies : {2, 3}) {
    Json events = Json::array();
    const Schedule schedule = generate("1f1b", {4, 4, 8});
    for (int copy = 0; copy < copies; ++copy) {
      double begin = 0;
      for (int step = 0; step < 3; ++step)
        begin = addStep(events, schedule, begin, functionOf, [&](int rank) { return rank * copies + copy; });
    }
    const ImportedTrace result = imported(events);
    EXPECT_EQ(result.replicas * result.tensor, copies);
    EXPECT_THAT(result.notes, Contains(HasSubstr("as on the 4 stages of " + std::to_string(copies) + " pipelines")));
    EXPECT_THAT(result.notes, Each(Not(HasSubstr("matched wrongly"))));
    const Job job = jobOf(measuredOf(result));
    EXPECT_EQ(job.schedule.name, "1f1b");
    EXPECT_EQ(job.schedule.rows.size(), 4U);
    EXPECT_EQ(job.schedule.microbatches, 8);
    ASSERT_EQ(job.steps.size(), 3U);
    EXPECT_EQ(job.steps.front().makespan, 11 * (kForward + kBackward));  // (M + R − 1) (F + B)
  }
}

TEST(Misread, APipelineOfItsOwnStaysOne) {
  Json events = Json::array();
  addStep(events, generate("1f1b", {6, 6, 12}), 0, functionOf, sameRank);
  const ImportedTrace result = imported(events);
  EXPECT_EQ(result.replicas * result.tensor, 1);
  EXPECT_EQ(jobOf(measuredOf(result)).schedule.rows.size(), 6U);
}

TEST(Misread, CopiesThatNoOrderTellsAreSaidToBeImpossible) {
  Json events = Json::array();
  for (int copy = 0; copy < 2; ++copy)
    addStep(events, generate("gpipe", {3, 3, 6}), 0, functionOf, [&](int rank) { return rank * 2 + copy; });
  EXPECT_THAT(imported(events).notes, Contains(HasSubstr("are half done before the action that makes their input ends")));
}

TEST(Misread, ChunksAreFoundWithoutARangeThatSaysThatThereAreSome) {
  for (const Shape shape : {Shape{4, 8, 8}, Shape{2, 4, 6}, Shape{4, 12, 8}}) {
    for (const int copies : {1, 2}) {
      Json events = Json::array();
      const Schedule schedule = interleavedWithGroups(shape, shape.ranks);
      for (int copy = 0; copy < copies; ++copy) addStep(events, schedule, 0, functionOf, [&](int rank) { return rank * copies + copy; });
      const ImportedTrace result = imported(events);
      const Job job = jobOf(measuredOf(result));
      EXPECT_EQ(static_cast<int>(job.schedule.placement.stages()), shape.stages) << shape.ranks << " ranks, " << copies << " copies";
      EXPECT_EQ(job.schedule.microbatches, shape.microbatches);
      EXPECT_EQ(result.replicas * result.tensor, copies);
    }
  }
}

TEST(Misread, ChunksAreFoundWhereStepsAreTooShortForAllWarmUps) {
  for (const int ranks : {2, 4}) {
    Json events = Json::array();
    double at = 1000;
    for (int step = 0; step < 3; ++step)
      at = addStep(events, generate("interleaved-1f1b", {ranks, 2 * ranks, ranks}), at, functionOf, sameRank) + 500;
    const Job job = jobOf(measuredOf(imported(events)));
    EXPECT_EQ(job.schedule.name, "interleaved-1f1b");
    EXPECT_EQ(job.schedule.placement.stages(), 2U * static_cast<std::size_t>(ranks));
    EXPECT_EQ(job.schedule.microbatches, ranks);
  }
}

TEST(Misread, StepsWithMoreMicrobatchesThanMostAreLeftOut) {
  Json events = Json::array();
  double at = 0;
  for (int step = 0; step < 7; ++step) {
    at = addStep(events, generate("1f1b", {3, 3, step < 4 ? 4 : 8}), at, labelOf, sameRank);
    for (int rank = 0; rank < 3; ++rank) events.push_back(event("Optimizer.step#SGD.step", rank, at, 10));
    at += 20;
  }
  const Job job = jobOf(measuredOf(imported(events)));
  EXPECT_EQ(job.schedule.microbatches, 4);
  EXPECT_EQ(job.steps.size(), 4U);
  EXPECT_THAT(job.notes, Contains(HasSubstr("does F of stage 0 for microbatch 4, which most steps do not have")));
  for (const JobStep& step : job.steps) EXPECT_EQ(step.makespan, 6 * (kForward + kBackward));
}

/// Three marked steps, each of these passes, in turn; ends each with an optimizer.
Json marked(const std::vector<Schedule>& passes) {
  Json events = Json::array();
  double at = 0;
  for (int step = 0; step < 3; ++step) {
    const double begin = at;
    for (const Schedule& pass : passes) at = addStep(events, pass, at, labelOf, sameRank);
    for (int rank = 0; rank < 2; ++rank) {
      events.push_back(event("Optimizer.step#SGD.step", rank, at, 10));
      events.push_back(event("ProfilerStep#" + std::to_string(step), rank, begin, at + 20 - begin));
    }
    at += 20;
  }
  return events;
}

TEST(Misread, AnEvaluationWithinAMarkedStepIsNoPartOfIt) {
  for (const bool before : {true, false}) {
    const Schedule train = generate("1f1b", {2, 2, 4}), evaluation = generate("forward-only", {2, 2, 4});
    const Job job = jobOf(measuredOf(imported(marked(before ? std::vector{evaluation, train} : std::vector{train, evaluation}))));
    EXPECT_EQ(job.schedule.name, "1f1b");
    ASSERT_EQ(job.steps.size(), 3U);
    for (const JobStep& step : job.steps) {
      EXPECT_EQ(step.makespan, 5 * (kForward + kBackward));
      for (const Ns action : step.actions) EXPECT_LE(action, kBackward);
    }
    EXPECT_THAT(job.notes, Contains(HasSubstr("was left out: worker 0 does not do 0B0")));
  }
}

TEST(Misread, AMarkThatARankLostIsWhereItsActionsBeginAnew) {
  const Schedule train = generate("1f1b", {2, 2, 4});
  for (int lost = 0; lost < 3; ++lost) {  // the first, one between others, the last
    SCOPED_TRACE(lost);
    Json events = marked({train});
    const std::string name = "ProfilerStep#" + std::to_string(lost);
    const auto mark = std::ranges::find_if(events, [&](const Json& e) { return e["name"] == name && e["pid"] == 1; });
    ASSERT_NE(mark, events.end());
    events.erase(mark);
    const ImportedTrace result = imported(events);
    EXPECT_THAT(result.notes, Contains(HasSubstr("Rank 1 lacks the mark of step " + std::to_string(lost))));
    const Job job = jobOf(measuredOf(result));
    ASSERT_EQ(job.steps.size(), 3U);
    for (const JobStep& step : job.steps) EXPECT_EQ(step.makespan, 5 * (kForward + kBackward));
  }
}

TEST(Misread, AStepThatARankDidNotRecordGetsNoMark) {
  Json events = marked({generate("1f1b", {2, 2, 4})});
  const auto last = std::ranges::find_if(events, [](const Json& e) { return e["name"] == "ProfilerStep#2" && e["pid"] == 1; });
  ASSERT_NE(last, events.end());
  const double begin = (*last)["ts"].get<double>();
  Json kept = Json::array();
  for (const Json& e : events) {
    if (e["pid"] != 1 || e["ts"].get<double>() < begin) kept.push_back(e);
  }
  EXPECT_THAT(imported(kept).notes, Not(Contains(HasSubstr("lacks the mark"))));
}

TEST(Misread, ProcessesWhoseNumbersDifferInTheirHighestBitsAreTwo) {
  Json events = Json::array();
  const auto processOf = [](int rank) { return rank == 0 ? 5 : 5 + (1 << 30); };
  static_cast<void>(addStep(events, generate("1f1b", {2, 2, 4}), 1000, labelOf, processOf));
  EXPECT_EQ(imported(events).steps.front().trace.ranks, 2);
}

TEST(Misread, GradientAccumulationWithinAMarkedStepIsAPassAfterAnother) {
  const Schedule train = generate("1f1b", {2, 2, 4});
  const ImportedTrace result = imported(marked({train, train}));
  ASSERT_EQ(result.steps.size(), 6U);
  EXPECT_EQ(result.steps[3].name, "step 1, pass 2");
  const Job job = jobOf(measuredOf(result));
  EXPECT_EQ(job.steps.size(), 6U);
  for (const JobStep& step : job.steps) EXPECT_EQ(step.makespan, 5 * (kForward + kBackward));
}

TEST(Misread, EvaluationsWhoseBackwardsAreLabelledButDoNothingAreNoSteps) {
  constexpr Ns kNothing(20'000);
  for (const char* name : {"gpipe", "1f1b", "interleaved-1f1b"}) {
    const int chunks = std::string(name) == "interleaved-1f1b" ? 2 : 1;
    const Schedule schedule = generate(name, {2, 2 * chunks, 4});
    Json events = Json::array();
    double at = 1000;
    for (int step = 0; step < 3; ++step) {
      at = addStep(events, schedule, at, labelOf, sameRank) + 500;
      at = addStep(events, schedule, at, labelOf, sameRank, kNothing) + 500;
    }
    const Job job = jobOf(measuredOf(imported(events)));
    EXPECT_EQ(job.steps.size(), 3U) << name;
    EXPECT_EQ(job.schedule.name, name);
    for (const StageCost& stage : costsOf(job).stages) EXPECT_EQ(stage.backward, kBackward) << name;
    Json alone = Json::array();
    addStep(alone, schedule, 0, labelOf, sameRank, kNothing);
    EXPECT_FALSE(trains(jobOf(measuredOf(imported(alone))).schedule)) << name << " of an evaluation alone";
  }
}

/// A recording of two replicas of two ranks, three steps, a file for each rank, whose clocks are ahead by so much [µs]. With several passes
/// a step, the second replica is faster in each, and waits before the optimizer.
ImportedTrace ofReplicas(const std::vector<double>& ahead, int passes = 1) {
  const Schedule schedule = generate("1f1b", {2, 2, 4});
  std::vector<Json> events(4, Json::array());
  for (const std::size_t replica : {0, 1}) {
    double at = 1000;
    for (int step = 0; step < 3; ++step) {
      Json together = Json::array();
      const double begin = at;
      for (int pass = 0; pass < passes; ++pass)
        at = addStep(together, schedule, at, labelOf, sameRank, passes > 1 && replica == 1 ? kBackward - Ns(1'000'000) : kBackward);
      if (passes > 1) {
        at = begin + passes * microseconds(5 * (kForward + kBackward));
        for (int rank = 0; rank < 2; ++rank) together.push_back(event("Optimizer.step#SGD.step", rank, at, 10));
      }
      at += 1000;
      for (Json& one : together) {
        const std::size_t rank = 2 * replica + one["pid"].get<std::size_t>();
        one["ts"] = one["ts"].get<double>() + ahead[rank];
        one["pid"] = rank;
        events[rank].push_back(one);
      }
    }
  }
  const test::Folder folder;
  std::vector<std::string> files;
  for (std::size_t r = 0; r < events.size(); ++r) {
    files.push_back(folder.with("rank" + std::to_string(r) + ".json",
                                Json{{"traceEvents", events[r]}, {"distributedInfo", {{"rank", r}, {"world_size", 4}}}}.dump()));
  }
  return importTrace(files).value();
}

TEST(Misread, ClocksOfEveryReplicaAreAligned) {
  const ImportedTrace right = ofReplicas({0, 0, 0, 0});
  EXPECT_EQ(right.replicas, 2);
  EXPECT_THAT(right.notes, Not(Contains(HasSubstr("clock"))));
  for (const std::vector<double>& ahead : {std::vector<double>{0, 0, 0, 200'000}, {0, 0, 40'000, 40'000}, {0, -500'000, 50'000, 250'000}}) {
    const ImportedTrace moved = ofReplicas(ahead);
    ASSERT_EQ(moved.steps.size(), 3U);
    EXPECT_THAT(moved.notes, Contains(HasSubstr("clock")));
    for (std::size_t k = 0; k < 3; ++k) {
      const std::vector<Span>&is = moved.steps[k].trace.spans, &was = right.steps[k].trace.spans;
      ASSERT_EQ(is.size(), was.size());
      const Ns length = std::ranges::max(is, {}, &Span::end).end, usual = std::ranges::max(was, {}, &Span::end).end;
      EXPECT_LE(abs(length - usual), Ns(1'100'000)) << "as far apart as steps are at most";
    }
  }
}

TEST(Misread, ReplicasThatAccumulateGradientsNeedNotMeetAfterAPass) {
  const ImportedTrace accumulating = ofReplicas({0, 0, 0, 0}, 2);
  EXPECT_EQ(accumulating.replicas, 2);
  EXPECT_THAT(accumulating.notes, Not(Contains(HasSubstr("clock"))));
}

TEST(Misread, EvaluationsAreNoPassesThatAccumulateGradients) {
  Json events[2] = {Json::array(), Json::array()};
  for (const std::size_t replica : {0, 1}) {
    double at = 1000;
    for (const char* name : {"1f1b", "1f1b", "1f1b", "forward-only", "forward-only"}) {
      at = addStep(events[replica], generate(name, {2, 2, 4}), at, labelOf, sameRank);
      for (int rank = 0; rank < 2 && std::string(name) == "1f1b"; ++rank)
        events[replica].push_back(event("Optimizer.step#SGD.step", rank, at, 10));
      at += 1000;
    }
    for (Json& one : events[replica]) {
      one["ts"] = one["ts"].get<double>() + 40'000.0 * static_cast<double>(replica);
      one["pid"] = one["pid"].get<std::size_t>() + 2 * replica;
    }
  }
  const test::Folder folder;
  std::vector<std::string> files;
  for (int rank = 0; rank < 4; ++rank) {
    Json own = Json::array();
    for (const Json& one : events[rank / 2]) {
      if (one["pid"] == rank) own.push_back(one);
    }
    files.push_back(folder.with("rank" + std::to_string(rank) + ".json",
                                Json{{"traceEvents", own}, {"distributedInfo", {{"rank", rank}, {"world_size", 4}}}}.dump()));
  }
  const ImportedTrace result = importTrace(files).value();
  EXPECT_EQ(result.replicas, 2);
  EXPECT_THAT(result.notes, Contains(HasSubstr("disagree with those of the first replica")));
}

TEST(Misread, TimesThatAreRoundedAreNoOverlap) {
  Json events = Json::array(
      {event("PP:0F0", 0, 0, 1000.4), event("PP:0B0", 0, 1000, 2000), event("PP:0F1", 0, 3000, 1000), event("PP:0B1", 0, 4000, 2000)});
  EXPECT_THAT(imported(events).notes, Each(Not(HasSubstr("lies over others"))));
  events[0]["dur"] = 1002;
  EXPECT_THAT(imported(events).notes, Contains(HasSubstr("1 action was cut or left out, because it lies over others")));
}

TEST(Misread, AFirstStepThatIsFarFromTheOthersIsPointedOut) {
  Json events = Json::array();
  double at = 0;
  for (int step = 0; step < 6; ++step) {
    at = addStep(events, generate("1f1b", {2, 2, 4}), at, labelOf, sameRank);
    for (int rank = 0; rank < 2; ++rank) events.push_back(event("Optimizer.step#SGD.step", rank, at, step == 0 ? 100'000 : 10));
    at += 100'020;
  }
  const Job job = jobOf(measuredOf(imported(events)));
  EXPECT_THAT(job.notes, Contains(HasSubstr("The first step (step 1) takes 2.7 times as long as the median of the others")));
  EXPECT_THAT(withSteps(job, 2, 6).notes, Each(Not(HasSubstr("The first step"))));
}

TEST(Misread, TheReductionOfEachStageOfARankBeginsNoStep) {
  Json events = Json::array();
  double at = 0;
  for (int step = 0; step < 3; ++step) {
    at = addStep(events, generate("1f1b", {2, 2, 4}), at, labelOf, sameRank);
    for (int rank = 0; rank < 2; ++rank) {
      for (int bucket = 0; bucket < 2; ++bucket) events.push_back(event("bucket", rank, at + 100 * bucket, 50));
      events.push_back(event("Optimizer.step#SGD.step", rank, at + 200, 10));
    }
    at += 300;
  }
  const test::Folder folder;
  const std::string patterns = folder.with("names.json", R"({"patterns": [{"regex": "^bucket$", "kind": "REDUCE_GRAD"}]})");
  const ImportedTrace result =
      importTrace({folder.with("trace.json", Json{{"traceEvents", events}}.dump())}, {}, {.patterns = patterns}).value();
  EXPECT_EQ(result.steps.size(), 3U);
  const Job job = jobOf(measuredOf(result));
  EXPECT_EQ(job.steps.size(), 3U);
  EXPECT_THAT(job.notes, Not(Contains(HasSubstr("was left out"))));
}

TEST(Misread, ANameOfMegatronsTimersInKinetosFileIsNotNdTimelines) {
  Json events = Json::array();
  static_cast<void>(addStep(events, generate("1f1b", {2, 2, 4}), 0, labelOf, sameRank));
  events.push_back(event("forward-compute", 0, 0, 4000));
  const test::Folder folder;
  const Json file{{"schemaVersion", 1}, {"traceEvents", events}};
  EXPECT_EQ(importTrace({folder.with("trace.json", file.dump())}).value().steps.size(), 1U);
}

TEST(Misread, WhatPassesBetweenStepsIsInNoneOfThem) {
  Json events = Json::array();
  const Schedule schedule = generate("1f1b", {2, 2, 4});
  double begin = 1000;
  for (const double pause : {0.0, 250.0, 70'000.0}) begin = addStep(events, schedule, begin + pause, labelOf, sameRank);
  const Job job = jobOf(measuredOf(imported(events)));
  ASSERT_EQ(job.steps.size(), 3U);
  EXPECT_EQ(job.steps[0].before, kUnknownTime);
  EXPECT_EQ(job.steps[1].before, 250'000);
  EXPECT_EQ(job.steps[2].before, 70'000'000);
}

/// torch names a file after its host and process, which say nothing of the rank; stages do, also where a rank has two.
TEST(Misread, RanksThatNothingNamesAreInTheOrderOfTheirStages) {
  for (const auto& [name, stages] : {std::pair("1f1b", 3), std::pair("interleaved-1f1b", 6)}) {
    const Schedule schedule = generate(name, {3, stages, 6});
    std::vector<Json> events(3, Json::array());
    for (const Span& span : stepOf(schedule).spans) {
      if (!isCompute(span.kind)) continue;
      events[span.rank.index()].push_back(event(labelOf(span), 7, microseconds(span.start), microseconds(span.end - span.start)));
    }
    const test::Folder folder;
    for (const std::size_t r : {0U, 1U, 2U})
      (void)folder.with("host" +
                            std::string(r == 0   ? "c"
                                        : r == 1 ? "a"
                                                 : "b") +
                            "_17.pt.trace.json",
                        Json{{"traceEvents", events[r]}}.dump());
    const ImportedTrace result = importTrace({folder.file("")}).value();
    const Job job = jobOf(measuredOf(result));
    EXPECT_EQ(job.schedule.name, name);
    EXPECT_EQ(job.schedule.placement, schedule.placement);
    EXPECT_THAT(result.notes, Contains(HasSubstr("in the order of their first stages")));
  }
}

/// The ranks r and R − 1 − r of a bidirectional pipeline have the same two stages.
TEST(Misread, RanksWithTheSameStagesAreInTheOrderOfTheirNames) {
  const Schedule schedule = generate("dualpipe", {4, 4, 8});
  std::vector<Json> events(4, Json::array());
  for (const Span& span : stepOf(schedule).spans) {
    if (isCompute(span.kind))
      events[span.rank.index()].push_back(event(labelOf(span), 7, microseconds(span.start), microseconds(span.end - span.start)));
  }
  const test::Folder folder;
  for (std::size_t r = 0; r < 4; ++r)
    (void)folder.with("host" + std::string(1, "abcd"[r]) + ".pt.trace.json", Json{{"traceEvents", events[r]}}.dump());
  const ImportedTrace result = importTrace({folder.file("")}).value();
  const Job job = jobOf(measuredOf(result));
  EXPECT_EQ(job.schedule.placement, schedule.placement);
  EXPECT_THAT(result.notes, Contains(HasSubstr("in the order of their names")));
}

/// Of files merged into one, as people do: processes are texts with their rank, and `distributedInfo` is one file's.
TEST(Misread, ProcessesMergedIntoOneFileAreOfTheRanksThatTheirProcessesName) {
  Json events = Json::array();
  for (const int rank : {1, 0}) {
    const std::string process = "rank" + std::to_string(rank) + " " + (rank == 0 ? "20" : "10");
    const auto add = [&](const std::string& name, int start) {
      events.push_back({{"ph", "X"}, {"cat", "user_annotation"}, {"name", name}, {"pid", process}, {"tid", 1}, {"ts", start}, {"dur", 10}});
    };
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", "python"}}}});
    add("PP:" + std::to_string(rank) + "F0", 10 * rank);
    add("PP:" + std::to_string(rank) + "B0", 40 - 10 * rank);
  }
  const Json file{{"distributedInfo", {{"rank", 1}, {"world_size", 2}}}, {"traceEvents", events}};
  const test::Folder folder;
  const ImportedTrace result = importTrace({folder.with("trace.json", file.dump())}).value();
  ASSERT_EQ(result.steps.size(), 1U);
  std::set<std::pair<int, int>> places;  // rank, stage
  for (const Span& s : result.steps.front().trace.spans) places.emplace(s.rank.value, s.stage.value);
  EXPECT_THAT(places, testing::ElementsAre(std::pair(0, 0), std::pair(1, 1)));
}

}  // namespace
}  // namespace pw
