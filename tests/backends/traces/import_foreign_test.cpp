// Import of Nsight Systems' exports and Chakra's traces (tests/data/foreign: 1F1B on two ranks, F 1 ms, B 2 ms), and of names by patterns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <SQLiteCpp/SQLiteCpp.h>
#include <algorithm>
#include <filesystem>
#include <string>

#include "backends/traces/formats.h"
#include "backends/traces/import.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/trace/executed.h"
#include "tests/support/folder.h"
#include "tests/support/gzip.h"
#include "tests/support/trace_rules.h"

namespace pw {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kForeign = PW_SOURCE_DIR "/tests/data/foreign/";

ImportedTrace imported(const std::vector<std::string>& paths, const ImportOptions& options = {}) {
  ImportedTrace result = importTrace(paths, {}, options).value();
  for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
  return result;
}

/// F and B, by time.
std::vector<Span> actionsOf(const Trace& trace) {
  std::vector<Span> spans;
  std::ranges::copy_if(trace.spans, std::back_inserter(spans), [](const Span& span) { return isCompute(span.kind); });
  return spans;
}

/// What the simulator makes of the step that the files hold.
std::vector<Span> simulatedActions() {
  SyntheticCosts costs;
  costs.forward = {1'000'000};
  costs.backward = {2'000'000};
  return actionsOf(simulate(generate("1f1b", {2, 2, 4}), syntheticTable(costs, 2)));
}

/// A copy of the export that a test may change.
std::string changedExport(const test::Folder& folder, const std::string& name, const std::vector<std::string>& changes) {
  const std::string path = folder.with(name, test::contentOf(kForeign + "nsight.sqlite"));
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  for (const std::string& change : changes) db.exec(change);
  return path;
}

std::string refusal(const std::string& path, const ImportOptions& options = {}) {
  try {
    (void)importTrace({path}, {}, options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(NsightImport, TakesTheTimesOfTheKernelsThatWereLaunchedInARange) {
  const ImportedTrace result = imported({kForeign + "nsight.sqlite"});
  ASSERT_EQ(result.steps.size(), 2U);
  for (const ImportedStep& step : result.steps) {
    EXPECT_EQ(actionsOf(step.trace), simulatedActions());
    EXPECT_EQ(executedSchedule(step.trace)->name, "1f1b");
    EXPECT_EQ(std::ranges::count(step.trace.spans, SpanKind::Optimizer, &Span::kind), 2);
    EXPECT_EQ(std::ranges::count(step.trace.spans, SpanKind::SendForward, &Span::kind), 4) << "the first rank sends each microbatch";
  }
}

TEST(NsightImport, MergesTheExportsOfSeveralHosts) {
  const test::Folder folder;
  // One file per process, whose sessions began 3 ms apart by the second one's clock, which is wrong by 5 ms.
  const std::string second = std::to_string((std::int64_t{1} << 56 | 4007LL << 24) >> 24);
  const auto without = [](const std::string& process) {
    return std::vector<std::string>{"DELETE FROM NVTX_EVENTS WHERE globalTid >> 24 = " + process,
                                    "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >> 24 = " + process};
  };
  (void)changedExport(folder, "host0.sqlite", without(second));
  std::vector<std::string> changes = without(std::to_string((std::int64_t{1} << 56 | 4000LL << 24) >> 24));
  changes.emplace_back("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 5000000");
  (void)changedExport(folder, "host1.sqlite", changes);
  const ImportedTrace result = imported({folder.file("")});
  ASSERT_EQ(result.steps.size(), 2U);
  EXPECT_THAT(result.notes, Contains(HasSubstr("The clock of host1.sqlite disagrees")));
  // Rank 1 sends gradients at once and waits for each forward but the first: both bounds are exact, so is the clock.
  EXPECT_EQ(actionsOf(result.steps[1].trace), simulatedActions());
}

TEST(NsightImport, TakesTheRangesThemselvesWhereThereAreNoKernels) {
  const test::Folder folder;
  const std::string path =
      changedExport(folder, "cpu.sqlite", {"DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "DROP TABLE TARGET_INFO_SESSION_START_TIME"});
  const ImportedTrace result = imported({path});
  ASSERT_EQ(result.steps.size(), 2U);
  for (const Span& span : actionsOf(result.steps[0].trace)) EXPECT_EQ(span.end - span.start, 200'000) << "what the program took to enqueue";
}

TEST(NsightImport, ReadsNamesByAUsersPatterns) {
  const test::Folder folder;
  std::vector<std::string> changes{
      "UPDATE NVTX_EVENTS SET text = 'stage ' || ((globalTid >> 24 & 16777215) = 4007) || ' compute fwd' WHERE text LIKE '%forward_step'",
      "UPDATE NVTX_EVENTS SET text = 'stage ' || ((globalTid >> 24 & 16777215) = 4007) || ' compute bwd' WHERE text LIKE '%backward_step'"};
  const std::string path = changedExport(folder, "own.sqlite", changes);
  const std::string file = folder.with("names.json", R"({"patterns": [{"regex": "^stage (?<stage>\\d+) compute (?P<kind>fwd|bwd)$"}]})");
  EXPECT_EQ(actionsOf(imported({path}, {file}).steps.at(0).trace), simulatedActions());
  // The same for Chrome's files, whatever the category.
  const std::string chrome = folder.with("own.json", R"([{"ph":"X","cat":"x","name":"mb 3 of 2: FWD","pid":1,"tid":1,"ts":1,"dur":5}])");
  const std::string numbers =
      folder.with("numbers.json", R"p({"patterns": [{"regex": "mb (?<microbatch>\\d+) of (?<stage>\\d)", "kind": "F", "first": 1}]})p");
  const Trace trace = imported({chrome}, {numbers}).steps.at(0).trace;
  EXPECT_EQ(trace.spans.at(0), (Span{Rank(0), SpanKind::Forward, Stage(2), Microbatch(2), Rank(0), 0, 0, 5'000}));
}

TEST(NsightImport, SaysWhatIsWrongWithAFileOfPatterns) {
  const test::Folder folder;
  const auto said = [&](const std::string& text) { return refusal(kForeign + "nsight.sqlite", {folder.with("p.json", text)}); };
  EXPECT_THAT(said("{"), HasSubstr("p.json"));
  EXPECT_THAT(said(R"({"patterns": []})"), HasSubstr("has 0 patterns"));
  EXPECT_THAT(said(R"p({"patterns": [{"regex": "("}]})p"), HasSubstr("`patterns[0].regex` is not a regular expression"));
  EXPECT_THAT(said(R"({"patterns": [{"regex": "a"}]})"), HasSubstr("says no kind"));
  EXPECT_THAT(said(R"({"patterns": [{"regex": "a", "kind": "Q"}]})"), HasSubstr("is none of F, B"));
  EXPECT_THAT(said(R"p({"patterns": [{"regex": "(?<rank>a)", "kind": "F"}]})p"), HasSubstr("group \"rank\""));
  EXPECT_THAT(said(R"({"patterns": [{"regex": "a", "kind": "F", "stages": 1}]})"), HasSubstr("has \"stages\""));
  EXPECT_NE(refusal(kForeign + "nsight.sqlite", {folder.file("none.json")}), "");
}

TEST(NsightImport, RefusesDatabasesThatAreNone) {
  const test::Folder folder;
  EXPECT_THAT(refusal(changedExport(folder, "a.sqlite", {"DROP TABLE NVTX_EVENTS"})), HasSubstr("has no NVTX ranges"));
  EXPECT_THAT(refusal(changedExport(folder, "b.sqlite",
                                    {"ALTER TABLE NVTX_EVENTS RENAME TO other",
                                     "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x "
                                     "AS start, x AS \"end\", 59 AS eventType, "
                                     "'forward_step' AS text FROM n"})),
              HasSubstr("has no NVTX ranges"))
      << "a view may never end";
  EXPECT_EQ(traceFormatOf(changedExport(folder, "c.sqlite", {})), TraceFormat::Nsight);
  EXPECT_EQ(traceFormatOf(folder.with("d.db", "SQLite format 3")), std::nullopt);
  EXPECT_THAT(refusal(folder.with("d.db", "SQLite format 3")), HasSubstr("is a database, but not a usable export of Nsight Systems"));
  // Lines of a log begin with a bracket, as JSON does.
  for (const char* line : {" [2025-01-01 10:00:00] iteration  5/ 100", "[rank0]: (min, max) time across ranks (ms):"})
    EXPECT_EQ(traceFormatOf(folder.with("e.log", line)), std::nullopt) << line;
  for (const char* json : {"[]", "[\n", "[ {\"ph\": \"X\"}]", "[1]", "[1, [2] ]"})
    EXPECT_EQ(traceFormatOf(folder.with("f.json", json)), TraceFormat::Chrome) << json;
  // It stops when its reader wants it to.
  EXPECT_FALSE(importTrace({kForeign + "chakra.0.et"}, [](std::uint64_t, std::uint64_t) { return false; }).has_value());
}

TEST(ChakraImport, StartsActionsWhenRankAndInputAreReady) {
  const ImportedTrace result = imported({kForeign + "chakra.0.et", kForeign + "chakra.1.et"});
  EXPECT_THAT(result.notes, Contains(HasSubstr("durations but no times")));
  ASSERT_EQ(result.steps.size(), 2U);
  for (const ImportedStep& step : result.steps) EXPECT_EQ(actionsOf(step.trace), simulatedActions());
}

TEST(ChakraImport, ReadsCompressedFilesAndFolders) {
  const test::Folder folder;
  for (const char* name : {"chakra.1.et", "chakra.0.et"})
    (void)folder.with(std::string(name) + ".gz", test::gzipped(test::contentOf(kForeign + name)));
  EXPECT_EQ(traceFormatOf(folder.file("chakra.0.et.gz")), TraceFormat::Chakra);
  EXPECT_EQ(actionsOf(imported({folder.file("")}).steps.at(0).trace), simulatedActions());
}

TEST(ChakraImport, ReadsBothFormsOfJson) {
  const test::Folder folder;
  // The jsonizer writes one object after another, numbers of 64 bits as texts, and no false; times are there in some traces.
  const std::string stream = folder.with("a.0.json", R"({"version": "1.0.0"}
{"id": "2", "name": "[pytorch|profiler|execution_trace|thread]", "type": "METADATA_NODE"}
{"id": "3", "name": "PP:0F0", "type": "COMP_NODE", "ctrlDeps": ["2"], "startTimeMicros": "10", "durationMicros": "1"}
{"id": "4", "name": "aten::mm", "type": "COMP_NODE", "ctrlDeps": ["3"], "startTimeMicros": "12", "durationMicros": "8", "attr": [{"name": "is_cpu_op", "boolVal": true}]})");
  EXPECT_EQ(traceFormatOf(stream), TraceFormat::ChakraJson);
  EXPECT_EQ(imported({stream}).steps.at(0).trace.spans.at(0),
            (Span{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, 10'000}));
  // The feeder's: kernels count where there are any.
  const std::string graph = folder.with("b.0.json", R"p({"workload_graph": [
    {"Id": 3, "Name": "PP:0F0(0)", "NodeType": 4, "ctrlDeps": [2], "data_deps": [], "runtime": 100, "is_cpu_op": true},
    {"Id": 4, "Name": "gemm", "NodeType": 4, "ctrlDeps": [3], "data_deps": [], "runtime": 7, "is_cpu_op": false}], "ngpus": 8})p");
  EXPECT_EQ(traceFormatOf(graph), TraceFormat::ChakraJson);
  EXPECT_EQ(imported({graph}).steps.at(0).trace.spans.at(0).end, 7'000);
}

TEST(ChakraImport, KeepsTimesSince1970) {
  const test::Folder folder;
  const std::string graph = folder.with("b.0.json", R"p({"workload_graph": [
    {"Id": 3, "Name": "PP:0F0(0)", "ctrlDeps": [2], "start_time_micros": 1700000000000000, "runtime": 500, "is_cpu_op": true},
    {"Id": 4, "Name": "PP:0F1(0)", "ctrlDeps": [2], "start_time_micros": 1700000000001000, "runtime": 500, "is_cpu_op": true}]})p");
  const Trace trace = imported({graph}).steps.at(0).trace;
  ASSERT_EQ(trace.spans.size(), 2U);
  EXPECT_EQ(trace.spans[1].start, 1'000'000);
  EXPECT_EQ(trace.spans[1].end, 1'500'000);
}

TEST(ChakraImport, SaysNothingOfClocksWhereThereAreNoTimes) {
  const test::Folder folder;
  std::vector<std::string> files;
  for (int rank = 0; rank < 2; ++rank) {
    files.push_back(folder.with("c." + std::to_string(rank) + ".json",
                                R"({"workload_graph": [{"Id": 3, "Name": "PP:)" + std::to_string(rank) + R"(F0", "runtime": )" +
                                    std::to_string(rank == 0 ? 10'000 : 5'000) + R"(, "is_cpu_op": true}]})"));
  }
  const ImportedTrace result = imported(files);
  for (const std::string& note : result.notes) EXPECT_THAT(note, Not(HasSubstr("clock")));
  EXPECT_EQ(result.steps.at(0).trace.spans.at(1).start, 10'000'000);
}

TEST(TraceFormats, HaveNamesAndEndings) {
  for (const TraceFormat format : kTraceFormats) {
    EXPECT_FALSE(factsOf(format).name.empty());
    EXPECT_TRUE(factsOf(format).endings.starts_with('.'));
  }
  EXPECT_THAT(traceEndings(), testing::ElementsAre(".json", ".json.gz", ".sqlite", ".et", ".et.gz", ".csv"));
}

}  // namespace
}  // namespace pw
