// NDTimeline's JSON, as ByteDance-Seed/StragglerAnalysis publishes it, and the published analysis of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "backends/traces/import.h"
#include "schedules/error.h"
#include "simulator/job/explain_job.h"
#include "simulator/job/recover.h"
#include "tests/support/folder.h"
#include "tests/support/gzip.h"
#include "tests/support/hostile.h"
#include "tests/support/trace_rules.h"

namespace pw {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kPublished = PW_SOURCE_DIR "/tests/data/straggler_analysis";

ImportedTrace published() { return importTrace({kPublished + "/timeline-ST.json.gz"}).value(); }

/// An event of a small timeline; times in µs.
Json event(const std::string& name, int replica, int rank, int step, double start, double duration, int microbatch = -1, int chunk = 0) {
  return {{"name", name},    {"cat", name},
          {"ph", "X"},       {"pid", replica},
          {"tid", 5 * rank}, {"ts", start},
          {"dur", duration}, {"args", {{"step", step}, {"model_chunk", chunk}, {"mb_id", microbatch}, {"seq_id", 0}}}};
}

Json nameOf(int replica, int rank, int pipeline, int tensor = 0) {
  const std::string name = "PP rank " + std::to_string(pipeline) + ", TP rank " + std::to_string(tensor) + ", compute";
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", replica}, {"tid", 5 * rank}, {"args", {{"name", name}}}};
}

/// Two ranks, two microbatches (GPipe): F 10, B 20, messages of 1.
Json small(bool named) {
  Json events = Json::array();
  const auto at = [&](int m) { return named ? m : -1; };
  for (int step = 3; step < 5; ++step) {
    const double t = 1000.0 * step;
    for (int m = 0; m < 2; ++m) {
      events.push_back(event("forward-compute", 0, 0, step, t + 10 * m, 10, at(m)));
      events.push_back(event("forward-recv", 0, 1, step, t + 10 + 11 * m, 1));
      events.push_back(event("forward-compute", 0, 1, step, t + 11 + 11 * m, 10, at(m)));
      events.push_back(event("backward-compute", 0, 1, step, t + 40 + 20 * m, 20, at(m)));
      events.push_back(event("backward-recv", 0, 0, step, t + 60 + 20 * m, 1));
      events.push_back(event("backward-compute", 0, 0, step, t + 61 + 20 * m, 20, at(m)));
    }
    events.push_back(event("optimizer", 0, 0, step, t + 101, 5));
  }
  events.push_back(nameOf(0, 0, 0));
  events.push_back(nameOf(0, 1, 1));
  return events;
}

ImportedTrace imported(const Json& events) {
  const test::Folder folder;
  return importTrace({folder.with("timeline.json", events.dump())}).value();
}

TEST(NdTimelineImport, ReadsThePublishedJobTimeByTime) {
  const ImportedTrace result = published();
  EXPECT_EQ(result.title, "timeline-ST.json.gz");
  EXPECT_EQ(result.replicas, 2);
  EXPECT_EQ(result.tensor, 1);
  EXPECT_TRUE(result.timedMessages);
  EXPECT_THAT(result.notes, testing::IsEmpty());
  ASSERT_EQ(result.steps.size(), 16U);
  EXPECT_EQ(result.steps.front().name, "step 23");
  EXPECT_EQ(result.steps.back().name, "step 516");
  for (const ImportedStep& step : result.steps) {
    test::expectKeepsRules(step.trace);
    std::map<SpanKind, int> kinds;
    for (const Span& span : step.trace.spans) ++kinds[span.kind];
    // 8 workers, 4 microbatches; three of four ranks receive in either direction.
    EXPECT_EQ(kinds[SpanKind::Forward], 32);
    EXPECT_EQ(kinds[SpanKind::Backward], 32);
    EXPECT_EQ(kinds[SpanKind::SendForward], 24);
    EXPECT_EQ(kinds[SpanKind::SendBackward], 24);
    // gc, layernorm, reduce-scatter, clip, optimizer, all-gather of 8 workers; the embedding's of the ends.
    EXPECT_EQ(step.operations.size(), 6U * 8U + 4U);
  }
  const Job job = jobOf(measuredOf(result));
  EXPECT_EQ(job.schedule.name, "1f1b");
  EXPECT_EQ(job.schedule.microbatches, 4);
  EXPECT_EQ(job.steps.size(), 16U);
  std::vector<std::string> names;
  for (const JobOperation& operation : job.operations) names.push_back(operation.name);
  EXPECT_THAT(names, testing::ElementsAre("params-all-gather", "gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce",
                                          "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer"));
  EXPECT_EQ(job.operations[3].group, OperationGroup::Ends);
  EXPECT_EQ(job.operations[4].group, OperationGroup::Replicas);
  EXPECT_EQ(job.operations[5].group, OperationGroup::All);
}

TEST(NdTimelineImport, ReplaysThePublishedStepsAsItsAuthorsDo) {
  const Json results = Json::parse(test::contentOf(kPublished + "/result-ST.json"));
  const Job job = jobOf(measuredOf(published()));
  const JobShape shape(job);
  const JobExplanation explained = explainJob(shape, job);
  for (std::size_t k = 0; k < job.steps.size(); ++k) {
    const std::string number = job.steps[k].name.substr(5);
    const auto seconds = [&](const char* key) { return results.at(key).at(number).get<double>(); };
    // The timeline holds collectives without what they waited, so that a step may start a little later than it did.
    EXPECT_NEAR(static_cast<double>(job.steps[k].step) / 1e9 / seconds("step_t_base"), 1, 2e-4) << number;
    EXPECT_NEAR(static_cast<double>(explained.slowdowns.replayedSteps[k]) / 1e9 / seconds("step_t_nodelay"), 1, 1e-4) << number;
    EXPECT_LE(std::abs(explained.replay[k].makespan), 0.003) << number;
  }
  // The published slowdowns are of twice as many steps.
  EXPECT_NEAR(explained.slowdowns.slowdown, results.at("blocking_slowdown").get<double>(), 0.01);
  for (const Culprit& worker : explained.slowdowns.byWorker) {
    const auto of = [&](const char* key, int number) { return results.at(key).at(std::to_string(number)).get<double>(); };
    const double expected =
        std::min(of("blocking_decompose_by_stage", worker.number % 4), of("blocking_decompose_by_dp_rank", worker.number / 4));
    EXPECT_NEAR(worker.slowdown, expected, 0.01) << worker.number;
  }
  const auto kind = [&](const std::string& name) { return std::ranges::find(explained.slowdowns.byKind, name, &Culprit::name)->slowdown; };
  const Json& kinds = results.at("blocking_decompose_by_optype");
  EXPECT_NEAR(kind("F"), kinds.at("forward-compute").get<double>(), 0.01);
  EXPECT_NEAR(kind("B"), kinds.at("backward-compute").get<double>(), 0.01);
  EXPECT_NEAR(kind("grads-reduce-scatter"), kinds.at("grads-reduce-scatter").get<double>(), 0.01);
}

TEST(NdTimelineImport, MatchesMessagesByTheirOrder) {
  for (const bool named : {true, false}) {
    const ImportedTrace result = imported(small(named));
    ASSERT_EQ(result.steps.size(), 2U);
    using Times = std::pair<std::int64_t, std::int64_t>;
    std::map<std::pair<SpanKind, Microbatch>, Times> messages;
    for (const Span& span : result.steps[1].trace.spans) {
      if (span.peer != span.rank) messages[{span.kind, span.microbatch}] = {span.start.value, span.end.value};
      if (span.kind == SpanKind::SendForward) {
        EXPECT_EQ(span.stage, Stage(0));
        EXPECT_EQ(span.peer, Rank(1));
      }
    }
    // The second forward ends at 20; its message is in transfer from when both ends wait for it, at 21.
    EXPECT_EQ((messages[{SpanKind::SendForward, Microbatch(0)}]), Times(10'000, 11'000));
    EXPECT_EQ((messages[{SpanKind::SendForward, Microbatch(1)}]), Times(21'000, 22'000));
    EXPECT_EQ((messages[{SpanKind::SendBackward, Microbatch(1)}]), Times(80'000, 81'000));
    ASSERT_EQ(result.steps[1].operations.size(), 1U);
    EXPECT_EQ(result.steps[1].operations[0].end, 106'000);
    EXPECT_EQ(result.notes.empty(), named);  // without numbers it is said that they were counted
  }
}

TEST(NdTimelineImport, SkipsReceivesThatAreNone) {
  Json events = small(true);
  for (int step = 3; step < 5; ++step) {  // the profiler recorded a receive of each forward on the first rank, too
    for (int m = 0; m < 2; ++m) events.push_back(event("forward-recv", 0, 0, step, 1000.0 * step + 10 * m, 0));
  }
  const ImportedTrace result = imported(events);
  EXPECT_EQ(std::ranges::count(result.steps[0].trace.spans, SpanKind::SendForward, &Span::kind), 2);
  events.push_back(event("forward-recv", 0, 1, 3, 3090, 1));  // and one too many of the second rank
  EXPECT_THAT(imported(events).notes, testing::Contains(HasSubstr("3 messages left out, because their number does not fit")));
}

TEST(NdTimelineImport, FilesOfOneJobAreReadTogetherAndOutOfAFolder) {
  const Json all = small(true);
  Json first = Json::array(), second = Json::array();
  for (const Json& one : all) (one.at("tid") == 0 ? first : second).push_back(one);
  const test::Folder folder;
  (void)folder.with("rank0.json", first.dump());
  (void)folder.with("rank1.json.gz", test::gzipped(second.dump()));
  EXPECT_EQ(importTrace({folder.file("")}).value().steps, imported(all).steps);
}

/// The published timeline as a file of each worker, whose clocks are ahead by `apart` µs more from each to the next.
void writeWorkers(const test::Folder& folder, double apart) {
  const Json all = Json::parse(test::unzipped(test::contentOf(kPublished + "/timeline-ST.json.gz")));
  std::map<std::pair<int, int>, int> pipelineRank;  // by process and thread
  for (const Json& one : all) {
    if (one.at("name") != "thread_name") continue;
    const std::string name = one.at("args").at("name");
    if (name.starts_with("PP rank ")) pipelineRank[{one.at("pid"), one.at("tid")}] = name[8] - '0';
  }
  for (int worker = 0; worker < 8; ++worker) {
    Json own = Json::array();
    for (Json one : all) {
      if (one.at("pid") != worker / 4) continue;
      const auto rank = one.contains("tid") ? pipelineRank.find({one.at("pid"), one.at("tid")}) : pipelineRank.end();
      if (one.at("name") != "process_name" && (rank == pipelineRank.end() || rank->second != worker % 4)) continue;
      if (one.contains("ts")) one["ts"] = one.at("ts").get<double>() + apart * worker;
      own.push_back(one);
    }
    (void)folder.with("worker" + std::to_string(worker) + ".json", own.dump());
  }
}

TEST(NdTimelineImport, PutsTheFilesOfWorkersOnOneClock) {
  const Job whole = jobOf(measuredOf(published()));
  for (const double apart : {0.0, 37e3, -370e3}) {  // within a step, and more than one
    const test::Folder folder;
    writeWorkers(folder, apart);
    const ImportedTrace result = importTrace({folder.file("")}).value();
    const auto moved =
        std::ranges::count_if(result.notes, [](const std::string& note) { return note.find("moved by") != std::string::npos; });
    EXPECT_EQ(moved, apart == 0 ? 0 : 7) << apart;  // six by their neighbours, the second replica by its collectives
    const Job job = jobOf(measuredOf(result));
    ASSERT_EQ(job.steps.size(), whole.steps.size());
    for (std::size_t k = 0; k < job.steps.size(); ++k)
      EXPECT_NEAR(static_cast<double>(job.steps[k].step), static_cast<double>(whole.steps[k].step),
                  1e-3 * static_cast<double>(whole.steps[k].step))
          << apart;
  }
}

TEST(NdTimelineImport, SaysWhereNothingShowsWhetherClocksAgree) {
  const test::Folder folder;
  for (int replica = 0; replica < 2; ++replica) {  // a step of two replicas, without collectives
    Json events = Json::array({nameOf(replica, 0, 0)});
    events.push_back(event("forward-compute", replica, 0, 1, 100, 10, 0));
    events.push_back(event("backward-compute", replica, 0, 1, 110, 20, 0));
    (void)folder.with("worker" + std::to_string(replica) + ".json", events.dump());
  }
  EXPECT_THAT(importTrace({folder.file("")}).value().notes, testing::Contains(HasSubstr("Nothing shows whether the clocks")));
}

TEST(NdTimelineImport, NumbersReplicasAndTensorGroupsApart) {
  Json events = Json::array();
  for (int replica = 0; replica < 2; ++replica) {
    for (int rank = 0; rank < 4; ++rank) {  // tensor ranks 0 and 1 of pipeline ranks 0 and 1
      events.push_back(nameOf(replica, rank, rank / 2, rank % 2));
      events.push_back(event("forward-compute", replica, rank, 1, 100 + 10.0 * (rank / 2), 10, 0));
    }
    events.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", replica}, {"args", {{"name", "DP rank [" + std::to_string(7 - replica) + "]"}}}});
  }
  const ImportedTrace result = imported(events);
  EXPECT_EQ(result.replicas, 2);
  EXPECT_EQ(result.tensor, 2);
  EXPECT_EQ(result.steps[0].trace.ranks, 8);
  const Job job = jobOf(measuredOf(result));
  EXPECT_EQ(job.schedule.placement.stages(), 2U);
  EXPECT_EQ(JobShape(job).copies, 4U);
}

TEST(NdTimelineImport, SaysWhatItLeavesOutAndRefusesWhatHasNoAction) {
  Json events = small(true);
  events.push_back(event("forward-compute", 9, 9, 3, 3000, 10, 0));  // of nobody
  events.push_back(event("optimizer", 0, 0, 3, 3110, -20'000));
  const ImportedTrace result = imported(events);
  EXPECT_THAT(result.notes, testing::Contains(HasSubstr("1 event left out, because no thread name says their worker")));
  EXPECT_THAT(result.notes, testing::Contains(HasSubstr("1 event left out, because they have no step or no usable times")));
  EXPECT_EQ(result.steps, imported(small(true)).steps);
  Json nameless = small(true);
  nameless.erase(nameless.end() - 2, nameless.end());
  EXPECT_THROW((void)imported(nameless), UsageError);
  // The names of workers come last, and are the first to be lost.
  const std::string text = small(true).dump();
  const test::Folder folder;
  const std::string cut = folder.with("cut.json", text.substr(0, text.find("thread_name")));
  try {
    (void)importTrace({cut});
    ADD_FAILURE() << "without a worker there is no action";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("as far as the file goes, which is truncated; export the timeline of NDTimeline again"));
  }
}

TEST(NdTimelineImport, DamagedFilesAreRefusedOrUsed) {
  const test::Folder folder;
  const std::string text = small(false).dump();
  const test::Survived survived = test::survive(
      "NDTimeline", test::mutations(1000), [&](std::mt19937_64& random) { return test::damaged(text, random); },
      [&](const std::string& damaged) {
        const auto read = importTrace({folder.with("damaged.json", damaged)});
        if (!read) return;
        for (const ImportedStep& step : read->steps) test::expectKeepsRules(step.trace);
        const Job job = jobOf(measuredOf(*read));
        (void)explainJob(JobShape(job), job);
      });
  EXPECT_GT(survived.refused, 0U);
  EXPECT_GT(survived.accepted, 0U);
}

TEST(NdTimelineImport, StopsWhereItsProgressSaysSo) {
  EXPECT_FALSE(importTrace({kPublished + "/timeline-ST.json.gz"}, [](std::uint64_t, std::uint64_t) { return false; }));
}

}  // namespace
}  // namespace pw
