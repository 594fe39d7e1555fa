// Runs that fail: one sentence, the right exit status, and no process left.

#include <sched.h>
#include <sstream>

#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "backends/store/run_store.h"
#include "tests/app/cli/job.h"
#include "tests/support/whole_run.h"

namespace pw::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A plan for two ranks and a call that trains it until it is disturbed.
class EndlessRun : public testing::Test {
 protected:
  Words words(const Words& more = {}) {
    Words all{"run",   planned(folder_, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"}), "--steps", "1000000", "--progress", "json",
              "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// Until the store of the running job has so many steps.
  static void waitForSteps(const std::string& store, int steps) {
    const auto stored = [&] {
      const auto runs = std::filesystem::exists(store) ? RunStore(store, RunStore::Mode::ReadOnly).list() : std::vector<RunSummary>();
      return !runs.empty() && runs.back().steps >= steps;
    };
    EXPECT_TRUE(eventually(stored, kLong));
  }
  static nlohmann::json onlyRunOf(const std::string& store) {
    const auto runs = nlohmann::json::parse(finish({"runs", "--store", store, "--json"}).out)["runs"];
    EXPECT_EQ(runs.size(), 1U);
    return runs.at(0);
  }
  /// Whether the steps of the only run are 0, 1, 2, …, each measured.
  static void expectConsecutive(const std::string& store) {
    int next = 0;
    const RunRecord run = wholeRun(store);
    for (const StepRecord& step : run.steps) {
      EXPECT_EQ(step.step, next++);
      EXPECT_FALSE(step.measured.spans.empty());
    }
  }

  Folder folder_;
};

TEST_F(EndlessRun, NamesTheRankThatWasKilled) {
  for (const int victim : {0, 1}) {
    Job job(words());
    const auto ranks = job.ranks(2);
    job.waitForTraining();
    ::kill(ranks.at(victim), SIGKILL);
    expectRefusal(job.wait(), 1, {"Rank " + std::to_string(victim) + " was ended by SIGKILL"});
    EXPECT_TRUE(job.leavesNone(milliseconds(0)));
  }
}

TEST_F(EndlessRun, BindsEachRankToItsShareOfTheCores) {
  cpu_set_t ours, first, second, both;
  ASSERT_EQ(sched_getaffinity(0, sizeof(ours), &ours), 0);
  Job job(words());
  const auto ranks = job.ranks(2);
  job.waitForTraining();
  ASSERT_EQ(sched_getaffinity(ranks.at(0), sizeof(first), &first), 0);
  ASSERT_EQ(sched_getaffinity(ranks.at(1), sizeof(second), &second), 0);
  const int cores = CPU_COUNT(&ours);
  if (cores < 2) {  // fewer cores than ranks: none is bound
    EXPECT_TRUE(CPU_EQUAL(&first, &ours) && CPU_EQUAL(&second, &ours));
    return;
  }
  CPU_AND(&both, &first, &second);
  EXPECT_EQ(CPU_COUNT(&both), 0);
  EXPECT_EQ(CPU_COUNT(&first), cores / 2);
  EXPECT_EQ(CPU_COUNT(&second), cores - cores / 2);
}

TEST_F(EndlessRun, IsRecordedWithItsFailureAndTheStepsBefore) {
  const std::string store = folder_.file("runs.db");
  Job job(words({"--store", store, "--seed", "5"}));
  const auto ranks = job.ranks(2);
  waitForSteps(store, 3);
  ::kill(ranks.at(1), SIGKILL);
  expectRefusal(job.wait(), 1, {"Rank 1 was ended by SIGKILL"});
  const auto run = onlyRunOf(store);
  EXPECT_EQ(run["failure"].get<std::string>().find("Rank 1 was ended by SIGKILL"), 0U) << run["failure"];
  EXPECT_EQ(run["state"], "failed");
  EXPECT_GE(run["step_count"], 3);
  EXPECT_EQ(run["rank_count"], 2);
  EXPECT_GT(run["predicted_step_ns"], 0);
  EXPECT_GT(run["median_measured_step_ns"], 0);
  EXPECT_NE(finish({"runs", "--store", store}).out.find("failed: Rank 1 was ended by SIGKILL"), std::string::npos);
  const Outcome compared = finish({"compare", "--store", store});
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_NE(compared.out.find("run 1 failed after "), std::string::npos) << compared.out;
}

TEST_F(EndlessRun, KeepsItsStepsWhenRankZeroIsKilled) {
  const std::string store = folder_.file("runs.db");
  Job job(words({"--store", store}));
  const auto ranks = job.ranks(2);
  waitForSteps(store, 3);
  ::kill(ranks.at(0), SIGKILL);
  expectRefusal(job.wait(), 1, {"Rank 0 was ended by SIGKILL"});
  const auto run = onlyRunOf(store);
  EXPECT_EQ(run["state"], "failed");
  EXPECT_GE(run["step_count"], 3);
  expectConsecutive(store);
}

TEST_F(EndlessRun, LeavesAReadableStoreWhenAllOfItIsKilled) {
  const std::string store = folder_.file("runs.db");
  Job job(words({"--store", store}));
  static_cast<void>(job.ranks(2));
  waitForSteps(store, 3);
  ::kill(job.pid(), SIGKILL);  // its ranks die with it
  EXPECT_TRUE(job.leavesNone(seconds(10)));
  const auto run = onlyRunOf(store);
  EXPECT_EQ(run["state"], "unfinished");
  EXPECT_EQ(run["failure"].get<std::string>().find("Unfinished: "), 0U) << run["failure"];
  EXPECT_GE(run["step_count"], 3);
  expectConsecutive(store);
  EXPECT_NE(finish({"compare", "--store", store}).out.find("run 1 is unfinished after "), std::string::npos);
  EXPECT_EQ(finish({"run", planned(folder_, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"}), "--store", store, "--json"}).status,
            0);
  EXPECT_EQ(RunStore(store, RunStore::Mode::ReadOnly).list().size(), 2U) << "the next run is added";
}

TEST_F(EndlessRun, IsRecordedWhenItIsInterrupted) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string store = folder_.file("runs" + std::to_string(signal) + ".db");
    Job job(words({"--store", store}));
    static_cast<void>(job.ranks(2));
    waitForSteps(store, 3);
    ::kill(signal == SIGINT ? -job.pid() : job.pid(), signal);  // a terminal signals the whole group
    expectRefusal(job.wait(), 1, {"Interrupted"});
    const auto run = onlyRunOf(store);
    EXPECT_EQ(run["failure"], "Interrupted");
    EXPECT_GE(run["step_count"], 3);
    expectConsecutive(store);
  }
}

TEST_F(EndlessRun, NamesItsFirstCauseWhereItCannotBeRecorded) {
  const std::string store = folder_.file("runs.db");
  Job job(words({"--store", store}));
  const auto ranks = job.ranks(2);
  job.waitForTraining();
  // Nobody, not even root, opens a folder as a database. The run, which writes while it trains, may make the file anew in between.
  for (std::error_code busy; !std::filesystem::is_directory(store); std::filesystem::create_directory(store, busy)) {
    for (const char* end : {"", "-wal", "-shm", "-journal"}) std::filesystem::remove(store + end, busy);
  }
  ::kill(ranks.at(1), SIGKILL);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  std::vector<std::string> lines;
  std::istringstream text(outcome.err);
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("{")) lines.push_back(line);  // that is progress
  }
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back().find("pipewright: Rank 1 was ended by SIGKILL"), 0U) << outcome.err;
  lines.pop_back();  // before it only the warning of the rank that stores, if it came to try
  for (const std::string& line : lines) EXPECT_NE(line.find("are not stored"), std::string::npos) << line;
  EXPECT_LE(lines.size(), 1U);
}

TEST_F(EndlessRun, NamesTheSignalOfACrash) {
  Job job(words());
  const auto ranks = job.ranks(2);
  job.waitForTraining();
  ::kill(ranks.at(1), SIGSEGV);
  expectRefusal(job.wait(), 1, {"Rank 1 was ended by SIGSEGV"});
  EXPECT_TRUE(job.leavesNone(milliseconds(0)));
}

TEST_F(EndlessRun, EndsWithAllItsRanksOnSigterm) {
  Job job(words());
  static_cast<void>(job.ranks(2));
  job.waitForTraining();
  ::kill(job.pid(), SIGTERM);
  expectRefusal(job.wait(), 1, {"Interrupted"});
  EXPECT_TRUE(job.leavesNone(milliseconds(0)));
}

TEST_F(EndlessRun, EndsWithAllItsRanksOnCtrlC) {
  Job job(words());
  static_cast<void>(job.ranks(2));
  job.waitForTraining();
  ::kill(-job.pid(), SIGINT);  // a terminal signals the whole group
  expectRefusal(job.wait(), 1, {"Interrupted"});
  EXPECT_TRUE(job.leavesNone(milliseconds(0)));
}

TEST_F(EndlessRun, EndsWithAllItsRanksWhileTheyStart) {
  Job job(words());
  static_cast<void>(job.ranks(2));
  ::kill(job.pid(), SIGTERM);
  expectRefusal(job.wait(), 1, {"Interrupted"});
  EXPECT_TRUE(job.leavesNone(milliseconds(0)));
}

TEST_F(EndlessRun, LeavesNoRankWhenItIsKilled) {
  Job job(words());
  static_cast<void>(job.ranks(2));
  job.waitForTraining();
  ::kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.wait().status, 128 + SIGKILL);
  EXPECT_TRUE(job.leavesNone(kLong));
}

