#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/app/cli/call.h"

namespace pw::test {

using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

inline constexpr std::chrono::seconds kLong{90};  // for actions that take a second or two on an idle machine

/// Polls until `done` or the deadline; returns whether it was done.
inline bool eventually(const std::function<bool()>& done, std::chrono::milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  while (!done()) {
    if (Clock::now() > until) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

/// Whether a process runs (a zombie does not).
inline bool alive(pid_t pid) {
  const std::string stat = contentOf("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name = stat.rfind(") ");  // the name may contain anything
  return name != std::string::npos && stat[name + 2] != 'Z' && stat[name + 2] != 'X';
}

/// How a job is started.
struct JobOptions {
  std::map<std::string, std::string> environment;
  rlim_t addressSpace = RLIM_INFINITY;  ///< bytes, of each of its processes
  std::string program = PIPEWRIGHT;
};

/// A call of the program that a test may disturb, in its own process group. None of its processes outlives the object.
class Job {
 public:
  explicit Job(Words arguments, const JobOptions& options = {}) {
    arguments.insert(arguments.begin(), options.program);
    Words environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      if (!options.environment.contains(text.substr(0, text.find('=')))) environment.push_back(text);
    }
    for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
    const auto argv = pointersTo(arguments), envp = pointersTo(environment);
    const std::string out = folder_.with("out", ""), err = folder_.with("err", "");
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);  // a test under nohup ignores them
    const rlimit limit{options.addressSpace, options.addressSpace};
    if (options.addressSpace != RLIM_INFINITY) ::setrlimit(RLIMIT_AS, &limit);
    ::dup2(::open(out.c_str(), O_WRONLY | O_APPEND), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), O_WRONLY | O_APPEND), STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ~Job() {
    for (const auto& [rank, pid] : seen_) ::kill(pid, SIGKILL);
    if (ended_) return;
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string errSoFar() const { return contentOf(folder_.file("err")); }

  /// The outcome once it has ended; status 128 + n after signal n. Fails the test, with status −1, when it did not end in time.
  Outcome wait(std::chrono::milliseconds deadline = kLong) {
    int status = 0;
    ended_ = eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, deadline);
    Outcome outcome{!ended_             ? -1
                    : WIFEXITED(status) ? WEXITSTATUS(status)
                                        : 128 + WTERMSIG(status),
                    contentOf(folder_.file("out")), errSoFar()};
    EXPECT_TRUE(ended_) << "still running: " << outcome.err;
    return outcome;
  }

  /// Process ids of its ranks by rank, once there are `count`.
  std::map<int, pid_t> ranks(int count) {
    const auto all = [&] {
      std::istringstream children(contentOf("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children"));
      for (pid_t child = 0; children >> child;) {
        const std::string environment = '\0' + contentOf("/proc/" + std::to_string(child) + "/environ");
        const std::size_t at = environment.find(std::string("\0RANK=", 6));
        if (at != std::string::npos) seen_[std::atoi(environment.c_str() + at + 6)] = child;
      }
      return static_cast<int>(seen_.size()) == count;
    };
    EXPECT_TRUE(eventually(all, kLong)) << "ranks seen: " << seen_.size();
    return seen_;
  }

  /// Waits for the first step of a call with `--progress json`.
  void waitForTraining() {
    EXPECT_TRUE(eventually([&] { return errSoFar().find("\"done\":") != std::string::npos || !alive(pid_); }, kLong));
    EXPECT_TRUE(alive(pid_)) << errSoFar();
  }

  /// Whether none of the ranks seen runs any more, within `deadline`.
  [[nodiscard]] bool leavesNone(std::chrono::milliseconds deadline) const {
    return eventually([&] { return std::none_of(seen_.begin(), seen_.end(), [](const auto& rank) { return alive(rank.second); }); },
                      deadline);
  }

 private:
  static std::vector<char*> pointersTo(Words& words) {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  Folder folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::map<int, pid_t> seen_;
};

/// Runs the program to its end, within the long deadline.
inline Outcome finish(const Words& arguments, const JobOptions& options = {}) { return Job(arguments, options).wait(); }

/// What `run --json` printed; it must be one JSON document, with nothing but this note on stderr.
inline std::string outputOf(const std::string& plan, const Words& more, const std::string& note = {}) {
  Words words{"run", plan, "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = finish(words);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, note.empty() ? "" : "pipewright: " + note + "\n");
  return outcome.out;
}

/// Plans sample models with estimated costs, which takes milliseconds; the plan's path.
inline std::string planned(const Folder& folder, const Words& models, const Words& more) {
  Words words{"plan"};
  for (const std::string& model : models) words.push_back(sample(model));
  words.insert(words.end(), {"--cluster", "cpu-workstation", "--out", folder.file("plan.json")});
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = finish(words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return folder.file("plan.json");
}

/// stderr without lines of progress.
inline std::string complaintsOf(const Outcome& outcome) {
  std::istringstream lines(outcome.err);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("{\"task\"", 0) != 0) rest += line + '\n';
  }
  return rest;
}

/// One sentence on stderr (beside progress) that holds all `parts`, nothing on stdout, and this exit status.
inline void expectRefusal(const Outcome& outcome, int status, const Words& parts) {
  EXPECT_EQ(outcome.status, status);
  EXPECT_EQ(outcome.out, "");
  const std::string text = complaintsOf(outcome);
  EXPECT_EQ(text.rfind("pipewright: ", 0), 0U) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_TRUE(text.size() > 2 && text.substr(text.size() - 2) == ".\n") << text;
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  std::string words = text;  // without the random names of folders, which may hold such letters
  for (std::size_t at = 0; (at = words.find("pipewright-test-", at)) != std::string::npos;) words.erase(at, 22);
  for (const char* jargon : {".cpp", ".cc:", "[enforce", "0x", "Exception"}) EXPECT_EQ(words.find(jargon), std::string::npos) << text;
}

}  // namespace pw::test
