#include "engine/processes/launcher.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "backends/host/random_bytes.h"
#include "backends/messages/transport.h"
#include "engine/processes/process.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC: the same in all processes of a host
using TimePoint = Clock::time_point;
using OnLine = std::function<void(JobRank, const std::string&)>;

constexpr std::chrono::milliseconds kGather{100};  // a peer notices a lost connection within a few ms
constexpr std::chrono::milliseconds kGrace{500};   // between telling the ranks to end and SIGKILL
constexpr std::chrono::milliseconds kBlind{20};    // between looks where the kernel has no pidfd
constexpr std::size_t kPipeCapacity = 64 << 10;    // Linux's default, which we never change
constexpr std::chrono::milliseconds kWatch{500};   // between looks at ranks whose start-up takes too long
constexpr std::size_t kToken = 32;
constexpr std::size_t kLongestLine = 1 << 20;

/// How a rank failed: the first thing known about it.
struct Failure {
  TimePoint when;
  int signal = 0;  ///< that ended it, else 0
  std::string sentence;
  bool unusable = false;
};

struct Child {
  JobRank rank;
  pid_t pid = -1;
  bool running = false;
  Fd pidFd, status, output;
  std::string statusText, line;
  std::optional<Failure> failure;
  StartUp reached = StartUp::Loading;
  TimePoint since = Clock::now();  ///< when it reported that
};

/// What a rank is doing until it reports the next stage of start-up.
std::string_view words(StartUp reached) {
  switch (reached) {
    case StartUp::Loading: return "loading the model";
    case StartUp::Meeting: return "meeting the other ranks";
    case StartUp::Connecting: return "connecting to the other ranks";
    case StartUp::Done: break;
  }
  return "starting";
}

/// Whether a signal or a debugger has stopped it; proc(5), the field after the name in stat.
bool isStopped(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(stat, text);
  const std::size_t name = text.rfind(") ");
  return name != std::string::npos && (text[name + 2] == 'T' || text[name + 2] == 't');
}

std::string describeEnd(const Child& child, int waitStatus) {
  const int rank = child.rank.value;
  if (WIFSIGNALED(waitStatus)) {
    const int signal = WTERMSIG(waitStatus);
    const char* name = ::sigabbrev_np(signal);
    return fmt::format("Rank {} was ended by SIG{}{}", rank, name != nullptr ? name : std::to_string(signal),
                       signal == SIGKILL ? ", as when memory runs out; try smaller microbatches or see the system's log" : "");
  }
  return fmt::format("Rank {} ended with exit status {} without giving a reason; see its messages above", rank, WEXITSTATUS(waitStatus));
}

/// The ranks of one job. No child outlives it, however it ends.
class Group {
 public:
  Group(const OnLine& onLine, TimePoint deadline, std::chrono::milliseconds startUp)
      : onLine_(onLine), deadline_(deadline), startUp_(startUp) {}
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void start(int ranks, const std::vector<std::string>& argv, int threads);
  LaunchResult waitForAll();

 private:
  void pollUntil(std::optional<TimePoint> until);
  void service(Child& child);
  void readStatus(Child& child);
  void readOutput(Child& child);
  void signalAll(int signal) const;
  [[nodiscard]] bool anyRunning() const { return std::ranges::any_of(children_, &Child::running); }
  [[nodiscard]] const Failure* firstFailure(const Child** whose) const;
  [[nodiscard]] std::optional<LaunchResult> findCause(TimePoint now) const;
  [[nodiscard]] std::optional<LaunchResult> findLate(TimePoint now) const;
  [[nodiscard]] std::optional<TimePoint> nextLook(TimePoint now) const;

  std::string executable_;
  const OnLine& onLine_;
  TimePoint deadline_;
  std::chrono::milliseconds startUp_;
  std::optional<TimePoint> gatherUntil_;
  Interrupts interrupts_;
  std::vector<Child> children_;
};

void Group::start(int ranks, const std::vector<std::string>& argv, int threads) {
  executable_ = argv.front();
  const auto [listener, port] = makeListener();
  const std::string token = hex(randomBytes(kToken));
  children_.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    Child& child = children_.emplace_back();
    child.rank = JobRank(r);
    Pipe status = makePipe();
    Pipe output = onLine_ ? makePipe() : Pipe{};
    child.status = std::move(status.read);
    child.output = std::move(output.read);
    ChildProgram program{argv, {}, status.write.get(), output.write.get(), r == 0 ? listener.get() : -1};
    program.environment = {fmt::format("RANK={}", r),
                           fmt::format("WORLD_SIZE={}", ranks),
                           fmt::format("LOCAL_RANK={}", r),
                           fmt::format("LOCAL_WORLD_SIZE={}", ranks),
                           "TORCHELASTIC_USE_AGENT_STORE=False",  // of a torchrun around us
                           "MASTER_ADDR=127.0.0.1",
                           fmt::format("MASTER_PORT={}", port),
                           fmt::format("OMP_NUM_THREADS={}", threads),
                           fmt::format("PIPEWRIGHT_STATUS_FD={}", program.status),
                           "PIPEWRIGHT_JOB_TOKEN=" + token};
    if (r == 0) program.environment.push_back(fmt::format("PIPEWRIGHT_LISTEN_FD={}", program.listener));
    child.pid = startProcess(program);
    child.running = true;
    child.pidFd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));  // <sys/pidfd.h> of glibc 2.36 does not link in C++
  }
}