TEST_F(EndlessRun, DoesNotWaitForAHangingRankForEver) {
  for (const int victim : {0, 1}) {
    Job job(words({"--timeout", "2"}));
    const auto ranks = job.ranks(2);
    job.waitForTraining();
    ::kill(ranks.at(victim), SIGSTOP);
    const Outcome outcome = job.wait();
    expectRefusal(outcome, 1, {"Rank " + std::to_string(1 - victim) + " failed in step", "rank " + std::to_string(victim), "within 2 s"});
    EXPECT_TRUE(job.leavesNone(milliseconds(0)));
  }
}

/// The flight records in the folder of a plan's store, by rank.
std::map<int, nlohmann::json> flightRecords(const std::string& store, int ranks) {
  std::map<int, nlohmann::json> records;
  for (int r = 0; r < ranks; ++r) {
    const std::string file = store + ".flight-rank-" + std::to_string(r) + ".json";
    if (std::filesystem::exists(file)) records[r] = nlohmann::json::parse(contentOf(file));
  }
  return records;
}

TEST_F(EndlessRun, LeavesAFlightRecordOfTheRankThatWaitedForAHangingOne) {
  const std::string store = folder_.file("runs.db");
  Job job(words({"--timeout", "2", "--store", store}));
  const auto ranks = job.ranks(2);
  job.waitForTraining();
  EXPECT_TRUE(flightRecords(store, 2).empty()) << "nothing has failed";
  ::kill(ranks.at(1), SIGSTOP);
  expectRefusal(job.wait(), 1,
                {"Rank 0 failed in step", "see " + store + ".flight-rank-*.json for what each rank did last and waited for"});
  const auto records = flightRecords(store, 2);
  ASSERT_EQ(records.size(), 1U) << "the rank that was stopped cannot write";
  const nlohmann::json& record = records.at(0);
  EXPECT_EQ(record["rank"], 0);
  EXPECT_NE(record["awaited"], nullptr);
  EXPECT_GE(record["failed_ns"].get<std::int64_t>() - record["awaited"]["enqueued_ns"].get<std::int64_t>(), 2'000'000'000);
  EXPECT_FALSE(record["entries"].empty());
  const auto runs = nlohmann::json::parse(finish({"runs", "--store", store, "--json"}).out)["runs"];
  EXPECT_EQ(runs.at(0)["failure"].get<std::string>().find("flight-rank"), std::string::npos) << "the next failure may replace those files";
}

/// Through shared memory nobody notices that a peer is dead: the launcher says so.
TEST_F(EndlessRun, LeavesAFlightRecordOfTheRankThatWaitedForADeadOne) {
  const std::string store = folder_.file("runs.db");
  Job job(words({"--store", store}));
  const auto ranks = job.ranks(2);
  job.waitForTraining();
  ::kill(ranks.at(0), SIGKILL);
  expectRefusal(job.wait(), 1, {"Rank 0 was ended by SIGKILL", "see " + store + ".flight-rank-*.json"});
  EXPECT_TRUE(job.leavesNone(milliseconds(0)));
  const auto records = flightRecords(store, 2);
  ASSERT_EQ(records.size(), 1U);
  const nlohmann::json& record = records.at(1);
  EXPECT_NE(record["awaited"], nullptr) << "a message of the dead rank, or all ranks at a barrier";
  EXPECT_NE(record["failure"].get<std::string>().find("another rank has failed"), std::string::npos) << record["failure"];
}

TEST(FailedRun, NamesStepAndActionThatRanOutOfMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory exceeds any limit of addresses";
#endif
  // LibTorch itself maps less than 1 GiB; 20000 samples need 156 MiB for each small activation of 32 tokens by 64 numbers.
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2", "--microbatch", "20000"});
  JobOptions options;
  options.addressSpace = rlim_t{3} << 30;
  Job job({"run", plan}, options);
  const auto ranks = job.ranks(2);
  EXPECT_TRUE(eventually([&] { return !alive(ranks.at(0)) || !alive(ranks.at(1)); }, kLong));
  expectRefusal(job.wait(), 1, {"Rank 0 failed in step 0, action 0F0: out of memory in operator", "MiB more", "smaller microbatches"});
  EXPECT_TRUE(job.leavesNone(milliseconds(0)));
}

TEST(FailedRun, RefusesALossThatThereIsNot) {
  const Folder folder;
  const std::string model = std::string(PW_SOURCE_DIR) + "/resources/models/gpt_small.pt2";
  const std::vector<std::string> sizes{"--ranks", "2", "--microbatches", "2"};
  const std::string plan = planned(folder, {"gpt_small"}, sizes);
  expectRefusal(finish({"run", plan, "--loss", "nonsense"}), 2, {"Unknown loss nonsense", "cross_entropy, mse, sum or output:NAME"});
  expectRefusal(finish({"run", plan, "--loss", "output:nothing"}), 2, {"no output nothing", "linear_16"});
  expectRefusal(finish({"plan", model, "--cluster", "cpu-workstation", "--ranks", "2", "--loss", "output"}), 2, {"Unknown loss output"});
}

TEST(FailedRun, RefusesWhatOnlyARankCanSeeAsUnusable) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  expectRefusal(finish({"run", plan, "--data", folder.file("none.pt")}), 2, {"does not exist", "none.pt"});
  const std::string store = folder.file("runs.db");
  expectRefusal(finish({"run", plan, "--data", folder.file("none.pt"), "--store", store}), 2, {"none.pt"});
  EXPECT_NE(finish({"runs", "--store", store}).out.find("none.pt"), std::string::npos);
  expectRefusal(finish({"run", plan, "--data", folder.with("text", "no tensors")}), 2, {"text", "torch.save"});
}

