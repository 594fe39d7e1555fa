// Chrome JSON of torch.profiler and of this program, and tables of spans.
#include "backends/traces/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/timeline/chrome.h"
#include "simulator/trace/trace_csv.h"
#include "tests/support/folder.h"
#include "tests/support/gzip.h"
#include "tests/support/trace_rules.h"

namespace pw {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ImportedTrace imported(const std::vector<std::string>& paths) {
  ImportedTrace result = importTrace(paths).value();
  for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
  return result;
}

ImportedTrace importedText(const std::string& text) {
  const test::Folder folder;
  return imported({folder.with("trace.json", text)});
}

std::string event(const std::string& name, int process, double start, double duration, const std::string& category = "user_annotation") {
  return R"({"ph":"X","cat":")" + category + R"(","name":")" + name + R"(","pid":)" + std::to_string(process) + R"(,"tid":1,"ts":)" +
         std::to_string(start) + R"(,"dur":)" + std::to_string(duration) + R"(,"args":{"External id":7,"deep":[{"a":[1,2]}]}})";
}

std::string traceOf(const std::string& events, const std::string& members = "") {
  return "{" + members + "\"traceEvents\":[" + events + "]}";
}

Span compute(int rank, SpanKind kind, int stage, int microbatch, Ns start, Ns end) {
  return {Rank(rank), kind, Stage(stage), Microbatch(microbatch), Rank(rank), 0, start, end};
}

Trace simulated(const std::string& name, const Shape& shape) {
  SyntheticCosts costs;
  costs.forward = {1'001};
  costs.backward = {2'003};
  costs.backwardInput = {1'002};
  costs.backwardWeight = {999};
  costs.transfer = 107;
  costs.latency = 11;
  Trace trace = simulate(generate(name, shape), syntheticTable(costs, shape.stages));
  for (int r = 0; r < shape.ranks; ++r) {
    trace.memory.push_back({Rank(r), 0, Bytes{100} * r});
    trace.memory.push_back({Rank(r), 1'234, Bytes{100} * r + 1});
  }
  normalize(trace);
  return trace;
}

TEST(TraceImport, ReadsBackWhatThisProgramExports) {
  for (const auto& [name, shape] : {std::pair{"1f1b", Shape{4, 4, 8}},
                                    {"interleaved-1f1b", {2, 4, 4}},
                                    {"zbv", {2, 4, 6}},
                                    {"dualpipev", {2, 4, 8}},
                                    {"dualpipe", {4, 4, 8}}}) {
    const Trace trace = simulated(name, shape);
    Trace other = simulated("gpipe", {3, 3, 2});
    other.spans.push_back({Rank(1), SpanKind::ReduceGrad, Stage(-1), Microbatch(-1), Rank(1), 77, 900'000, 900'000});
    other.spans.push_back({Rank(2), SpanKind::Optimizer, Stage(-1), Microbatch(-1), Rank(2), 0, 900'000, 950'000});
    const ImportedTrace result = importedText(toChromeJson({&trace, &other}, {"predicted", "run \"3\", step 2"}));
    ASSERT_EQ(result.steps.size(), 2U);
    EXPECT_EQ(result.steps[0].name, "predicted");
    EXPECT_EQ(result.steps[1].name, "run \"3\", step 2");
    EXPECT_EQ(result.steps[0].trace, trace) << name;
    EXPECT_EQ(result.steps[1].trace, other);
    EXPECT_TRUE(result.notes.empty()) << result.notes.front();
  }
}

TEST(TraceImport, ReadsCompressedFilesAndFoldersOfThem) {
  const Trace trace = simulated("1f1b", Shape{4, 4, 1'000});
  const std::string text = toChromeJson({&trace}, {"predicted"});
  ASSERT_GT(text.size(), std::size_t{3} << 20U) << "several windows";
  const test::Folder folder;
  const std::string path = folder.with("trace.json.gz", test::gzipped(text));
  std::uint64_t last = 0, all = 0;
  const auto progress = [&](std::uint64_t done, std::uint64_t of) {
    EXPECT_GE(done, last);
    last = done;
    all = of;
    return true;
  };
  EXPECT_EQ(importTrace({path}, progress).value().steps.front().trace, trace);
  EXPECT_EQ(last, all);
  EXPECT_LT(all, text.size() / 4) << "progress counts what is read of the file";
  EXPECT_EQ(imported({std::filesystem::path(path).parent_path().string()}).steps.front().trace, trace);
}

TEST(TraceImport, LeavesOtherJsonFilesOfAFolder) {
  const Trace trace = simulated("1f1b", Shape{2, 2, 4});
  const test::Folder folder;
  const std::string path = folder.with("trace.json", toChromeJson({&trace}, {"predicted"}));
  static_cast<void>(folder.with("config.json", R"({"hidden_size": 1024, "layers": [1, 2]})"));
  static_cast<void>(folder.with("results.json", "[1, 2, 3]"));
  const ImportedTrace result = imported({std::filesystem::path(path).parent_path().string()});
  EXPECT_EQ(result.steps.at(0).trace, trace);
  EXPECT_THAT(result.notes,
              testing::ElementsAre("Of the folder's files these are no traces, and were not read: config.json, results.json."));
}

TEST(TraceImport, ReadsATableOfSpans) {
  Trace trace = simulated("zb-h1", {2, 2, 4});
  trace.memory.clear();
  const test::Folder folder;
  const ImportedTrace result = imported({folder.with("spans.csv", toSpanCsv(trace))});
  EXPECT_EQ(result.title, "spans.csv");
  EXPECT_EQ(result.steps.at(0).trace, trace);
}

TEST(TraceImport, ReadsLabelsOfTorchsRuntime) {
  // Two ranks as processes. Messages go to the rank of the next (gradients: previous) stage. A reduction holds the thread of its rank.
  const ImportedTrace result = importedText(traceOf(
      event("PP:0F0", 8, 10, 5) + "," + event("PP:0SEND_F0", 8, 15, 1) + "," + event("PP:1RECV_F0", 9, 10, 4) + "," +
      event("PP:1F0", 9, 16, 5) + "," + event("PP:1I0", 9, 21, 2) + "," + event("PP:1SEND_B0", 9, 23, 1) + "," + event("PP:1W0", 9, 24, 2) +
      "," + event("PP:0B0", 8, 24, 9) + "," + event("PP:0REDUCE_GRAD", 8, 33, 1) + "," + event("PP:0UNSHARD", 8, 1, 1) + "," +
      event("aten::mm", 8, 11, 1, "cpu_op") + "," + event("Optimizer.step#SGD.step", 8, 34, 2)));
  ASSERT_EQ(result.steps.size(), 1U);
  const Trace& trace = result.steps[0].trace;
  EXPECT_EQ(trace.ranks, 2);
  Span wait = compute(1, SpanKind::WaitForward, 1, 0, 0, 4'000), send = compute(0, SpanKind::SendForward, 0, 0, 5'000, 6'000),
       back = compute(1, SpanKind::SendBackward, 1, 0, 13'000, 14'000);
  send.peer = Rank(1);
  back.peer = Rank(0);
  EXPECT_THAT(
      trace.spans,
      ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 5'000), wait, send, compute(1, SpanKind::Forward, 1, 0, 6'000, 11'000),
                  compute(1, SpanKind::BackwardInput, 1, 0, 11'000, 13'000), back, compute(0, SpanKind::Backward, 0, 0, 14'000, 23'000),
                  compute(1, SpanKind::BackwardWeight, 1, 0, 14'000, 16'000), compute(0, SpanKind::ReduceGrad, -1, -1, 23'000, 24'000),
                  compute(0, SpanKind::Optimizer, -1, -1, 24'000, 26'000)));
  EXPECT_THAT(result.notes, testing::Contains(HasSubstr("UNSHARD, RESHARD")));
}

TEST(TraceImport, ReadsSlotsAndBeginEndPairsAndABareArray) {
  const auto half = [](char phase, const std::string& name, double time) {
    return std::string(R"({"ph":")") + phase + R"(","pid":"x","tid":"main")" + (name.empty() ? "" : R"(,"name":")" + name + "\"") +
           ",\"ts\":" + std::to_string(time) + "}";
  };
  const ImportedTrace result =
      importedText("[" + half('B', "PP:(0F5;3B2)OVERLAP_F_B", 1) + "," + half('B', "inner", 2) + "," + half('E', "", 3) + ",\n" +
                   half('E', "", 4) + "," + half('B', "PP:0F6", 4) + "," + half('E', "PP:0F6", 5) + "," + half('B', "PP:0F7", 6) + "]");
  EXPECT_THAT(result.steps.at(0).trace.spans,
              ElementsAre(compute(0, SpanKind::Forward, 0, 5, 0, 3'000), compute(0, SpanKind::Backward, 3, 2, 0, 3'000),
                          compute(0, SpanKind::Forward, 0, 6, 3'000, 4'000)));
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("only their begin or end")));
}

TEST(TraceImport, ReadsTheLabelsOfTorchsGpipeWithOneStageOnEachRank) {
  const ImportedTrace result =
      importedText(traceOf(event("Forward 0", 1, 0, 2) + "," + event("Forward 0", 2, 2, 2) + "," + event("Backward 0", 2, 4, 3) + "," +
                           event("Backward 0", 1, 7, 3) + "," + event("Forward pass", 1, 0, 100)));
  EXPECT_THAT(result.steps.at(0).trace.spans,
              ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 2'000), compute(1, SpanKind::Forward, 1, 0, 2'000, 4'000),
                          compute(1, SpanKind::Backward, 1, 0, 4'000, 7'000), compute(0, SpanKind::Backward, 0, 0, 7'000, 10'000)));
}

TEST(TraceImport, TakesRanksFromDistributedInfoOfEachFileBeforeOrAfterTheEvents) {
  const test::Folder folder;
  // Rank 5's clock started 1 ms (a file's origin) after rank 4's.
  const std::string four = folder.with(
      "a.json", traceOf(event("PP:0F0", 77, 0, 10),
                        R"("distributedInfo":{"backend":"nccl","rank":4,"world_size":8},"baseTimeNanoseconds":1700000000000000000,)"));
  std::string infoAfter = traceOf(event("PP:1F0", 77, -985, 10));
  infoAfter.pop_back();
  const std::string five =
      folder.with("b.json", infoAfter + R"(,"baseTimeNanoseconds":1700000000001000000,"distributedInfo":{"rank": 5}})");
  for (const auto& paths : {std::vector{four, five}, {five, four}}) {
    const ImportedTrace result = imported(paths);
    EXPECT_THAT(result.steps.at(0).trace.spans,
                ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 10'000), compute(1, SpanKind::Forward, 1, 0, 15'000, 25'000)));
    EXPECT_THAT(result.notes, ElementsAre(HasSubstr("The job has 8 ranks, and the traces of ranks 0, 1, 2, 3, 6, 7 are not here"),
                                          "Ranks are numbered from 0 here: rank 4 as 0, 5 as 1. Stages of ranks between them, if the "
                                          "pipeline has any there, are not in this "
                                          "import."));
  }
}

TEST(TraceImport, AlignsFilesWhoseClocksDisagree) {
  const test::Folder folder;
  // Rank 1's clock is an hour ahead: its forward, which needs rank 0's, must not end before that one does.
  (void)folder.with("rank0.json", traceOf(event("PP:0F0", 1, 0, 10) + "," + event("PP:0F1", 1, 10, 10)));
  (void)folder.with("rank1.json", traceOf(event("PP:1F0", 1, 3.6e9, 4) + "," + event("PP:1F1", 1, 3.6e9 + 12, 4)));
  const ImportedTrace result = imported({folder.file("")});
  // F0 ended at 10, so 1F0 begins there at the earliest; 1F1 is 12 after it, so at 22 ≥ 20.
  EXPECT_THAT(result.steps.at(0).trace.spans,
              ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 10'000), compute(0, SpanKind::Forward, 0, 1, 10'000, 20'000),
                          compute(1, SpanKind::Forward, 1, 0, 10'000, 14'000), compute(1, SpanKind::Forward, 1, 1, 22'000, 26'000)));
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("The clock of rank1.json disagrees")));
}

/// What a device computes does not start before its input is there, so that a shift by less than an action shows; a program's action may
/// have waited within.
TEST(TraceImport, AlignsClocksOfDevicesToTheStartsOfActions) {
  for (const double behind : {0.0, 4.0}) {
    for (const char* category : {"gpu_user_annotation", "user_annotation"}) {
      const auto on = [&](const char* name, double start, double duration) { return event(name, 1, start, duration, category); };
      const test::Folder folder;
      (void)folder.with("rank0.json", traceOf(on("PP:0F0", 0, 10) + "," + on("PP:0F1", 10, 10) + "," + on("PP:0B0", 40, 20)));
      (void)folder.with("rank1.json", traceOf(on("PP:1F0", 10 - behind, 10) + "," + on("PP:1B0", 20 - behind, 20)));
      const ImportedTrace result = imported({folder.file("")});
      const bool isMoved = behind > 0 && category[0] == 'g';
      EXPECT_THAT(result.notes, testing::Contains(HasSubstr("disagrees")).Times(isMoved ? 1 : 0)) << category << ' ' << behind;
      const Span& first = *std::ranges::find(result.steps.at(0).trace.spans, Rank(1), &Span::rank);
      EXPECT_EQ(first.start, isMoved ? 10'000 : Ns(10'000 - std::llround(1'000 * behind))) << category;
    }
  }
}

TEST(TraceImport, NumbersTheStepsOfADeviceAsItsProgramMarkedThem) {
  std::string events;
  for (int i = 0; i < 3; ++i) {
    events += event("ProfilerStep#" + std::to_string(7 + i), 1, 100 * i, 90) + ",";
    events += event("PP:0F0", 2, 100 * i + 20, 10, "gpu_user_annotation") + "," +
              event("PP:0B0", 2, 100 * i + 30, 10, "gpu_user_annotation") + (i < 2 ? "," : "");
    if (i == 0) events += event("PP:0F0", 1, 5, 1) + ",";
  }
  const ImportedTrace result = importedText(traceOf(events));
  ASSERT_EQ(result.steps.size(), 3U);
  EXPECT_EQ(result.steps.front().name, "step 7");
  EXPECT_EQ(result.steps.back().name, "step 9");
}

/// Each file begins within a step, at another action: which of its actions are of one step is told by the first of a step.
TEST(TraceImport, LeavesClocksAsTheyAreWhereRecordingsBeginWithinAStep) {
  const std::array<std::vector<std::tuple<const char*, double, double>>, 2> step{
      {{{"PP:0F0", 0, 10}, {"PP:0F1", 10, 10}, {"PP:0B0", 40, 20}, {"PP:0B1", 70, 20}, {"Optimizer.step#SGD.step", 90, 5}},
       {{"PP:1F0", 10, 10}, {"PP:1B0", 20, 20}, {"PP:1F1", 40, 10}, {"PP:1B1", 50, 20}, {"Optimizer.step#SGD.step", 70, 5}}}};
  for (const auto& [first, second] : {std::pair<std::size_t, std::size_t>{0, 1}, {0, 2}, {3, 0}, {2, 3}, {1, 5}, {5, 1}}) {
    for (const double ahead : {0.0, 3.6e9}) {
      if (ahead > 0 && std::max(first, second) == 5) continue;  // whose step is which cannot be told
      const test::Folder folder;
      for (std::size_t r = 0; r < 2; ++r) {
        std::string events;
        std::size_t skipped = r == 0 ? first : second;
        for (int i = 0; i < 3; ++i) {
          for (const auto& [name, start, duration] : step[r]) {
            if (skipped > 0 && skipped-- > 0) continue;
            const double at = start + 100 * i + (r == 1 ? ahead : 0);
            events += (events.empty() ? "" : ",") + event(name, 1, at, duration);
          }
        }
        (void)folder.with("rank" + std::to_string(r) + ".json", traceOf(events));
      }
      const ImportedTrace result = imported({folder.file("")});
      EXPECT_EQ(std::ranges::count_if(result.notes, [](const std::string& note) { return note.find("clock") != std::string::npos; }),
                ahead > 0 ? 1 : 0)
          << first << " and " << second;
      // From the end of the last forward of the first rank to that of the last backward of the second.
      const std::vector<Span>& spans = result.steps.back().trace.spans;
      const auto endOf = [&](int rank, SpanKind kind) {
        Ns end = 0;
        for (const Span& span : spans) end = span.rank.value == rank && span.kind == kind ? std::max(end, span.end) : end;
        return end;
      };
      EXPECT_NEAR(static_cast<double>((endOf(1, SpanKind::Backward) - endOf(0, SpanKind::Forward)).value), 50'000, ahead > 0 ? 20'000 : 0)
          << first << " and " << second;
    }
  }
}

/// Two stages in both directions: microbatch 0 goes from rank 0 to rank 1, microbatch 1 from rank 1 to rank 0.
TEST(TraceImport, AlignsClocksWhereAStageIsOnTwoRanks) {
  for (const double ahead : {-3.6e9, 3.6e9}) {
    const test::Folder folder;
    (void)folder.with("rank0.json", traceOf(event("PP:0F0", 1, 0, 10) + "," + event("PP:1F1", 1, 10, 10)));
    (void)folder.with("rank1.json", traceOf(event("PP:0F1", 1, ahead, 10) + "," + event("PP:1F0", 1, ahead + 10, 10)));
    EXPECT_THAT(imported({folder.file("")}).notes, testing::Contains(HasSubstr("The clock of rank1.json disagrees"))) << ahead;
  }
}

TEST(TraceImport, RefusesFilesOfSeveralRecordings) {
  const test::Folder folder;
  const std::string chrome = folder.with("rank0.json", traceOf(event("PP:0F0", 1, 0, 10)));
  const std::string primus = PW_SOURCE_DIR "/tests/data/primus/pp8",
                    worker = PW_SOURCE_DIR "/tests/data/straggler_analysis/timeline-ST.json.gz";
  for (const auto& paths : {std::vector{primus, chrome}, {chrome, primus}, {worker, chrome}, {chrome, worker}})
    EXPECT_THAT([&] { (void)importTrace(paths); },
                testing::ThrowsMessage<UsageError>(HasSubstr("are not of one recording; import them apart")));
}

TEST(TraceImport, TellsRanksByTheNamesOfThreadsAndProcesses) {
  const auto named = [](const char* what, int process, const char* name) {
    return std::string(R"({"ph":"M","name":")") + what + R"(","pid":)" + std::to_string(process) + R"(,"tid":1,"args":{"name":")" + name +
           "\"}}";
  };
  const std::string events = event("PP:0F0", 30, 0, 1) + "," + event("PP:1F0", 20, 1, 1);
  EXPECT_EQ(importedText(traceOf(events + "," + named("process_name", 30, "Rank 0") + "," + named("process_name", 20, "Rank 1")))
                .steps[0]
                .trace.spans[0]
                .rank,
            Rank(0));
  EXPECT_EQ(importedText(traceOf(named("thread_name", 30, "rank_3") + "," + named("thread_name", 20, "rank_2") + "," + events))
                .steps[0]
                .trace.spans[0]
                .rank,
            Rank(1));
  const ImportedTrace unnamed = importedText(traceOf(events));
  EXPECT_THAT(unnamed.notes, ElementsAre(HasSubstr("Nothing says which rank is which; they are in the order of their first stages")));
  EXPECT_EQ(unnamed.steps[0].trace.spans[0].rank, Rank(0)) << "process 30 has stage 0";
}

TEST(TraceImport, BeginsAStepWithEachMarkOfTheProfiler) {
  const ImportedTrace result =
      importedText(traceOf(event("PP:0F0", 1, 1, 1) + "," + event("ProfilerStep#7", 1, 10, 90) + "," + event("PP:0F0", 1, 20, 5) + "," +
                           event("PP:0B0", 1, 30, 5) + "," + event("ProfilerStep#8", 1, 100, 90) + "," + event("PP:0F0", 1, 120, 6) + "," +
                           event("PP:0B0", 1, 130, 6)));
  ASSERT_EQ(result.steps.size(), 2U);
  EXPECT_EQ(result.steps[0].name, "step 7");
  EXPECT_EQ(result.steps[1].name, "step 8");
  EXPECT_THAT(result.steps[0].trace.spans,
              ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 5'000), compute(0, SpanKind::Backward, 0, 0, 10'000, 15'000)));
  EXPECT_THAT(result.steps[1].trace.spans,
              ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 6'000), compute(0, SpanKind::Backward, 0, 0, 10'000, 16'000)));
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("1 event was left out")));
}

TEST(TraceImport, BeginsAStepWhereAnActionComesAgainOrTheOptimizerIsDone) {
  std::string events;
  for (int step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      const double at = 1000.0 * step + 10 * rank;
      events += event("PP:" + std::to_string(rank) + "F0", rank, at, 5) + "," +
                event("PP:" + std::to_string(rank) + "B0", rank, at + 100, 5) + ",";
    }
  }
  events += event("Optimizer.step#Adam.step", 1, 2500, 3) + "," + event("PP:1F9", 1, 2600, 1);
  const ImportedTrace result = importedText(traceOf(events));
  ASSERT_EQ(result.steps.size(), 4U);
  EXPECT_EQ(result.steps[0].name, "step 1");
  for (int s : {0, 1}) EXPECT_EQ(result.steps[static_cast<std::size_t>(s)].trace.spans.size(), 4U);
  EXPECT_EQ(result.steps[2].trace.spans.back().kind, SpanKind::Optimizer);
  EXPECT_THAT(result.steps[3].trace.spans, ElementsAre(compute(1, SpanKind::Forward, 1, 9, 0, 1'000)));
}

TEST(TraceImport, PrefersTheDevicesTimesAndOfItsStreamsTheOneThatComputes) {
  const std::string info = R"("distributedInfo":{"rank":0},)";
  const auto stream = [](const std::string& name, int thread, double start, double duration) {
    std::string text = event(name, 0, start, duration, "gpu_user_annotation");
    return text.replace(text.find("\"tid\":1"), 7, "\"tid\":" + std::to_string(thread));
  };
  const ImportedTrace result =
      importedText(traceOf(event("PP:0F0", 99, 0, 1) + "," + event("PP:0B0", 99, 2, 1) + "," + stream("PP:0F0", 7, 5, 50) + "," +
                               stream("PP:0F0", 20, 54, 1) + "," + stream("PP:0B0", 7, 60, 80),
                           info));
  EXPECT_THAT(result.steps.at(0).trace.spans,
              ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 50'000), compute(0, SpanKind::Backward, 0, 0, 55'000, 135'000)));
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("Times are those of the device's kernels")));
}

TEST(TraceImport, KeepsWhatARankHadWhenAStepBegan) {
  const auto memory = [](double time, int bytes, int device) {
    return R"({"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":)" + std::to_string(time) + R"(,"args":{"Device Type":)" +
           std::to_string(device) + R"(,"Total Allocated":)" + std::to_string(bytes) + "}}";
  };
  const ImportedTrace result = importedText(traceOf(memory(1, 500, 0) + "," + event("PP:0F0", 1, 10, 5) + "," + memory(12, 700, 0) + "," +
                                                    event("PP:0F0", 1, 20, 5) + "," + memory(21, 600, 0)));
  ASSERT_EQ(result.steps.size(), 2U);
  EXPECT_THAT(result.steps[0].trace.memory, ElementsAre(MemorySample{Rank(0), 0, 500}, MemorySample{Rank(0), 2'000, 700}));
  EXPECT_THAT(result.steps[1].trace.memory, ElementsAre(MemorySample{Rank(0), 0, 700}, MemorySample{Rank(0), 1'000, 600}));
}

TEST(TraceImport, CutsActionsOfARankThatLieOverEachOther) {
  const ImportedTrace result =
      importedText(traceOf(event("PP:0F0", 1, 0, 10) + "," + event("PP:0F1", 1, 2, 3) + "," + event("PP:0F2", 1, 8, 6)));
  EXPECT_THAT(result.steps.at(0).trace.spans,
              ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 10'000), compute(0, SpanKind::Forward, 0, 2, 10'000, 14'000)));
  EXPECT_THAT(result.notes, ElementsAre("2 actions were cut or left out, because they lie over others of the same rank."));
}

TEST(TraceImport, KeepsNanosecondsOfTimesSince1970) {
  // A double keeps 250 ns there.
  const std::string events =
      R"({"ph":"X","name":"PP:0F0","pid":1,"tid":1,"ts":1700000000000000.001,"dur":0.004},{"ph":"X","name":"PP:0F1","pid":1,"tid":1,"ts":1700000000000000.0125,"dur":1.5e0})";
  EXPECT_THAT(importedText(traceOf(events)).steps.at(0).trace.spans,
              ElementsAre(compute(0, SpanKind::Forward, 0, 0, 0, 4), compute(0, SpanKind::Forward, 0, 1, 12, 1'512)));
}

TEST(TraceImport, ReportsProgressAndStopsWhenAsked) {
  const test::Folder folder;
  std::string events = event("PP:0F0", 1, 0, 1);
  for (int i = 1; i < 30'000; ++i) events += "," + event("PP:0F" + std::to_string(i), 1, i, 1);
  const std::string path = folder.with("trace.json", traceOf(events));
  std::uint64_t last = 0, total = 0;
  int calls = 0;
  EXPECT_EQ(importTrace({path},
                        [&](std::uint64_t done, std::uint64_t all) {
                          EXPECT_GE(done, last);
                          last = done;
                          total = all;
                          return ++calls > 0;
                        })
                .value()
                .steps.at(0)
                .trace.spans.size(),
            30'000U);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, std::filesystem::file_size(path));
  EXPECT_GE(calls, 4) << "a window has about a megabyte";
  EXPECT_FALSE(importTrace({path}, [](std::uint64_t, std::uint64_t) { return false; }).has_value());
}

}  // namespace
}  // namespace pw
