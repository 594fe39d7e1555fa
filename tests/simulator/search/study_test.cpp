#include "simulator/search/study.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "schedules/error.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

Study studyOf(const std::string& members) { return parseStudy("{\"version\": 1, \"model\": \"m.pt2\", " + members + "}", "s.json"); }

std::string refusal(const std::string& members) {
  return usageErrorOf([&] { static_cast<void>(studyOf(members)); });
}

TEST(Study, TakesValuesListsAndRanges) {
  const Study study =
      studyOf(R"("ranks": [2, 4], "microbatches": {"from": 2, "to": 16, "times": 2}, "batch": {"from": 8, "to": 20, "step": 6},
      "schedule": ["1f1b", "Interleaved1F1B", "auto"], "memory_limit": ["1MiB", 5], "recompute": ["none", ["blocks", "head"]], "zero1": true)");
  EXPECT_EQ(study.models, std::vector<std::string>{"m.pt2"});
  EXPECT_EQ(study.ranks, (std::vector<int>{2, 4}));
  EXPECT_EQ(study.microbatches, (std::vector<int>{2, 4, 8, 16}));
  EXPECT_EQ(study.batches, (std::vector<std::int64_t>{8, 14, 20}));
  EXPECT_EQ(study.schedules, (std::vector<std::string>{"1f1b", "interleaved-1f1b", "auto"})) << "torch's names, too";
  EXPECT_EQ(study.memoryLimits, (std::vector<Bytes>{1 << 20, 5}));
  EXPECT_EQ(study.recomputes[1], Recompute(RecomputeModules{{"blocks", "head"}}));
  EXPECT_EQ(study.zero1, std::vector<bool>{true});
  EXPECT_EQ(pointsOf(study), 2 * 4 * 3 * 3 * 2 * 2);
}

TEST(Study, TakesRangesOfMemory) {
  const std::string rest = R"("ranks": 2, "microbatches": 4, "memory_limit": )";
  EXPECT_EQ(studyOf(rest + R"({"from": "1KiB", "to": "4KiB", "step": "1536B"})").memoryLimits, (std::vector<Bytes>{1024, 2560, 4096}));
  EXPECT_EQ(studyOf(rest + R"({"from": "1KiB", "to": 5000, "times": 2})").memoryLimits, (std::vector<Bytes>{1024, 2048, 4096}));
  EXPECT_NE(refusal(rest + R"({"from": "1KiB", "to": "4KiB", "step": "0B"})").find("steps of 0"), std::string::npos);
  EXPECT_NE(refusal(rest + R"({"from": "1KiB", "to": "4GiB"})").find("has more than 100000 values"), std::string::npos);
}

TEST(Study, GivesEveryClusterEveryLink) {
  const Study study = studyOf(R"("ranks": 2, "microbatches": 4, "cluster": ["a", "b.json"], "link": ["", "nvlink-4"])");
  EXPECT_EQ(study.clusters, (std::vector<std::string>{"a", "a+nvlink-4", "b.json", "b.json+nvlink-4"}));
  EXPECT_NE(refusal(R"("ranks": 2, "microbatches": 4, "link": "nvlink-4")").find("`link` is of no cluster; add the member cluster"),
            std::string::npos);
}

TEST(Study, HasEveryCombinationOnce) {
  const Study study =
      studyOf(R"("ranks": [2, 4, 8], "microbatches": [4, 8], "replicas": [1, 2], "chunks": [1, 2], "schedule": ["gpipe", "1f1b"],
      "cluster": ["a", "b"], "precision": ["traced", "bf16"], "attention": ["traced", "fused"], "microbatch": [1, 2],
      "balance": ["time", "memory"], "optimizer": ["sgd", "adamw"])");
  std::set<std::string> seen;
  for (std::int64_t n = 0; n < pointsOf(study); ++n) {
    const StudyPoint p = pointOf(study, n);
    EXPECT_EQ(p.number, n);
    seen.insert(p.cluster + std::string(precisionName(p.precision)) + std::string(nameOf(p.attention)) + p.schedule + "/" +
                std::to_string(p.ranks) + "/" + std::to_string(p.microbatches) + "/" + std::to_string(p.replicas) + "/" +
                std::to_string(p.chunks) + "/" + std::to_string(p.microbatchSize) + "/" + std::to_string(static_cast<int>(p.balance)) +
                "/" + std::to_string(static_cast<int>(p.optimizer.kind)));
  }
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), pointsOf(study));
  EXPECT_EQ(pointsOf(study), 3 * 1024);
}