TEST(FailedRun, RefusesAModelThatIsNotThePlans) {
  const Folder folder;
  std::filesystem::copy_file(sample("gpt_small"), folder.file("model.pt2"));
  ASSERT_EQ(finish({"plan", folder.file("model.pt2"), "--ranks", "2", "--microbatches", "2", "--cluster", "cpu-workstation", "--out",
                    folder.file("plan.json")})
                .status,
            0);
  std::filesystem::resize_file(folder.file("model.pt2"), std::filesystem::file_size(folder.file("model.pt2")) / 2);
  expectRefusal(finish({"run", folder.file("plan.json")}), 2, {"model.pt2", "truncated"});
  std::filesystem::remove(folder.file("model.pt2"));
  expectRefusal(finish({"run", folder.file("plan.json")}), 2, {"model.pt2"});
  std::filesystem::copy_file(sample("vit_small"), folder.file("model.pt2"));
  expectRefusal(finish({"run", folder.file("plan.json")}), 2, {"plan it again"});
}

TEST(FailedRun, RefusesWhatIsNoPlan) {
  const Folder folder;
  expectRefusal(finish({"run", folder.file("none.json")}), 2, {"none.json"});
  expectRefusal(finish({"run", folder.with("text", "no plan")}), 2, {"text"});
  expectRefusal(finish({"run", folder.with("other.json", "{\"format\": \"other\"}")}), 2, {"other.json"});
}

