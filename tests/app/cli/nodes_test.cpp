// Several nodes, each with its own torchrun agent that starts the node's ranks: here two on one machine.

#include <filesystem>

#include <nlohmann/json.hpp>

#include "tests/app/cli/job.h"
#include "tests/support/loopback.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kTorchrun = PW_SOURCE_DIR "/.deps/venv/bin/torchrun";

class TwoNodes : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kTorchrun)) GTEST_SKIP() << "there is no torchrun: run ./dev setup";
    plan_ = planned(folder_, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"});
  }

  /// The call of one node's agent.
  [[nodiscard]] Words agent(int node, const Words& more) const {
    Words words{
        "--nnodes",         "2", "--node-rank", std::to_string(node), "--master-addr", "127.0.0.1", "--master-port", std::to_string(port_),
        "--nproc-per-node", "1", "--no-python", PIPEWRIGHT,           "run",           plan_,       "--backend",     GetParam()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  const JobOptions options_{{}, RLIM_INFINITY, kTorchrun};
  Folder folder_;
  std::string plan_;
  int port_ = freePort();
};

TEST_P(TwoNodes, TrainAsTheRanksWeStart) {
  const Words training{"--steps", "3", "--lr", "0.1", "--json"};
  Job first(agent(0, training), options_), second(agent(1, training), options_);
  const Outcome printed = first.wait(), silent = second.wait();
  ASSERT_EQ(printed.status, 0) << printed.err;
  EXPECT_EQ(silent.status, 0) << silent.err;
  EXPECT_EQ(silent.out, "");
  const Outcome ours = finish({"run", plan_, "--backend", GetParam(), "--steps", "3", "--lr", "0.1", "--json"});
  ASSERT_EQ(ours.status, 0) << ours.err;
  const Json theirs = Json::parse(printed.out);
  EXPECT_EQ(theirs["losses"], Json::parse(ours.out)["losses"]);
  EXPECT_EQ(theirs["losses"].size(), 3U);
}

TEST_P(TwoNodes, EndWhereARankOfOneIsKilled) {
  const int victim = GetParam() == std::string("ucx") ? 1 : 0;  // the agent of node 0 serves the store
  const std::string store = folder_.file("runs.db");
  const Words training{"--steps", "1000000", "--timeout", "10", "--progress", "json", "--store", store};
  Job first(agent(0, training), options_), second(agent(1, training), options_);
  const std::vector<Job*> jobs{&first, &second};
  first.ranks(1);
  second.ranks(1);
  second.waitForTraining();  // the rank of the last stage shows how far it is
  ::kill(jobs.at(victim)->ranks(1).at(victim), SIGKILL);
  const Outcome killed = jobs.at(victim)->wait(kLong), other = jobs.at(1 - victim)->wait(kLong);
  EXPECT_NE(killed.status, 0);
  EXPECT_NE(other.status, 0);
  EXPECT_NE(other.err.find("pipewright: Rank " + std::to_string(1 - victim) + " failed in step "), std::string::npos) << other.err;
  EXPECT_NE(other.err.find(" rank " + std::to_string(victim) + " "), std::string::npos) << other.err;
  for (const Job* job : jobs) EXPECT_TRUE(job->leavesNone(milliseconds(0)));
  if (victim == 0) return;  // rank 0 keeps the record
  const Json runs = Json::parse(finish({"runs", "--store", store, "--json"}).out).at("runs");
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].at("failure").get<std::string>().find("Rank 0 failed in step "), 0U) << runs[0];
}

INSTANTIATE_TEST_SUITE_P(Over, TwoNodes, testing::Values("ucx", "gloo"), [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace pw::test