Group::~Group() {
  signalAll(SIGKILL);
  for (Child& child : children_) {
    while (child.running && ::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {}
  }
}

void Group::signalAll(int signal) const {
  for (const Child& child : children_) {
    if (child.running) ::kill(child.pid, signal);
  }
}

/// Sleeps until a child has news, a signal arrives or `until`; nothing: no limit.
void Group::pollUntil(std::optional<TimePoint> until) {
  std::vector<pollfd> fds{{interrupts_.fd(), POLLIN, 0}};
  for (const Child& child : children_) {
    if (child.running && child.pidFd.get() < 0) until = std::min(until.value_or(TimePoint::max()), Clock::now() + kBlind);
    if (child.running) fds.push_back({child.pidFd.get(), POLLIN, 0});  // poll skips negative ones
    fds.push_back({child.status.get(), POLLIN, 0});
    fds.push_back({child.output.get(), POLLIN, 0});
  }
  int timeout = -1;
  if (until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
  }
  ::poll(fds.data(), fds.size(), timeout);
}

/// Reads what a child wrote and whether it ended. The child is reaped first, so that all its output is in the pipes by then.
void Group::service(Child& child) {
  int waitStatus = 0;
  const pid_t got = child.running ? ::waitpid(child.pid, &waitStatus, WNOHANG) : 0;
  const bool ended = got == child.pid || (got < 0 && errno == ECHILD);
  readStatus(child);
  readOutput(child);
  if (!ended) return;
  child.running = false;
  child.pidFd.close();
  child.status.close();  // a grandchild may hold the other end: its output no longer counts
  child.output.close();
  if (!child.line.empty()) onLine_(child.rank, std::exchange(child.line, {}));
  if (child.failure) return;
  if (got < 0) {
    child.failure = Failure{Clock::now(), 0, fmt::format("How rank {} ended is unknown: SIGCHLD is ignored here", child.rank.value)};
  } else if (!WIFEXITED(waitStatus) || WEXITSTATUS(waitStatus) != 0) {
    child.failure = Failure{Clock::now(), WIFSIGNALED(waitStatus) ? WTERMSIG(waitStatus) : 0, describeEnd(child, waitStatus)};
  }
}

/// Appends what is in a pipe; closes it at its end. Reads at most a full pipe at once, so that a rank that never stops writing cannot
/// starve the others.
void drain(Fd& pipe, std::string& text) {
  std::array<char, 4096> buffer{};
  for (std::size_t left = kPipeCapacity; pipe.get() >= 0 && left > 0;) {
    const ssize_t count = ::read(pipe.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return pipe.close();
    text.append(buffer.data(), static_cast<std::size_t>(count));
    left -= std::min(left, static_cast<std::size_t>(count));
  }
}

void Group::readStatus(Child& child) {
  drain(child.status, child.statusText);
  if (child.failure) child.statusText.clear();
  while (child.statusText.size() > 2 && child.statusText[0] == kStartUpMark && child.statusText[2] == '\n') {
    child.reached = static_cast<StartUp>(std::clamp(child.statusText[1] - '0', 0, static_cast<int>(StartUp::Done)));
    child.since = Clock::now();
    child.statusText.erase(0, 3);
  }
  if (child.statusText.size() >= kLongestLine) child.status.close();  // no sentence of ours
  const std::string_view text = child.statusText;
  if (text.empty()) return;
  if (text.front() == kExecFailed && text.size() > sizeof(int)) {
    int error = 0;
    std::memcpy(&error, text.data() + 1, sizeof error);
    child.failure =
        Failure{Clock::now(), 0, fmt::format("Cannot start rank {} as {}: {}", child.rank.value, executable_, std::strerror(error))};
    return;
  }
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return;
  std::int64_t when = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + end, when);
  const auto begin = std::min(end, static_cast<std::size_t>(parsed.ptr - text.data()) + 1);
  const bool unusable = begin > 0 && text[begin - 1] == '!';
  std::string sentence(text.substr(begin, end - begin));
  const std::string name = fmt::format("Rank {}", child.rank.value);
  if (!sentence.starts_with(name + " ") && !sentence.starts_with(name + ":")) sentence.insert(0, name + ": ");
  child.failure = Failure{TimePoint(std::chrono::nanoseconds(when)), 0, std::move(sentence), unusable};
}

void Group::readOutput(Child& child) {
  drain(child.output, child.line);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = child.line.find('\n', begin)) != std::string::npos; begin = end + 1) {
    onLine_(child.rank, child.line.substr(begin, end - begin));
  }
  child.line.erase(0, begin);
  if (child.line.size() >= kLongestLine) onLine_(child.rank, std::exchange(child.line, {}));  // bounds our memory
}

