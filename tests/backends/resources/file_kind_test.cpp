#include "backends/resources/file_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "backends/host/files.h"
#include "backends/store/run_store.h"
#include "backends/store/study_store.h"
#include "schedules/error.h"
#include "tests/support/folder.h"
#include "tests/support/gzip.h"

namespace pw {
namespace {

using K = FileKind;
using testing::HasSubstr;

const std::string kSource = PW_SOURCE_DIR;

std::string errorOf(const std::string& path, std::initializer_list<FileKind> wanted) {
  try {
    requireKind(path, wanted);
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST(FileKind, TellsEveryFileOfOtherToolsThatIsKeptHere) {
  // By folder and ending: other tools wrote these, so nobody fitted them to the words that are looked for.
  const std::map<std::string, FileKind> kinds{{"tests/data .pt2", K::Model},
                                              {"tests/data/foreign .et", K::Trace},
                                              {"tests/data/foreign .sqlite", K::Trace},
                                              {"tests/data/hangs .csv", K::Schedule},
                                              {"tests/data/pipedream .txt", K::MeasuredLayers},
                                              {"tests/data/primus/pp8 .json", K::Trace},
                                              {"tests/data/straggler_analysis .gz", K::Trace},
                                              {"tests/data/torch_traces .gz", K::Trace},
                                              {"tests/data/torch_traces .csv", K::Schedule},
                                              {"tests/data/torch_pipelines .json", K::Dump},
                                              {"tests/data/torch_hangs .csv", K::Schedule},
                                              {"resources/clusters .json", K::Cluster},
                                              {"resources/models .pt2", K::Model}};
  std::map<std::string, int> seen;
  for (const auto& [where, kind] : kinds) {
    const std::size_t blank = where.find(' ');
    const bool deep = where.starts_with("tests/data/");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource + "/" + where.substr(0, blank))) {
      const bool inside = deep || entry.path().parent_path() == std::filesystem::path(kSource + "/" + where.substr(0, blank));
      if (entry.path().filename() == "truths.json") continue;  // of the tests
      if (!entry.is_regular_file() || entry.path().extension() != where.substr(blank + 1) || !inside) continue;
      EXPECT_EQ(nameOf(fileKindOf(entry.path())), nameOf(kind)) << entry.path();
      ++seen[where];
    }
    EXPECT_GT(seen[where], 0) << where;
  }
  EXPECT_EQ(fileKindOf(kSource + "/resources/examples/study.json"), K::Study);
  EXPECT_EQ(fileKindOf(kSource + "/resources/examples/mixed_rack.json"), K::Cluster);
  EXPECT_EQ(fileKindOf(kSource + "/tests/data/torch_hangs/stopped"), K::Dump);
  EXPECT_EQ(fileKindOf(kSource + "/tests/data/torch_traces/zbv"), K::Trace);
  EXPECT_EQ(fileKindOf(kSource + "/tests/data/pipedream"), K::Unknown);
}

TEST(FileKind, TellsFormatsByTheirFirstWordsWhateverTheirNames) {
  const std::map<std::string, FileKind> texts{
      {R"({"format": "pipewright-plan", "version": 3})", K::Plan},
      {"\xEF\xBB\xBF{\n  \"version\": 3, \"format\"\n:\t\"pipewright-plan\"}", K::Plan},
      {R"({"format": "pipewright-profile", "layers": "forward_ns"})", K::Profile},
      {R"({"format": "", "own": {"format": 3}, "format": "pipewright-profile"})", K::Profile},
      {R"({"format": "pipewright job", "version": 1})", K::Job},
      {R"({"pipewright_project": 1, "profile": {"format": "pipewright-profile"}})", K::Project},
      {R"({"notes": {"format": "x"}, "format": "pipewright-plan", "profile": {"device": "d", "peak_flops": 1}})", K::Plan},
      {R"({"layers": [{"name": "a", "forward_ns": 1}], "ranks": 2, "microbatches": 4, "device": "d", "peak_flops": 3})", K::LayerTable},
      {R"({"ranks": 2, "microbatches": 4, "forward_ns": [1, 1], "device": "d", "peak_flops": 3})", K::Problem},
      {"name,forward_ns,backward_ns\nforward_compute_time,1,2\n", K::LayerTable},
      {R"({"ranks": 2, "microbatches": 4, "forward_ns": [1, 1], "layers": 32})", K::Problem},
      {R"({"layers": [{"name": "a", "forward_ns": 1}]})", K::LayerTable},
      {"name,forward_ns,backward_ns\na,1,2\n", K::LayerTable},
      {"name;forward_ns\na;1\n", K::LayerTable},
      {"0F0,0F1,,0B0\n", K::Schedule},
      {"\n,,1F0,\n0F0,\n", K::Schedule},
      {R"([{"ph": "X", "name": "0F0", "ts": 1, "dur": 1}])", K::Trace},
      {R"({"version": 1, "device": {"peak_flops": 1}})", K::Cluster},
      {R"({"version": 1, "model": "m.pt2", "ranks": [2], "microbatches": [4]})", K::Study},
      // Kineto's description of the job's process groups, before its events
      {R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "pg_config": [{"pg_name": "0"}]}, "traceEvents": []})", K::Trace},
      {R"({"version": "2.10", "nccl_version": "2.21", "pg_config": {"0": {}}, "entries": []})", K::Dump},
      {"", K::Unknown},
      {"\n \t", K::Unknown},
      {"{", K::Unknown},
      {"{\"format\":", K::Unknown},
      {"{\"format\": \"pipewright-plan", K::Unknown},
      {"hello, world\n", K::Unknown},
      {"SQLite format 3", K::Unknown},
      {R"({"a": 1})", K::Unknown}};
  const test::Folder folder;
  for (const auto& [text, kind] : texts) {
    writeFile(folder.file("file.txt"), text);
    EXPECT_EQ(nameOf(fileKindOf(folder.file("file.txt"))), nameOf(kind)) << text;
  }
  EXPECT_EQ(fileKindOf(folder.file("none")), K::Unknown);
  EXPECT_EQ(fileKindOf("/dev/null"), K::Unknown);
  EXPECT_EQ(fileKindOf(folder.file(".")), K::Unknown);
}

