#include "engine/processes/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// `base` with some variables set, or removed where the value is "-".
Variables with(Variables base, const Variables& changed) {
  for (const auto& [name, value] : changed) value == "-" ? static_cast<void>(base.erase(name)) : static_cast<void>(base[name] = value);
  return base;
}

template <class Work>
std::string refusal(const Work& work) {
  try {
    static_cast<void>(work());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

std::string refusalOf(const Variables& variables) {
  return refusal([&] { return rankEnvironment(variables); });
}

/// Rank 3 of two hosts with two ranks each, as torchrun sets it.
const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.7"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

/// Task 2 of `srun -N 2 --ntasks 3`, two tasks on the first host.
const Variables kSlurm{{"SLURM_JOB_ID", "123456"},
                       {"SLURM_STEP_ID", "1"},
                       {"SLURM_PROCID", "2"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_NTASKS", "8"},
                       {"SLURM_STEP_NUM_TASKS", "3"},
                       {"SLURM_STEP_NODELIST", "node[007-008]"},
                       {"SLURM_NODELIST", "node[001-008]"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                       {"SLURM_TASKS_PER_NODE", "1(x8)"}};

TEST(RankEnvironment, IsNoneWithoutALauncher) { EXPECT_FALSE(rankEnvironment(Variables{{"PATH", "/bin"}}).has_value()); }

TEST(RankEnvironment, ReadsWhatTorchrunSets) {
  const auto read = rankEnvironment(kTorchrun);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->rank, JobRank(3));
  EXPECT_EQ(read->worldSize, 4);
  EXPECT_EQ(read->masterAddress, "10.0.0.7");
  EXPECT_EQ(read->masterPort, 29500);
  EXPECT_EQ(read->localRank, 1);
  EXPECT_EQ(read->localSize, 2);
  EXPECT_FALSE(read->oneHost);
  EXPECT_TRUE(read->storeIsElsewhere);
  EXPECT_EQ(read->startedBy, StartedBy::Torchrun);
  EXPECT_EQ(read->listenFd, -1);
  EXPECT_EQ(read->statusFd, -1);
}

TEST(RankEnvironment, KnowsRanksOfOneHostByTheirNumberOrTheMastersAddress) {
  EXPECT_TRUE(rankEnvironment(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "4"}}))->oneHost);
  EXPECT_TRUE(rankEnvironment(with(kTorchrun, {{"MASTER_ADDR", "127.0.0.1"}}))->oneHost) << "two agents of one host";
  const Variables byHand = with(kTorchrun, {{"LOCAL_WORLD_SIZE", "-"}, {"LOCAL_RANK", "-"}});
  EXPECT_FALSE(rankEnvironment(byHand)->oneHost);
  EXPECT_EQ(rankEnvironment(byHand)->localSize, 0);
  const auto here = rankEnvironment(with(byHand, {{"MASTER_ADDR", "localhost"}}));
  EXPECT_TRUE(here->oneHost);
  EXPECT_EQ(here->localSize, 4);
  EXPECT_EQ(here->localRank, 3);
}

TEST(RankEnvironment, KnowsOurOwnLauncherByItsPipe) {
  const auto read = rankEnvironment(
      with(kTorchrun, {{"PIPEWRIGHT_STATUS_FD", "7"}, {"PIPEWRIGHT_LISTEN_FD", "8"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}}));
  EXPECT_EQ(read->startedBy, StartedBy::Us);
  EXPECT_EQ(read->statusFd, 7);
  EXPECT_EQ(read->listenFd, 8);
  EXPECT_FALSE(read->storeIsElsewhere);
}

TEST(RankEnvironment, RefusesHalfAnEnvironmentByName) {
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(refusalOf(with(kTorchrun, {{name, "-"}})), AllOf(HasSubstr("RANK is set but"), HasSubstr(name), HasSubstr("torchrun")));
  }
}

