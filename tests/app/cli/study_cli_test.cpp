#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "backends/host/files.h"
#include "backends/store/study_store.h"
#include "engine/planning/study_run.h"
#include "schedules/error.h"
#include "simulator/search/search.h"
#include "tests/app/cli/call.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

/// A study of one model with many kinds of plans; some are impossible, some do not fit.
std::string studyText() {
  return R"({"version": 1, "model": ")" + sample("gpt_small") +
         R"(", "cluster": ["h100-nvlink", "cpu-workstation+ethernet-25"], "ranks": [1, 2, 3],
    "replicas": [1, 2], "microbatches": [2, 3, 6], "schedule": ["1f1b", "zbv", "dualpipe"], "recompute": ["none", "full", "auto"],
    "balance": ["time", "parameters"], "optimizer": "adamw", "zero1": [false, true], "memory_limit": ["1MiB", "3MiB"]})";
}

std::vector<StudyRow> rowsOf(const std::string& path) {
  std::vector<StudyRow> rows;
  StudyStore(path).forEach([&](const StudyRow& row) { rows.push_back(row); });
  return rows;
}

Bytes peakOf(const Json& prediction) {
  Bytes peak = 0;
  for (const Json& rank : prediction["ranks"]) peak = std::max(peak, rank["peak_bytes"].get<Bytes>());
  return peak;
}