TEST(FileKind, TellsOurDatabases) {
  const test::Folder folder;
  static_cast<void>(RunStore(folder.file("a.json"), RunStore::Mode::ReadWrite));
  EXPECT_EQ(fileKindOf(folder.file("a.json")), K::RunStore);
  static_cast<void>(StudyStore(folder.file("b.json"), readFile(kSource + "/resources/examples/study.json"), ""));
  EXPECT_EQ(fileKindOf(folder.file("b.json")), K::StudyResults);
}

TEST(FileKind, SaysWhatAFileIsAndWhatToDoWithIt) {
  const test::Folder folder;
  const std::string schedule = folder.file("s.json");
  writeFile(schedule, "0F0,0B0\n");
  EXPECT_EQ(errorOf(schedule, {K::Schedule}), "");
  EXPECT_EQ(errorOf(schedule, {K::Plan, K::Schedule}), "");
  EXPECT_EQ(errorOf(schedule, {K::Plan}),
            schedule + " is a schedule, not a plan; predict its step with `pipewright simulate --csv " + schedule + "`");
  EXPECT_THAT(errorOf(schedule, {K::Trace, K::Job, K::Plan}), HasSubstr("is a schedule, not a trace, a job or a plan; "));
  EXPECT_EQ(errorOf(folder.file("none"), {K::Plan}), "");  // whoever reads it says that it is not there
  for (int kind = 1; kind <= static_cast<int>(K::Dump); ++kind) {
    EXPECT_THAT(useOf(static_cast<FileKind>(kind), "F"), HasSubstr(" F")) << kind;
    EXPECT_THAT(useOf(static_cast<FileKind>(kind), "%%"), HasSubstr("%%")) << kind;
  }
}

TEST(FileKind, OfAModelIsByNameOnlyWhereItsContentSaysNothing) {
  const test::Folder folder;
  writeFile(folder.file("t.txt"), "name,forward_ns,backward_ns\na,1,2\n");
  writeFile(folder.file("bad.csv"), "nothing\n");
  EXPECT_EQ(modelKindOf({folder.file("t.txt")}), K::LayerTable);
  EXPECT_EQ(modelKindOf({folder.file("bad.csv")}), K::LayerTable);
  EXPECT_EQ(modelKindOf({folder.file("none.pt2")}), K::Model);
  writeFile(folder.file("plan.pt2"), R"({"format": "pipewright-plan"})");
  EXPECT_THROW(static_cast<void>(modelKindOf({folder.file("plan.pt2")})), UsageError);
}

}  // namespace
}  // namespace pw
