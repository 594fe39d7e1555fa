#include "tests/engine/workers/loss_trials.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include "engine/autograd/pass_message.h"
#include "engine/workers/remote_worker.h"
#include "tests/engine/autograd/programs.h"
#include "tests/support/loopback.h"

namespace pw::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// As the head of a message says after token and number: kind, and for calls a number of 8 bytes before their type.
ProtocolStep stepOf(const ChannelMessage& message) {
  constexpr std::size_t kKind = 16, kFirst = 17, kCallType = 25;
  const auto kind = static_cast<MessageKind>(message.head.at(kKind));
  const bool isCall = kind == MessageKind::Call;
  const bool hasDetail = isCall || kind == MessageKind::Shutdown || kind == MessageKind::Autograd;
  return {kind, hasDetail ? message.head.at(isCall ? kCallType : kFirst) : -1};
}

/// One worker's process: everything that it says goes through the pipe.
class TrialWorker {
 public:
  TrialWorker(const Trial& trial, int pipe) : trial_(trial), pipe_(pipe) {}

  void run(const RankEnvironment& environment) {
    try {
      work(environment);
      say("well");
    } catch (const std::exception& problem) {
      say(std::string("problem ") + problem.what());
    }
  }

 private:
  void say(std::string line) const {
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += '\n';
    [[maybe_unused]] const auto written = ::write(pipe_, line.data(), line.size());
  }

  /// A worker that is stopped or killed is found by its silence. Where a message is dropped nobody is lost, and the deadline ends the wait.
  [[nodiscard]] RemoteWorkerSettings settings(bool isVictim) {
    RemoteWorkerSettings settings{.transport = trial_.transport, .startDeadline = 30s};
    settings.deadline = trial_.harm == Harm::Drop ? 2s : 30s;
    settings.lostAfter = trial_.harm == Harm::Drop ? 20s : 2s;
    settings.mostThreads = 32;
    if (isVictim || trial_.harm == Harm::None)
      settings.sends = [this](JobRank to, const ChannelMessage& message) { return sends(to, stepOf(message)); };
    return settings;
  }

  bool sends(JobRank to, const ProtocolStep& step) {
    if (trial_.harm == Harm::None) say(fmt::format("sent {} {}", static_cast<int>(step.kind), step.detail));
    if (trial_.harm == Harm::None || step != trial_.step || ++seen_ != trial_.nth) return true;
    say(fmt::format("harmed {}", to.value));
    if (trial_.harm == Harm::Kill) ::raise(SIGKILL);
    if (trial_.harm == Harm::Stop) ::raise(SIGSTOP);
    return trial_.harm != Harm::Drop;
  }

  void work(const RankEnvironment& environment) {
    const Program any = programs().begin()->second;
    Parameters parameters;
    RemoteWorker worker(environment, settings(environment.rank.value == trial_.worker),
                        [&](Remote& remote, DistributedAutograd&) { define(remote, any, parameters); });
    if (environment.rank == JobRank(0)) {
      round(worker, parameters, BackwardMode::Smart);
      round(worker, parameters, BackwardMode::Auto);
      return worker.shutdown();
    }
    worker.shutdown(30s);  // worker 0 has time to name who did not answer
  }

  /// Worker 1 also makes a value for nothing, whose own sender waits: in AUTO mode the pass has to find that out and resume.
  static void round(RemoteWorker& worker, Parameters& parameters, BackwardMode mode) {
    Here here = hereOn(worker.remote(), parameters);
    const OpenContext context(worker.autograd());
    const RemoteValue kept = here.keep(1, "layer", {valueOf(here.parameter(10))});
    const RemoteValue result = here.call(1, "route", {here.fetch(kept), RemoteValue::List{2, 0}});
    const Tensor loss = sum(tensorOf(here.call(1, "wasteful", {result})));
    worker.autograd().backward(context.id(), {loss.handle}, {.mode = mode, .keepGraph = false, .deadline = {}});
  }

  const Trial trial_;
  const int pipe_;
  std::atomic<int> seen_ = 0;
};

/// The processes of one trial.
class TrialJob {
 public:
  TrialJob(const Trial& trial, std::chrono::milliseconds longest) : trial_(trial), until_(Clock::now() + longest) {
    const Listener listener;
    for (int rank = 0; rank < kTrialWorkers; ++rank) start(rank, listener);
  }
  ~TrialJob() {
    for (Process& process : processes_) {
      if (process.pid > 0 && !process.ended) ::kill(process.pid, SIGKILL);
      if (process.pid > 0 && !process.ended) ::waitpid(process.pid, nullptr, 0);
      ::close(process.pipe);
    }
  }
  TrialJob(const TrialJob&) = delete;
  TrialJob& operator=(const TrialJob&) = delete;

