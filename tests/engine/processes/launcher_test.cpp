#include "engine/processes/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pw {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

/// Bounds every test's waits; far above what any needs.
constexpr auto kLong = 20s;

/// Starts one rank per verb of launcher_child.
LaunchResult launchVerbs(
    const std::vector<std::string>& verbs, std::chrono::milliseconds deadline = kLong,
    const std::function<void(JobRank, const std::string&)>& onLine = [](JobRank, const std::string&) {},
    std::chrono::milliseconds startUp = 0ms) {
  std::vector<std::string> argv{LAUNCHER_CHILD};
  argv.insert(argv.end(), verbs.begin(), verbs.end());
  return launch(static_cast<int>(verbs.size()), argv, 3, onLine, deadline, startUp);
}

/// Whether this process has no child, running or not reaped.
bool childless() { return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

/// A process that launches, so that the test can kill or interrupt it. It writes the ranks' lines to `lines` and exits with
/// 0 when all ended well, 42 when the result says interrupted, else 1.
struct Launcher {
  pid_t pid = -1;
  int lines = -1;

  explicit Launcher(const std::vector<std::string>& verbs) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);               // a group of its own, as a shell gives a job
      std::signal(SIGINT, SIG_DFL);  // a test under nohup ignores it
      const LaunchResult result = launchVerbs(verbs, kLong, [&](JobRank, const std::string& line) {
        const std::string text = line + '\n';
        [[maybe_unused]] const auto written = ::write(ends[1], text.data(), text.size());
      });
      ::_exit(result.interrupted ? 42 : result.ok ? 0 : 1);
    }
    ::close(ends[1]);
    lines = ends[0];
  }
  ~Launcher() { ::close(lines); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Waits until `count` ranks said their process ids.
  [[nodiscard]] std::vector<pid_t> waitForPids(std::size_t count) const {
    std::string text;
    while (static_cast<std::size_t>(std::ranges::count(text, '\n')) < count) {
      pollfd fd{lines, POLLIN, 0};
      char c = 0;
      if (::poll(&fd, 1, 20'000) != 1 || ::read(lines, &c, 1) != 1) throw std::runtime_error("the ranks did not start: " + text);
      text += c;
    }
    std::vector<pid_t> pids;
    for (std::size_t at = text.find("pid "); at != std::string::npos; at = text.find("pid ", at + 1)) {
      pids.push_back(std::stoi(text.substr(at + 4)));
    }
    return pids;
  }
};

/// Reaps a process within a deadline; its wait status, −1 when it had not ended by then.
int reap(pid_t pid, std::chrono::milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  int status = -1;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() > until) return -1;
    ::poll(nullptr, 0, 1);
  }
  return status;
}