TEST(RankEnvironment, RefusesWhatIsNoNumberOrOutOfRange) {
  EXPECT_THAT(refusalOf(with(kTorchrun, {{"RANK", "x"}})), HasSubstr("RANK in the environment is 'x'"));
  EXPECT_THAT(refusalOf(with(kTorchrun, {{"RANK", ""}})), HasSubstr("RANK in the environment is ''"));
  EXPECT_THAT(refusalOf(with(kTorchrun, {{"RANK", "4"}})), HasSubstr("from 0 to 3"));
  EXPECT_THAT(refusalOf(with(kTorchrun, {{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(refusalOf(with(kTorchrun, {{"MASTER_PORT", "70000"}})), HasSubstr("70000"));
  EXPECT_THAT(refusalOf(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}})), HasSubstr("LOCAL_WORLD_SIZE"));
}

TEST(RankEnvironment, ReadsATaskOfSrun) {
  const auto read = rankEnvironment(kSlurm);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->startedBy, StartedBy::Slurm);
  EXPECT_EQ(read->rank, JobRank(2));
  EXPECT_EQ(read->worldSize, 3) << "the step's tasks, not the job's";
  EXPECT_EQ(read->localRank, 0);
  EXPECT_EQ(read->localSize, 1);
  EXPECT_EQ(rankEnvironment(with(kSlurm, {{"SLURM_NODEID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "1"}}))->localSize, 2);
  EXPECT_EQ(read->masterAddress, "node007") << "the step's first host, not the job's";
  EXPECT_EQ(read->masterPort, 20000 + (123456 + 7919) % 10000);
  EXPECT_FALSE(read->oneHost);
  EXPECT_FALSE(read->storeIsElsewhere);
}

TEST(RankEnvironment, TakesWhatIsSetForTheMeetingPlaceOfATask) {
  const auto read = rankEnvironment(
      with(kSlurm, {{"MASTER_ADDR", "login"}, {"MASTER_PORT", "12345"}, {"SLURM_STEP_NODELIST", "-"}, {"SLURM_JOB_ID", "-"}}));
  EXPECT_EQ(read->masterAddress, "login");
  EXPECT_EQ(read->masterPort, 12345);
}

TEST(RankEnvironment, TasksOfOneHostMeetOnItsLoopback) {
  const auto read = rankEnvironment(with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu1"}, {"SLURM_STEP_TASKS_PER_NODE", "-"}}));
  EXPECT_TRUE(read->oneHost);
  EXPECT_EQ(read->masterAddress, "127.0.0.1");
  EXPECT_EQ(read->localSize, 3);
}

TEST(RankEnvironment, FallsBackToTheJobsVariables) {
  const auto read = rankEnvironment(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "-"},
                                                  {"SLURM_STEP_NODELIST", "-"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "-"},
                                                  {"SLURM_TASKS_PER_NODE", "-"},
                                                  {"SLURM_NTASKS_PER_NODE", "4"}}));
  EXPECT_EQ(read->worldSize, 8);
  EXPECT_EQ(read->masterAddress, "node001");
  EXPECT_EQ(read->localSize, 4);
}

TEST(RankEnvironment, IsNoneInABatchScriptOrAShellOfSalloc) {
  EXPECT_FALSE(rankEnvironment(with(kSlurm, {{"SLURM_PROCID", "-"}, {"SLURM_STEP_ID", "-"}})).has_value()) << "salloc's shell";
  EXPECT_FALSE(rankEnvironment(with(kSlurm, {{"SLURM_STEP_ID", "-"}, {"SLURM_PROCID", "0"}})).has_value()) << "a batch script";
  EXPECT_FALSE(rankEnvironment(with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "-"}})).has_value())
      << "an interactive step";
  EXPECT_FALSE(rankEnvironment(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})).has_value()) << "srun --ntasks 1";
}

TEST(RankEnvironment, TorchrunInATaskOfSrunDecides) {
  Variables both = kSlurm;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(rankEnvironment(both)->rank, JobRank(3));
  EXPECT_EQ(rankEnvironment(both)->startedBy, StartedBy::Torchrun);
}

