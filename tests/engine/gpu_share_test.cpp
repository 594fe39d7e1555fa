#include "engine/gpu_share.h"

#include <gtest/gtest.h>

#include <map>

#include "schedules/error.h"

namespace pw {
namespace {

RankEnvironment rankOf(int rank, int ranks, bool oneHost = true) {
  RankEnvironment environment;
  environment.rank = Rank(rank);
  environment.worldSize = environment.localSize = ranks;
  environment.localRank = rank;
  environment.oneHost = oneHost;
  return environment;
}

TEST(GpuShare, GivesRanksOfAHostItsGpusInTurn) {
  std::map<int, int> ranksOn;
  for (int rank = 0; rank < 7; ++rank) ++ranksOn[gpuShareOf(rankOf(rank, 7), 3).device];
  EXPECT_EQ(ranksOn, (std::map<int, int>{{0, 3}, {1, 2}, {2, 2}})) << "7 = 3 + 2 + 2";
  for (int rank = 0; rank < 7; ++rank) {
    const GpuShare share = gpuShareOf(rankOf(rank, 7), 3);
    EXPECT_EQ(share.device, rank % 3);
    EXPECT_EQ(share.ranks, ranksOn[share.device]) << "as many as were counted";
  }
}

TEST(GpuShare, IsAloneWhereThereAreEnough) {
  for (int rank = 0; rank < 4; ++rank) {
    const GpuShare share = gpuShareOf(rankOf(rank, 4), 8);
    EXPECT_EQ(share.device, rank);
    EXPECT_EQ(share.ranks, 1);
    EXPECT_TRUE(ncclVariables(rankOf(rank, 4), share).empty()) << "NCCL sees the machine as it is";
  }
  EXPECT_EQ(rehearsalNote(4, 4), "");
}

TEST(GpuShare, TellsNcclThatSharingIsMeant) {
  const auto of = [](int rank, bool oneHost) {
    const auto list = ncclVariables(rankOf(rank, 2, oneHost), gpuShareOf(rankOf(rank, 2, oneHost), 1));
    return std::map<std::string, std::string>(list.begin(), list.end());
  };
  EXPECT_NE(of(0, true).at("NCCL_HOSTID"), of(1, true).at("NCCL_HOSTID")) << "NCCL 2.28 refuses two ranks of a host on one GPU";
  EXPECT_EQ(of(0, true).at("NCCL_MULTI_RANK_GPU_ENABLE"), "1");
  EXPECT_EQ(of(0, true).at("NCCL_SOCKET_IFNAME"), "lo");
  EXPECT_EQ(of(0, false).count("NCCL_SOCKET_IFNAME"), 0U) << "ranks of other hosts are not behind the loopback device";
  EXPECT_EQ(rehearsalNote(4, 1), "4 ranks share 1 GPU and take turns on it: results are right, times are not those of 4 GPUs");
}

TEST(GpuShare, SaysWhatIsMissing) {
  EXPECT_THROW(static_cast<void>(gpuShareOf(rankOf(0, 2), 0)), UsageError);
  RankEnvironment unknown = rankOf(1, 2, false);
  unknown.localSize = 0;
  try {
    static_cast<void>(gpuShareOf(unknown, 2));
    FAIL() << "a rank of unknown place took a GPU";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("LOCAL_WORLD_SIZE"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace pw