/// Prefers a rank killed by a signal to those that only reported (they may have noticed it), then the earliest.
const Failure* Group::firstFailure(const Child** whose) const {
  const Failure* first = nullptr;
  for (const Child& child : children_) {
    if (!child.failure) continue;
    const Failure& f = *child.failure;
    const bool better = first == nullptr || ((f.signal != 0) != (first->signal != 0) ? f.signal != 0 : f.when < first->when);
    if (better) first = &f, *whose = &child;
  }
  return first;
}

/// Why the job failed before all ranks completed; nothing if it has not, or while later reports may still name the first cause.
std::optional<LaunchResult> Group::findCause(TimePoint now) const {
  if (const int signal = interrupts_.take(); signal != 0) {
    return LaunchResult{false, {}, signal == SIGINT ? "Interrupted by Ctrl-C" : "Interrupted by SIGTERM", true};
  }
  const Child* whose = nullptr;
  if (const Failure* first = firstFailure(&whose); first != nullptr) {
    // Ctrl-C may have reached the ranks an instant before it reached us.
    const bool perhapsInterrupted = first->signal == SIGINT || first->signal == SIGTERM;
    const bool waitOn = now < *gatherUntil_ && (anyRunning() || perhapsInterrupted);
    if (!waitOn) return LaunchResult{false, whose->rank, first->sentence, false, first->unusable};
  }
  if (now >= deadline_ && anyRunning()) {
    const JobRank late = std::ranges::find_if(children_, &Child::running)->rank;
    return LaunchResult{false, late, fmt::format("Rank {} was still running when the time limit of the job expired", late.value), false};
  }
  return std::nullopt;
}

/// A rank that has not reported progress for too long before its first step; stopped ranks first.
std::optional<LaunchResult> Group::findLate(TimePoint now) const {
  if (startUp_.count() <= 0) return std::nullopt;
  const auto told = [&](const Child& child, const std::string& what) {
    return LaunchResult{false, child.rank,
                        fmt::format("Rank {} {} while {}, for more than {}; check whether it hangs, or raise --timeout", child.rank.value,
                                    what, words(child.reached), inWords(startUp_))};
  };
  const auto overdue = [&](const Child& child, int times) {
    return child.running && child.reached != StartUp::Done && now >= child.since + times * startUp_ + kWatch;
  };
  for (const Child& child : children_) {
    if (overdue(child, 1) && isStopped(child.pid)) return told(child, "is stopped (as by SIGSTOP)");
  }
  const auto slow = std::ranges::find_if(children_, [&](const Child& child) { return overdue(child, 2); });
  if (slow == children_.end()) return std::nullopt;
  const auto least =
      std::ranges::min_element(children_, {}, [](const Child& child) { return child.running ? child.reached : StartUp::Done; });
  return told(*least, "got no further");
}

/// When `findLate` may find something.
std::optional<TimePoint> Group::nextLook(TimePoint now) const {
  if (startUp_.count() <= 0) return std::nullopt;
  std::optional<TimePoint> next;
  for (const Child& child : children_) {
    if (!child.running || child.reached == StartUp::Done) continue;
    const TimePoint look = std::max(child.since + startUp_ + kWatch, now + kWatch);
    next = std::min(next.value_or(look), look);
  }
  return next;
}

LaunchResult Group::waitForAll() {
  std::optional<LaunchResult> cause;
  std::optional<TimePoint> killAt;
  for (;;) {
    for (Child& child : children_) service(child);
    const TimePoint now = Clock::now();
    const bool failed = std::ranges::any_of(children_, [](const Child& c) { return c.failure.has_value(); });
    if (failed && !gatherUntil_) gatherUntil_ = now + kGather;
    if (!cause) {
      cause = findCause(now);
      if (!cause && !failed) cause = findLate(now);
      if (cause) {
        signalAll(cause->interrupted ? SIGTERM : kJobFailed);  // a rank that handles the latter writes a flight record
        killAt = std::min(now + kGrace, deadline_);
      }
    }
    while (cause && interrupts_.take() != 0) {  // a second Ctrl-C changes nothing
    }
    if (killAt && now >= *killAt) {
      signalAll(SIGKILL);
      killAt.reset();
    }
    if (!anyRunning() && (cause || !failed)) return cause.value_or(LaunchResult{});
    std::optional<TimePoint> until = cause ? killAt : gatherUntil_;
    if (const auto look = cause || failed ? std::nullopt : nextLook(now)) until = std::min(until.value_or(*look), *look);
    if (!cause && deadline_ != TimePoint::max()) until = std::min(until.value_or(deadline_), deadline_);
    pollUntil(until);
  }
}

}  // namespace

LaunchResult launch(int ranks, const std::vector<std::string>& argv, int threads, const OnLine& onLine, std::chrono::milliseconds deadline,
                    std::chrono::milliseconds startUp) {
  assert(ranks >= 1 && threads >= 1 && !argv.empty());
  const TimePoint end = deadline.count() > 0 ? Clock::now() + deadline : TimePoint::max();
  Group group(onLine, end, startUp);
  group.start(ranks, argv, threads);
  return group.waitForAll();
}

}  // namespace pw