TEST(RankEnvironment, RefusesATaskWithoutItsPlaceByName) {
  EXPECT_THAT(refusalOf(with(kSlurm, {{"SLURM_PROCID", "3"}})),
              HasSubstr("SLURM_PROCID in the environment is '3'; it must be a number from 0 to 2"));
  EXPECT_THAT(refusalOf(with(kSlurm, {{"SLURM_STEP_NODELIST", "-"}, {"SLURM_NODELIST", "-"}})), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(refusalOf(with(kSlurm, {{"SLURM_JOB_ID", "-"}})), HasSubstr("SLURM_JOB_ID"));
  EXPECT_THAT(refusalOf(with(kSlurm, {{"SLURM_STEP_NODELIST", "node[1-"}})), HasSubstr("node[1-"));
}

TEST(HostList, IsExpandedInItsOrder) {
  EXPECT_THAT(hostsOf("gpu1"), ElementsAre("gpu1"));
  EXPECT_THAT(hostsOf("node[003-005,9],gpu1"), ElementsAre("node003", "node004", "node005", "node9", "gpu1"));
  EXPECT_THAT(hostsOf("b,a"), ElementsAre("b", "a"));
  EXPECT_THAT(hostsOf("n[08-10].lan"), ElementsAre("n08.lan", "n09.lan", "n10.lan"));
  EXPECT_THAT(hostsOf("r[1-2]n[0-1]"), ElementsAre("r1n0", "r1n1", "r2n0", "r2n1"));
  EXPECT_EQ(hostsOf("n[0-9999]").size(), 10000U);
}

TEST(HostList, IsRefusedWhereItIsNone) {
  for (const char* list : {"", ",", "a,", "n[", "n[]", "n[1", "n[1-]", "n[-1]", "n[2-1]", "n[x]", "n[1,]", "n[0-99999999999]",
                           "n[0-1048575]m[0-1048575]", "n[18446744073709551615-18446744073709551616]"}) {
    EXPECT_THAT(refusal([&] { return hostsOf(list); }), HasSubstr("not a list of hosts")) << list;
  }
}

TEST(TasksPerHost, AreExpanded) {
  EXPECT_THAT(tasksPerHost("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(tasksPerHost("4"), ElementsAre(4));
  for (const char* list : {"", "2(x", "2(x)", "(x2)", "2(x3", "a", "1,", "1(x99999999)"}) {
    EXPECT_THAT(refusal([&] { return tasksPerHost(list); }), HasSubstr("not a list of tasks per host")) << list;
  }
}

TEST(WorldSize, ThatIsNotThePlansIsRefusedWithTheCure) {
  const auto torchrun = *rankEnvironment(kTorchrun), slurm = *rankEnvironment(kSlurm);
  EXPECT_EQ(refusal([&] { return requireWorldSize(torchrun, 4, "plan.json"), 0; }), "no error");
  EXPECT_EQ(refusal([&] { return requireWorldSize(torchrun, 2, "plan.json"), 0; }),
            "plan.json is for 2 ranks and WORLD_SIZE is 4; start as many processes as the plan has ranks.");
  EXPECT_EQ(refusal([&] { return requireWorldSize(slurm, 2, "plan.json"), 0; }),
            "plan.json is for 2 ranks and the number of srun's tasks is 3; start it with srun --ntasks 2.");
}

TEST(JobToken, IsTheOneThatIsSet) { EXPECT_EQ(rankEnvironment(with(kTorchrun, {{"PIPEWRIGHT_JOB_TOKEN", "secret"}}))->token, "secret"); }

TEST(JobToken, IsThatOfTheJobWhereNoneIsSet) {
  const auto token = [](const Variables& variables) { return rankEnvironment(variables)->token; };
  const Variables run = with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "a"}, {"TORCHELASTIC_RESTART_COUNT", "0"}});
  EXPECT_EQ(token(run), token(with(run, {{"RANK", "0"}, {"LOCAL_RANK", "0"}}))) << "the same on all ranks";
  EXPECT_NE(token(run), token(with(run, {{"TORCHELASTIC_RUN_ID", "b"}})));
  EXPECT_NE(token(run), token(with(run, {{"TORCHELASTIC_RESTART_COUNT", "1"}}))) << "ranks of the last attempt may still run";
  EXPECT_EQ(token(kSlurm), token(with(kSlurm, {{"SLURM_PROCID", "0"}})));
  EXPECT_NE(token(kSlurm), token(with(kSlurm, {{"SLURM_STEP_ID", "2"}})));
}

}  // namespace
}  // namespace pw