TEST(FailedPlan, NamesModulesNearASplitThatDoesNotExist) {
  const Outcome outcome = finish({"plan", sample("gpt_small"), "--microbatches", "2", "--split", "blocks.9"});
  expectRefusal(outcome, 2, {"blocks.9", "near names", "blocks.2"});
}

TEST(UnusableStore, IsRefusedBeforeTraining) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  const auto refusal = [&](const std::string& store) { return finish({"run", plan, "--store", store, "--progress", "json"}); };
  const auto expectEarly = [&](const Outcome& outcome, int status, const Words& parts) {
    expectRefusal(outcome, status, parts);
    EXPECT_EQ(outcome.err.find("\"done\":"), std::string::npos) << "no step before it";
  };
  expectEarly(refusal("/proc/runs.db"), 1, {"/proc/runs.db", "read-only"});  // even root may write no file there
  expectEarly(refusal(folder.file("none/runs.db")), 1, {"does not exist"});
  expectEarly(refusal(folder.with("text", "not a database")), 2, {"text", "not a Pipewright run store"});
  EXPECT_EQ(finish({"run", plan, "--store", folder.file("runs.db")}).status, 0);
  std::string newer = contentOf(folder.file("runs.db"));
  newer.at(63) = 99;  // last byte of user_version in an SQLite header (file format, section 1.3)
  expectEarly(refusal(folder.with("newer.db", newer)), 2, {"newer.db", "format 99"});
}

}  // namespace
}  // namespace pw::test