TEST(StudyCommand, PredictsWhatPlanDoes) {
  const Folder folder;
  const std::string study = folder.with("s.json", studyText());
  const Outcome outcome = call({"search", "--study", study, "--csv", folder.file("s.csv"), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<StudyRow> rows = rowsOf(folder.file("s.db"));
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(static_cast<std::int64_t>(rows.size()), json["points"]);
  EXPECT_EQ(json["fit"].get<int>() + json["too_large"].get<int>() + json["impossible"].get<int>(), json["points"]);
  EXPECT_GT(json["impossible"], 0) << "dualpipe on three ranks";
  const std::string csv = contentOf(folder.file("s.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), std::ssize(rows) + 1);
  std::mt19937_64 random(1);
  int compared = 0;
  for (int t = 0; t < 60; ++t) {
    const auto& [p, r] = rows[static_cast<std::size_t>(draw(random, 0, std::ssize(rows) - 1))];
    std::vector<std::string> words{"plan",           sample("gpt_small"),
                                   "--cluster",      p.cluster,
                                   "--ranks",        std::to_string(p.ranks),
                                   "--replicas",     std::to_string(p.replicas),
                                   "--microbatches", std::to_string(p.microbatches),
                                   "--schedule",     p.schedule,
                                   "--recompute",    wordsOf(p.recompute).front(),
                                   "--balance",      std::string(nameOf(p.balance)),
                                   "--optimizer",    "adamw",
                                   "--memory-limit", std::to_string(p.memoryLimit.value) + "B",
                                   "--json"};
    const bool hasCopies = p.replicas > 1 || p.schedule == "dualpipe";
    if (p.zero1 && hasCopies) words.emplace_back("--zero1");
    const Outcome plan = call(words);
    if (!r.problem.empty()) {
      EXPECT_EQ(plan.status, 2) << r.problem;
      continue;
    }
    const Json prediction = Json::parse(plan.out);
    EXPECT_EQ(prediction["step_ns"], r.step.value) << p.number;
    EXPECT_EQ(prediction["makespan_ns"], r.makespan.value) << p.number;
    EXPECT_EQ(peakOf(prediction), r.peak) << p.number;
    EXPECT_EQ(plan.status, r.excess == 0 ? 0 : 1) << p.number;
    EXPECT_NEAR(prediction["flop_utilisation"].get<double>(), r.flopUtilisation, 1e-12);
    ++compared;
  }
  EXPECT_GT(compared, 25);
}

TEST(StudyCommand, ShowsWhatVariesInTheStudyWhateverRowsAreShown) {
  const Folder folder;
  const std::string study = folder.with("s.json", studyText());
  const Outcome outcome = call({"search", "--study", study, "--out", folder.file("s.db"), "--top", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* column : {"cluster", "ranks", "replicas", "microbatches", "schedule", "recompute", "balance", "zero1", "memory limit"})
    EXPECT_NE(outcome.out.find(column), std::string::npos) << column << " in\n" << outcome.out;
  EXPECT_EQ(outcome.out.find("optimizer"), std::string::npos) << "there is one only";
}

TEST(StudyCommand, GoesOnWhereItWasInterrupted) {
  const Folder folder;
  const std::string study = folder.with("s.json", studyText());
  const std::string text = studyText();
  StudyStore store(folder.file("s.db"), text, studyInputs(parseStudy(text, study), ""));
  for (int stops = 1; stops <= 5; ++stops) {
    const std::int64_t before = store.counts().done;
    std::int64_t first = -1;
    StudyEffort effort;
    effort.shouldContinue = [&](std::int64_t done, std::int64_t) {
      if (first < 0) first = done;
      return done < first + 40;
    };
    EXPECT_FALSE(runStudy(store, effort));
    EXPECT_EQ(first, before + 1);
  }
  const std::int64_t kept = store.counts().done;
  EXPECT_GE(kept, 5 * 40);
  EXPECT_LT(kept, pointsOf(store.study()));
  const Outcome outcome = call({"search", "--study", study});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::set<std::int64_t> numbers;
  for (const StudyRow& row : rowsOf(folder.file("s.db"))) EXPECT_TRUE(numbers.insert(row.point.number).second);
  EXPECT_EQ(static_cast<std::int64_t>(numbers.size()), pointsOf(store.study()));
}

TEST(StudyCommand, KnowsTheProfilesThatAClusterNamesForItsRanks) {
  const Folder folder;
  const std::string own = folder.file("own.json");
  const auto estimated = [&](const char* cluster) {
    ASSERT_EQ(call({"profile", sample("gpt_small"), "--estimate", cluster, "--out", own}).status, 0);
  };
  Json cluster = Json::parse(readFile(PW_SOURCE_DIR "/resources/clusters/h100-nvlink.json"));
  cluster["ranks"] = Json::array({Json::object(), {{"profile", "own.json"}}});
  static_cast<void>(folder.with("rack.json", cluster.dump()));
  const std::string text =
      R"({"version": 1, "model": ")" + sample("gpt_small") + R"(", "cluster": "./rack.json", "ranks": 2, "microbatches": 4,
      "schedule": "1f1b"})";
  const std::string file = folder.with("s.json", text);
  const std::string at = file.substr(0, file.rfind('/'));
  estimated("h100-nvlink");
  const std::string before = studyInputs(parseStudy(text, file), at);
  EXPECT_EQ(studyInputs(parseStudy(text, file), at), before);
  estimated("l4-pcie");
  EXPECT_NE(studyInputs(parseStudy(text, file), at), before) << "what was found before would not be found now";
}

TEST(StudyCommand, KeepsWhatEndedBeforeAnException) {
  const Folder folder;
  const std::string text = studyText();
  StudyStore store(folder.file("s.db"), text, studyInputs(parseStudy(text, folder.with("s.json", text)), ""));
  StudyEffort effort;
  effort.shouldContinue = [](std::int64_t done, std::int64_t) -> bool {
    if (done >= 3) throw Error("interrupted");
    return true;
  };
  EXPECT_THROW(static_cast<void>(runStudy(store, effort)), Error);
  EXPECT_GE(store.counts().done, 3);
}

TEST(StudyCommand, PartsMakeTheWhole) {
  const Folder folder;
  const std::string study = folder.with("s.json", studyText());
  ASSERT_EQ(call({"search", "--study", study, "--out", folder.file("whole.db")}).status, 0);
  ASSERT_EQ(call({"search", "--study", study, "--shard", "0/3"}).status, 0);
  setenv("SLURM_ARRAY_TASK_ID", "11", 1);
  setenv("SLURM_ARRAY_TASK_MIN", "10", 1);
  setenv("SLURM_ARRAY_TASK_COUNT", "3", 1);
  const Outcome second = call({"search", "--study", study});
  for (const char* variable : {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT"}) unsetenv(variable);
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_NE(second.err.find("part 1 of 3, as this is a task of a Slurm array"), std::string::npos) << second.err;
  const auto part = [&](int i) { return folder.file("s." + std::to_string(i) + "-of-3.db"); };
  const Outcome early = call({"merge", folder.file("merged.db"), part(0), part(1)});
  EXPECT_EQ(early.status, 1);
  EXPECT_NE(early.err.find("points are missing"), std::string::npos) << early.err;
  ASSERT_EQ(call({"search", "--study", study, "--shard", "2/3"}).status, 0);
  const Outcome merged = call({"merge", folder.file("merged.db"), part(0), part(1), part(2), "--json"});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(rowsOf(folder.file("merged.db")), rowsOf(folder.file("whole.db")));
  EXPECT_EQ(call({"merge", folder.file("merged.db"), folder.file("merged.db"), part(0)}).status, 0) << "a part that is the whole";
  const Outcome csv = call({"merge", folder.file("merged.db"), part(0), "--csv", part(0)});
  EXPECT_EQ(csv.status, 2);
  EXPECT_NE(csv.err.find("would overwrite"), std::string::npos) << csv.err;
  EXPECT_FALSE(rowsOf(part(0)).empty());
}

TEST(StudyCommand, NoticesThatWhatItNamesHasChanged) {
  const Folder folder;
  std::string cluster = contentOf(PW_SOURCE_DIR "/resources/clusters/h100-nvlink.json");
  static_cast<void>(folder.with("c.json", cluster));
  const std::string study =
      folder.with("s.json", R"({"version": 1, "model": ")" + sample("gpt_small") +
                                R"(", "cluster": "c.json", "ranks": 2, "microbatches": [4, 8], "recompute": ["none", "nothing"]})");
  const Outcome first = call({"search", "--study", study});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_NE(first.out.find("2 are impossible\n  2 × "), std::string::npos) << "says why: " << first.out;
  EXPECT_NE(first.out.find("nothing"), std::string::npos) << first.out;
  EXPECT_EQ(call({"search", "--study", study, "--csv", folder.file("s.db")}).status, 2) << "the CSV is the store";
  EXPECT_EQ(rowsOf(folder.file("s.db")).size(), 4U);
  ASSERT_EQ(call({"search", "--study", study}).status, 0);
  cluster.replace(cluster.find("\"launch_overhead_ns\": ") + 22, 1, "9");
  static_cast<void>(folder.with("c.json", cluster));
  const Outcome changed = call({"search", "--study", study});
  EXPECT_EQ(changed.status, 2);
  EXPECT_NE(changed.err.find("results of other contents of c.json"), std::string::npos) << changed.err;
}

TEST(StudyCommand, TakesLayerTables) {
  const Folder folder;
  static_cast<void>(folder.with("l.csv",
                                "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n"
                                "a,100,100,100,10,10,10\nb,200,200,200,10,10,10\nc,300,300,300,10,10,10\n"));
  const std::string study =
      folder.with("s.json", R"({"version": 1, "model": "l.csv", "ranks": [1, 2, 3], "microbatches": [1, 4], "schedule": "gpipe"})");
  const Outcome outcome = call({"search", "--study", study});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<StudyRow> rows = rowsOf(folder.file("s.db"));
  ASSERT_EQ(rows.size(), 6U);
  // One rank: all microbatches one after the other, 1,800 each. Ranks and then microbatches vary.
  EXPECT_EQ(rows[0].result.makespan, 1'800);
  EXPECT_EQ(rows[3].result.makespan, 4 * 1'800);
  // Two ranks, a and b against c: F 300 each, then B 600 each; 4 microbatches: (4 + 1) · (300 + 600).
  EXPECT_EQ(rows[4].result.makespan, 5 * 900);
}

TEST(RankOrderOption, IsRefusedWhereItIsNoOrder) {
  const Folder folder;
  const std::string cluster = folder.with("rack.json", contentOf(PW_SOURCE_DIR "/resources/examples/mixed_rack.json"));
  for (const char* order : {"0,1", "0,1,2,9", "0,1,2,2", "-1,0,1,2", "2147483647,0,1,2"}) {
    for (const char* command : {"plan", "search"}) {
      const Outcome outcome = call({command, sample("gpt_small"), "--ranks", "4", "--microbatches", "4", "--cluster", cluster,
                                    std::string("--rank-order=") + order});
      EXPECT_EQ(outcome.status, 2) << command << " " << order;
      EXPECT_NE(outcome.err.find("names each of the ranks 0 to 3 once"), std::string::npos) << outcome.err;
    }
  }
}

TEST(StudyCommand, RefusesWhatDoesNotGoWithIt) {
  const Folder folder;
  const std::string study =
      folder.with("s.json", R"({"version": 1, "model": ")" + sample("gpt_small") + R"(", "ranks": 2, "microbatches": 4})");
  const Outcome costs = call({"search", "--study", study});
  EXPECT_EQ(costs.status, 2);
  EXPECT_NE(costs.err.find("has no costs; give a cluster or profiles"), std::string::npos) << costs.err;
  const Outcome ranks = call({"search", "--study", study, "--ranks", "2"});
  EXPECT_EQ(ranks.status, 2);
  EXPECT_NE(ranks.err.find("--study"), std::string::npos) << ranks.err;
  EXPECT_NE(ranks.err.find("--ranks"), std::string::npos) << ranks.err;
  EXPECT_EQ(call({"search", sample("gpt_small"), "--ranks", "2", "--shard", "0/2"}).status, 2) << "of a study only";
  EXPECT_EQ(call({"search", "--study", study, "--memory-limit", "1GB"}).status, 2) << "it has its own";
  const Folder layers;
  static_cast<void>(
      layers.with("l.csv", "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\na,1,1,1,1,1,1\n"));
  const std::string one = layers.with("s.json", R"({"version": 1, "model": "l.csv", "ranks": 1, "microbatches": 1})");
  setenv("SLURM_ARRAY_TASK_ID", "0", 1);
  setenv("SLURM_ARRAY_TASK_COUNT", "1", 1);
  const Outcome task = call({"search", "--study", one});
  const Outcome chosen = call({"search", "--study", one, "--shard", "1/2"});
  for (const char* variable : {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"}) unsetenv(variable);
  EXPECT_EQ(task.status, 2);
  EXPECT_NE(task.err.find("has one task, number 0: give --shard"), std::string::npos) << task.err;
  EXPECT_EQ(chosen.status, 0) << "a part without a point is no failure: " << chosen.err;
  const Outcome none = call({"search", sample("gpt_small")});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("Search needs --ranks"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace pw::test
