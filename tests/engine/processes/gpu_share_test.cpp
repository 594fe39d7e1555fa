#include "engine/processes/gpu_share.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "schedules/error.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

RankEnvironment rankOf(int rank, int ranks, bool oneHost = true) {
  RankEnvironment environment;
  environment.rank = JobRank(rank);
  environment.worldSize = environment.localSize = ranks;
  environment.localRank = rank;
  environment.oneHost = oneHost;
  return environment;
}

TEST(GpuShare, GivesRanksOfAHostItsGpusInTurn) {
  std::map<int, int> ranksOn;
  for (int rank = 0; rank < 7; ++rank) ++ranksOn[gpuOf(rankOf(rank, 7), 3)];
  EXPECT_EQ(ranksOn, (std::map<int, int>{{0, 3}, {1, 2}, {2, 2}})) << "7 = 3 + 2 + 2";
}

/// Of ranks of one host with that many GPUs.
GpuShare shareOf(int rank, int ranks, int gpus) {
  std::vector<std::string> identities;
  for (int r = 0; r < ranks; ++r) identities.push_back("GPU " + std::to_string(gpuOf(rankOf(r, ranks), gpus)));
  return gpuShareOf(identities, JobRank(rank));
}

TEST(GpuShare, GivesEachRankOfAGpuAPartOfItsOwn) {
  for (const int gpus : {1, 2, 3, 5}) {
    for (int ranks = 1; ranks <= 12; ++ranks) {
      std::map<int, std::set<int>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        const GpuShare share = shareOf(rank, ranks, gpus);
        EXPECT_TRUE(parts[gpuOf(rankOf(rank, ranks), gpus)].insert(share.part.index).second)
            << "rank " << rank << " of " << ranks << " on " << gpus;
        EXPECT_GE(share.part.index, 0);
        EXPECT_LT(share.part.index, share.part.of);
        EXPECT_EQ(share.ranks, ranks);
        EXPECT_EQ(share.gpus, std::min(gpus, ranks));
      }
      for (const auto& [device, taken] : parts)
        EXPECT_EQ(static_cast<int>(taken.size()), shareOf(device, ranks, gpus).part.of) << "no part is left over";
    }
  }
}

/// As Slurm shows one GPU to each task (--gpus-per-task): all call it number 0.
TEST(GpuShare, GoesByWhichGpuItIsNotByItsNumber) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(gpuOf(rankOf(rank, 4), 1), 0);
    EXPECT_EQ(gpuShareOf({"a", "b", "c", "d"}, JobRank(rank)).part, GpuPart{});
  }
  const GpuShare share = gpuShareOf({"a", "b", "a", "b"}, JobRank(3));
  EXPECT_EQ(share.part, (GpuPart{1, 2}));
  EXPECT_EQ(rehearsalNote(share, {}).rfind("4 ranks share 2 GPUs and take turns on them", 0), 0U);
}

TEST(GpuShare, IsAloneWhereThereAreEnough) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(gpuOf(rankOf(rank, 4), 8), rank);
    const GpuShare share = shareOf(rank, 4, 8);
    EXPECT_EQ(share.part, GpuPart{});
    const std::vector<std::pair<std::string, std::string>> fewChannels{{"NCCL_MAX_P2P_NCHANNELS", "4"}};
    EXPECT_EQ(ncclVariables(rankOf(rank, 4), share), fewChannels) << "NCCL sees the machine as it is";
    EXPECT_EQ(rehearsalNote(share, {}), "");
  }
}

TEST(GpuShare, TellsNcclThatSharingIsMeant) {
  const auto of = [](int rank, bool oneHost) {
    const auto list = ncclVariables(rankOf(rank, 2, oneHost), shareOf(rank, 2, 1));
    return std::map<std::string, std::string>(list.begin(), list.end());
  };
  EXPECT_NE(of(0, true).at("NCCL_HOSTID"), of(1, true).at("NCCL_HOSTID")) << "NCCL 2.28 refuses two ranks of a host on one GPU";
  EXPECT_EQ(of(0, true).at("NCCL_MULTI_RANK_GPU_ENABLE"), "1");
  EXPECT_EQ(of(0, true).at("NCCL_NET"), "Socket") << "a network adapter may not reach its own host";
  EXPECT_EQ(of(0, true).at("NCCL_SOCKET_IFNAME"), "lo");
  EXPECT_EQ(of(0, false).count("NCCL_SOCKET_IFNAME"), 0U) << "ranks of other hosts are not behind the loopback device";
}

TEST(GpuShare, SaysHowRanksShare) {
  EXPECT_EQ(rehearsalNote(shareOf(0, 4, 1), {}),
            "4 ranks share 1 GPU and take turns on it: results are right, times are not those of 4 GPUs; nvidia-cuda-mps-control -d lets "
            "them run at the same "
            "time");
  EXPECT_EQ(
      rehearsalNote(shareOf(0, 4, 1), {.atOnce = true, .multiprocessors = 32, .whyWhole = ""}),
      "4 ranks share 1 GPU at the same time, each on 32 multiprocessors of its own: results are right, times are not those of 4 GPUs");
  EXPECT_EQ(rehearsalNote(shareOf(0, 4, 2), {.atOnce = true, .multiprocessors = 132, .whyWhole = "The driver is old."}),
            "4 ranks share 2 GPUs at the same time, each on all of them: results are right, times are not those of 4 GPUs. No parts: The "
            "driver is old.");
}

/// A daemon's socket in a folder.
class Listener {
 public:
  Listener(const std::string& path, int kind) : descriptor_(::socket(AF_UNIX, kind, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(descriptor_, 1), 0);
  }
  ~Listener() { ::close(descriptor_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  int descriptor_;
};

TEST(Mps, ServesWhereItsDaemonListens) {
  for (const int kind : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const test::Folder folder;
    EXPECT_FALSE(mpsServes(folder.file(""))) << "no socket";
    {
      const Listener daemon(folder.file("control"), kind);
      for (int i = 0; i < 5; ++i) EXPECT_TRUE(mpsServes(folder.file(""))) << "also when its queue is full";
    }
    EXPECT_FALSE(mpsServes(folder.file(""))) << "it ended and left its socket behind";
  }
  const test::Folder folder;
  static_cast<void>(folder.with("control", "a file"));
  EXPECT_FALSE(mpsServes(folder.file("")));
  EXPECT_FALSE(mpsServes(folder.file(std::string(200, 'x')))) << "longer than a socket's address";
}

TEST(Mps, IsLookedForWhereCudaLooks) {
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_EQ(mpsFolder(), "/tmp/nvidia-mps");
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", "/run/mps", 1);
  EXPECT_EQ(mpsFolder(), "/run/mps");
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

TEST(GpuShare, SaysWhatIsMissing) {
  EXPECT_THROW(static_cast<void>(gpuOf(rankOf(0, 2), 0)), UsageError);
  RankEnvironment unknown = rankOf(1, 2, false);
  unknown.localSize = 0;
  try {
    static_cast<void>(gpuOf(unknown, 2));
    FAIL() << "a rank of unknown place took a GPU";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("LOCAL_WORLD_SIZE"), std::string::npos) << e.what();
  }
  EXPECT_EQ(gpuOf(unknown, 1), 0) << "there is nothing to choose";
}

}  // namespace
}  // namespace pw