  void addTo(std::vector<pollfd>& fds) const {
    for (const Process& process : processes_) {
      if (!process.ended) fds.push_back({process.pipe, POLLIN, 0});
    }
  }
  /// Reads what was said; whether all have ended but the one that was harmed, or the time is over.
  bool service() {
    for (Process& process : processes_) read(process);
    const bool allEnded = std::all_of(processes_.begin(), processes_.end(), [&](const Process& process) {
      const bool isVictim = &process == &processes_[static_cast<std::size_t>(trial_.worker)];
      return process.ended || (isVictim && harmed_ >= 0 && trial_.harm == Harm::Stop);
    });
    return allEnded || Clock::now() >= until_;
  }
  [[nodiscard]] TrialResult result() const {
    TrialResult result{harmed_, {}};
    for (const Process& process : processes_) {
      WorkerEnd& end = result.ends.emplace_back();
      end.inTime = process.ended;
      end.signal = process.signal;
      std::istringstream lines(process.said);
      for (std::string line; std::getline(lines, line);) {
        if (line == "well") end.well = true;
        if (line.starts_with("problem ")) end.problem = line.substr(8);
        int kind = 0, detail = 0;
        if (line.starts_with("sent ") && std::istringstream(line.substr(5)) >> kind >> detail)
          end.sent.push_back({static_cast<MessageKind>(kind), detail});
      }
    }
    return result;
  }

 private:
  struct Process {
    pid_t pid = -1;
    int pipe = -1;
    bool ended = false;
    std::string said;
    int signal = 0;
  };

  void start(int rank, const Listener& listener) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      RankEnvironment environment;
      environment.rank = JobRank(rank);
      environment.worldSize = kTrialWorkers;
      environment.masterAddress = "127.0.0.1";
      environment.masterPort = listener.port;
      environment.oneHost = true;
      environment.token = "trial";
      if (rank == 0) environment.listenFd = ::dup(listener.fd.get());
      TrialWorker(trial_, ends[1]).run(environment);
      ::_exit(0);
    }
    ::close(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    processes_.push_back({pid, ends[0], pid < 0, {}, 0});
  }

  void read(Process& process) {
    if (process.ended) return;
    std::array<char, 4096> buffer{};
    ssize_t count = 0;
    while ((count = ::read(process.pipe, buffer.data(), buffer.size())) > 0)
      process.said.append(buffer.data(), static_cast<std::size_t>(count));
    if (const auto at = process.said.find("harmed "); at != std::string::npos) harmed_ = process.said.at(at + 7) - '0';
    if (count == 0) {  // all that it had is closed
      int status = 0;
      ::waitpid(process.pid, &status, 0);
      process.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      process.ended = true;
    }
  }

  const Trial trial_;
  const Clock::time_point until_;
  std::vector<Process> processes_;
  int harmed_ = -1;
};

}  // namespace

std::string nameOf(Harm harm) {
  switch (harm) {
    case Harm::None: return "nothing";
    case Harm::Kill: return "killed";
    case Harm::Stop: return "stopped";
    case Harm::Drop: return "drops";
  }
  return "";
}

std::string nameOf(const ProtocolStep& step) {
  const auto at = [&](std::initializer_list<const char*> names) -> std::string {
    return step.detail >= 0 && static_cast<std::size_t>(step.detail) < names.size() ? names.begin()[step.detail] : "?";
  };
  switch (step.kind) {
    case MessageKind::Call: return "call/" + at({"return", "keep", "fetch"});
    case MessageKind::Result: return "result";
    case MessageKind::GiveBack: return "give back";
    case MessageKind::Shutdown: return "shutdown/" + at({"ask", "answer", "end"});
    case MessageKind::Autograd:
      return "pass/" +
             at({"joined", "release", "start", "reach", "gradient", "resume", "idle", "explain", "failed", "end", "ask", "answer"});
    case MessageKind::Lost: return "lost";
  }
  return "";
}

std::vector<TrialResult> runTrials(const std::vector<Trial>& trials, int atOnce, std::chrono::milliseconds longest) {
  (void)testFunctions();  // loads LibTorch once, for all processes
  std::vector<TrialResult> results(trials.size());
  std::map<std::size_t, std::unique_ptr<TrialJob>> running;
  for (std::size_t next = 0; next < trials.size() || !running.empty();) {
    while (next < trials.size() && running.size() < static_cast<std::size_t>(atOnce)) {
      running.emplace(next, std::make_unique<TrialJob>(trials[next], longest));
      ++next;
    }
    std::vector<pollfd> fds;
    for (const auto& [index, job] : running) job->addTo(fds);
    ::poll(fds.data(), fds.size(), 100);  // [ms] between looks at the time
    for (auto entry = running.begin(); entry != running.end();) {
      if (entry->second->service()) {
        results[entry->first] = entry->second->result();
        entry = running.erase(entry);
      } else {
        ++entry;
      }
    }
  }
  return results;
}

}  // namespace pw::test
