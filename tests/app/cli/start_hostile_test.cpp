// Start-up that is disturbed: ranks that are stopped or never come, strangers at the ranks' ports, links at the names of temporary files.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "tests/app/cli/job.h"
#include "tests/support/loopback.h"

namespace pw::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class StartUp : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] Words call(const Words& more) const {
    Words words{"run", plan_, "--backend", GetParam()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  Folder folder_;
  std::string plan_ = planned(folder_, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"});
};

TEST_P(StartUp, NamesARankThatIsStoppedMeanwhile) {
  for (const int victim : {0, 1}) {
    Job job(call({"--timeout", "2", "--steps", "1000000"}));
    const auto ranks = job.ranks(2);
    ::kill(ranks.at(victim), SIGSTOP);
    expectRefusal(job.wait(kLong), 1, {"ank " + std::to_string(victim), "2 s"});
    EXPECT_TRUE(job.leavesNone(std::chrono::milliseconds(0)));
  }
}

TEST_P(StartUp, NamesAllRanksWhereAllAreStopped) {
  Job job(call({"--timeout", "1", "--steps", "1000000"}));
  for (const auto& [rank, pid] : job.ranks(2)) ::kill(pid, SIGSTOP);
  expectRefusal(job.wait(kLong), 1, {"Rank 0 is stopped (as by SIGSTOP) while ", "for more than 1 s"});
}

TEST_P(StartUp, EndsWhereTheMasterNeverComes) {
  const std::string port = std::to_string(freePort());
  JobOptions options;
  options.environment = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
  Job job(call({"--timeout", "3"}), options);
  expectRefusal(job.wait(kLong), 1, {"Rank 1: rank 0 did not answer at 127.0.0.1:" + port + " within 3 s", "--timeout"});
}

TEST_P(StartUp, NamesTheRankThatNeverComes) {
  const std::string port = std::to_string(freePort());
  JobOptions options;
  options.environment = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
  Job job(call({"--timeout", "1"}), options);
  expectRefusal(job.wait(kLong), 1, {"Rank 0: rank 1 did not come to 127.0.0.1:" + port + " within 1 s"});
}

/// Ports of the loopback or any interface that these processes listen on.
std::set<int> portsOf(const std::map<int, pid_t>& ranks) {
  std::set<std::string> sockets;
  for (const auto& [rank, pid] : ranks) {
    std::error_code gone;
    for (fs::directory_iterator fd("/proc/" + std::to_string(pid) + "/fd", gone), end; !gone && fd != end; fd.increment(gone)) {
      const std::string target = fs::read_symlink(fd->path(), gone).string();
      if (target.rfind("socket:[", 0) == 0) sockets.insert(target.substr(8, target.size() - 9));
    }
  }
  std::set<int> ports;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {  // sl local remote state queues timer retransmits uid timeout inode
      std::istringstream fields(line);
      std::string number, local, remote, state, rest, inode;
      fields >> number >> local >> remote >> state >> rest >> rest >> rest >> rest >> rest >> inode;
      if (state == "0A" && sockets.contains(inode)) ports.insert(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

TEST_P(StartUp, IsNotDisturbedByStrangers) {
  Job job(call({"--steps", "3"}));
  const auto ranks = job.ranks(2);
  std::atomic<bool> done{false};
  std::atomic<int> visits{0};
  std::thread stranger([&] {
    const std::string forged = "S\x05" + std::string(3, '\0') + "\x04" + std::string(3, '\0') + "ucx/1evil";  // as a rank would set it
    const std::vector<std::string> garbage{
        "", "x", "PWMEET1\n" + std::string(64, '\0') + forged, forged, "GET / HTTP/1.1\r\n\r\n", std::string(4096, '\xff')};
    std::vector<Fd> open;
    constexpr int kMost = 300;  // garbage, not a flood
    while (!done && visits < kMost) {
      for (const int port : portsOf(ranks)) {
        Fd fd = connectTo(port);
        if (fd.get() < 0) continue;
        say(fd, garbage[static_cast<std::size_t>(visits++) % garbage.size()]);
        open.push_back(std::move(fd));
        if (open.size() > 64) open.erase(open.begin());
      }
      ::poll(nullptr, 0, 10);
    }
  });
  const Outcome outcome = job.wait();
  done = true;
  stranger.join();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_GT(visits, 10);
}

INSTANTIATE_TEST_SUITE_P(Over, StartUp, testing::Values("ucx", "gloo"), [](const auto& tested) { return std::string(tested.param); });

TEST(MeasuringPlan, FollowsNoLinkInTheTemporaryFolder) {
  const Folder folder;
  const std::string victim = folder.with("victim", "precious");
  // The shell's process id is the program's: exec keeps it.
  const std::string script = "ln -s '" + victim + "' \"$TMPDIR/pipewright-profile-$$.json\"; exec " PIPEWRIGHT " plan '" +
                             sample("gpt_small") + "' --ranks 2 --microbatches 2 --out '" + folder.file("plan.json") + "'";
  fs::create_directory(folder.file("tmp"));
  JobOptions options;
  options.environment = {{"TMPDIR", folder.file("tmp")}};
  options.program = "/bin/sh";
  const Outcome outcome = finish({"-c", script}, options);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(contentOf(victim), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("tmp")), fs::directory_iterator()), 1) << "the link alone";
}

}  // namespace
}  // namespace pw::test