/// Sets environment variables for one test.
class Environment {
 public:
  explicit Environment(std::map<std::string, std::string> variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

TEST(Launcher, AllRanksThatEndWellAreASuccess) {
  const LaunchResult result = launchVerbs({"exit", "exit", "exit"});
  EXPECT_TRUE(result.ok);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(result.failure, "");
  EXPECT_TRUE(childless());
}

TEST(Launcher, RanksFindTheirPlaceInTheEnvironment) {
  const Environment stale({{"RANK", "7"}, {"PIPEWRIGHT_LISTEN_FD", "99"}});  // of an outer launcher
  std::map<int, std::string> said;
  const LaunchResult result =
      launchVerbs({"environment", "environment"}, kLong, [&](JobRank rank, const std::string& line) { said[rank.value] += line; });
  EXPECT_TRUE(result.ok) << result.failure;
  EXPECT_EQ(said[0], "world 2 local 0 threads 3 address 127.0.0.1 listens 1 reports 1");
  EXPECT_EQ(said[1], "world 2 local 1 threads 3 address 127.0.0.1 listens 0 reports 1");
}

TEST(Launcher, LinesOfTheRanksArePassedOnWhole) {
  std::vector<std::string> said;
  EXPECT_TRUE(launchVerbs({"lines"}, kLong, [&](JobRank, const std::string& line) { said.push_back(line); }).ok);
  EXPECT_THAT(said, ElementsAre("one", "", "last without an end"));
}

TEST(Launcher, ALineWithoutEndComesInPiecesAndLosesNothing) {
  std::size_t bytes = 0;
  EXPECT_TRUE(launchVerbs({"flood"}, kLong, [&](JobRank, const std::string& line) { bytes += line.size(); }).ok);
  EXPECT_EQ(bytes, std::size_t{3} << 20);
}

TEST(Launcher, AReportedFailureIsTheCause) {
  const LaunchResult result = launchVerbs({"sleep", "fail=in 1F3: the device\nis lost"});
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.failedRank, JobRank(1));
  EXPECT_EQ(result.failure, "Rank 1: in 1F3: the device is lost");
  EXPECT_TRUE(childless());
}

TEST(Launcher, ARankThatNamesItselfIsNotNamedTwice) {
  EXPECT_EQ(launchVerbs({"fail=Rank 0 failed in step 3"}).failure, "Rank 0 failed in step 3");
  EXPECT_EQ(launchVerbs({"exit", "fail=Rank 10 was lost"}).failure, "Rank 1: Rank 10 was lost");
}

TEST(Launcher, UnusableInputIsToldFromAFailure) {
  EXPECT_TRUE(launchVerbs({"fail-unusable=no such file"}).unusable);
  EXPECT_EQ(launchVerbs({"fail-unusable=no such file"}).failure, "Rank 0: no such file");
  EXPECT_FALSE(launchVerbs({"fail=lost"}).unusable);
}

TEST(Launcher, ARankThatReportedButStaysIsEnded) {
  const LaunchResult result = launchVerbs({"fail-and-stay=stuck"});
  EXPECT_EQ(result.failure, "Rank 0: stuck");
  EXPECT_TRUE(childless());
}

TEST(Launcher, AnExitStatusWithoutReportIsNamed) {
  const LaunchResult result = launchVerbs({"exit", "exit=9"});
  EXPECT_EQ(result.failedRank, JobRank(1));
  EXPECT_THAT(result.failure, StartsWith("Rank 1 ended with exit status 9"));
}

TEST(Launcher, AKilledRankEndsAllLongBeforeTheTimeLimit) {
  const LaunchResult result = launchVerbs({"sleep", "kill=9", "stubborn"});
  EXPECT_EQ(result.failedRank, JobRank(1));
  EXPECT_THAT(result.failure, StartsWith("Rank 1 was ended by SIGKILL"));
  EXPECT_TRUE(childless());
}

TEST(Launcher, ACrashIsNamedByItsSignal) { EXPECT_EQ(launchVerbs({"kill=6"}).failure, "Rank 0 was ended by SIGABRT"); }

TEST(Launcher, AKilledRankIsTheCauseNotThePeerThatNoticed) {
  const LaunchResult result = launchVerbs({"report-lost-peer", "connect-and-kill=9"});
  EXPECT_EQ(result.failedRank, JobRank(1));
  EXPECT_THAT(result.failure, StartsWith("Rank 1 was ended by SIGKILL"));
}

TEST(Launcher, AProgramThatCannotBeExecutedIsNamed) {
  const LaunchResult result = launch(2, {"/no/such/pipewright"}, 1, {}, kLong);
  EXPECT_FALSE(result.ok);
  EXPECT_THAT(result.failure, AllOf(HasSubstr("Cannot start rank"), HasSubstr("/no/such/pipewright"), HasSubstr("No such file")));
  EXPECT_TRUE(childless());
}

TEST(Launcher, TheDeadlineEndsRanksThatIgnoreSigterm) {
  const auto start = Clock::now();
  const LaunchResult result = launchVerbs({"exit", "stubborn"}, 300ms);
  EXPECT_GE(Clock::now() - start, 300ms);
  EXPECT_FALSE(result.ok);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(result.failure, "Rank 1 was still running when the time limit of the job expired");
  EXPECT_TRUE(childless());
}

TEST(Launcher, AnExceptionOfTheLineFunctionLeavesNoChild) {
  EXPECT_THROW((void)launchVerbs({"sleep", "stubborn"}, kLong, [](JobRank, const std::string&) { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_TRUE(childless());
}

TEST(Launcher, CtrlCEndsTheJobAndIsReported) {
  const Launcher launcher({"sleep", "sleep"});
  (void)launcher.waitForPids(2);
  ::kill(-launcher.pid, SIGINT);  // the terminal's way: to the launcher and all ranks
  const int status = reap(launcher.pid, kLong);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST(Launcher, SigtermToTheLauncherAloneEndsEvenStubbornRanks) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // ranks left behind would become ours
  const Launcher launcher({"sleep", "stubborn"});
  (void)launcher.waitForPids(2);
  ::kill(launcher.pid, SIGTERM);
  const int status = reap(launcher.pid, kLong);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_TRUE(childless());
}

TEST(Launcher, ALauncherThatIsKilledTakesItsRanksWithIt) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const Launcher launcher({"sleep", "stubborn"});
  const std::vector<pid_t> ranks = launcher.waitForPids(2);
  ASSERT_EQ(ranks.size(), 2U);
  ::kill(launcher.pid, SIGKILL);
  EXPECT_NE(reap(launcher.pid, kLong), -1);
  for (const pid_t rank : ranks) {
    const int status = reap(rank, 2s);
    ASSERT_NE(status, -1) << "process " << rank << " still runs";
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
  EXPECT_TRUE(childless());
}

TEST(Launcher, SignalHandlersAreAsBeforeAfterwards) {
  struct sigaction before {
  }, after{};
  ::sigaction(SIGTERM, nullptr, &before);
  (void)launchVerbs({"exit"});
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(Launcher, NoDescriptorIsLeftOpen) {
  const int before = ::dup(0);
  ::close(before);
  (void)launchVerbs({"exit", "kill=9"});
  const int after = ::dup(0);
  ::close(after);
  EXPECT_EQ(before, after);
}

TEST(RankEnvironment, OfThisProcessIsRead) {
  EXPECT_FALSE(rankEnvironment().has_value());
  const Environment environment({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}});
  const auto read = rankEnvironment();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->rank, JobRank(1));
  EXPECT_EQ(read->worldSize, 4);
  reportFailure(*read, "nobody listens");  // and nothing happens
}

const auto kNoLine = [](JobRank, const std::string&) {};

TEST(Launcher, ARankThatIsStoppedOnItsWayToTheFirstStepIsNamedAndKilled) {
  for (const int victim : {0, 1}) {
    std::vector<std::string> verbs{"start-up=1", "start-up=1"};  // the other waits for it
    verbs[static_cast<std::size_t>(victim)] = "stop";
    const LaunchResult result = launchVerbs(verbs, kLong, kNoLine, 200ms);
    EXPECT_EQ(result.failedRank, JobRank(victim));
    EXPECT_THAT(result.failure, AllOf(StartsWith("Rank " + std::to_string(victim) + " is stopped"), HasSubstr("while loading the model"),
                                      HasSubstr("200 ms"), HasSubstr("--timeout")));
    EXPECT_TRUE(childless());
  }
}

TEST(Launcher, ARankThatGetsNoFurtherOnItsWayToTheFirstStepIsNamed) {
  const LaunchResult result = launchVerbs({"start-up=2", "start-up=1", "start-up=3"}, kLong, kNoLine, 1000ms);
  EXPECT_EQ(result.failedRank, JobRank(1));
  EXPECT_THAT(result.failure, StartsWith("Rank 1 got no further while meeting the other ranks, for more than 1 s"));
  EXPECT_TRUE(childless());
}

TEST(Launcher, ARankThatHasStartedMayTakeItsTime) {
  const LaunchResult result = launchVerbs({"start-up=3", "start-up=3"}, 2000ms, kNoLine, 300ms);
  EXPECT_THAT(result.failure, HasSubstr("the time limit of the job")) << "and not by its start-up";
}

TEST(Launcher, EachJobHasATokenThatNobodyCanGuess) {
  std::vector<std::string> tokens;
  for (int job = 0; job < 2; ++job) {
    EXPECT_TRUE(launchVerbs({"token", "token"}, kLong, [&](JobRank, const std::string& line) { tokens.push_back(line); }).ok);
  }
  ASSERT_EQ(tokens.size(), 4U);
  EXPECT_EQ(tokens[0].size(), 64U) << "256 bits";
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(tokens[2], tokens[3]);
  EXPECT_NE(tokens[0], tokens[2]);
}

}  // namespace
}  // namespace pw