TEST(Study, RefusesWhatItCannotVary) {
  const std::string rest = R"("ranks": 2, "microbatches": 4)",
                    bad = "s.json is not a usable study: ", see = "; the user guide has an example.";
  EXPECT_EQ(refusal(rest), "no error");
  EXPECT_EQ(refusal(rest + R"(, "rank": 3)"), bad + "it has the unknown member rank" + see);
  EXPECT_EQ(refusal(R"("ranks": [], "microbatches": 4)"), bad + "`ranks` is empty" + see);
  EXPECT_EQ(refusal(R"("ranks": [2, 2], "microbatches": 4)"), bad + "`ranks` has a value twice" + see);
  EXPECT_EQ(refusal(R"("ranks": {"from": 4, "to": 2}, "microbatches": 4)"), bad + "`ranks` is empty" + see);
  EXPECT_EQ(refusal(R"("ranks": 0, "microbatches": 4)"), bad + "`ranks` is 0, outside 1 to 1024" + see);
  EXPECT_EQ(refusal(R"("ranks": 2, "microbatches": {"from": 1, "to": 1000000})"), bad + "`microbatches` has more than 100000 values" + see);
  EXPECT_EQ(refusal(R"("ranks": {"from": 1, "to": 1024}, "microbatches": {"from": 1, "to": 99000})"),
            "The study has more than 100000000 points; give fewer values.");
  EXPECT_EQ(refusal(R"("ranks": 2, "microbatches": {"from": 1, "to": 4, "stpe": 2})"),
            bad + "`microbatches` has stpe; a range has from, to, and step or times" + see);
  EXPECT_EQ(refusal(R"("ranks": 2, "microbatches": {"from": 1, "to": 4, "step": 2, "times": 2})"),
            bad + "`microbatches` has both step and times" + see);
  EXPECT_EQ(studyOf(R"("ranks": 2, "microbatches": 4, "batch": {"from": 8388608, "to": 16777216, "times": 16777216})").batches.size(), 1U)
      << "no overflow";
  EXPECT_NE(refusal(rest + R"(, "schedule": "2f2b")").find("2f2b"), std::string::npos);
  EXPECT_NE(refusal(rest + R"(, "schedule": "forward-only")").find("does not train"), std::string::npos);
  EXPECT_EQ(refusal(rest + R"(, "seconds": 0)"), bad + "`seconds` is not from 0.01 to 3600" + see);
  EXPECT_NE(refusal(rest + R"(, "memory_limit": 24e9)").find("whole number of bytes"), std::string::npos);
  EXPECT_EQ(refusal(rest + R"(, "precision": "int4")"), bad + "`precision` is not traced, bf16, fp16 or fp8" + see);
}

TEST(StudyShard, PartsHaveEveryPointOnce) {
  for (const int count : {1, 2, 7}) {
    for (std::int64_t point = 0; point < 100; ++point) {
      int having = 0;
      for (int index = 0; index < count; ++index) having += StudyShard{index, count}.has(point) ? 1 : 0;
      EXPECT_EQ(having, 1);
    }
  }
  // Of two values that take turns both fall to every part, and parts are as large as each other.
  for (const int count : {2, 4, 8}) {
    std::vector<int> odd(static_cast<std::size_t>(count)), all(static_cast<std::size_t>(count));
    for (std::int64_t point = 0; point < 512; ++point) {
      for (int index = 0; index < count; ++index) {
        if (!StudyShard{index, count}.has(point)) continue;
        ++all[static_cast<std::size_t>(index)];
        odd[static_cast<std::size_t>(index)] += static_cast<int>(point % 2);
      }
    }
    EXPECT_EQ(all, std::vector<int>(static_cast<std::size_t>(count), 512 / count));
    for (const int of : odd) EXPECT_GT(of, 512 / count / 4) << count;
  }
  EXPECT_EQ(parseShard("2/8").index, 2);
  EXPECT_EQ(parseShard("2/8").count, 8);
  for (const char* bad : {"", "2", "8/8", "-1/2", "1/0", "1/2/3", "a/b", "1/2 "})
    EXPECT_THROW(static_cast<void>(parseShard(bad)), UsageError) << bad;
}

}  // namespace
}  // namespace pw::test
