#include "engine/processes/rank_environment.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/text/digest.h"
#include "simulator/text/number_text.h"

extern char** environ;

namespace pw {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr std::uint64_t kReservedSteps =
    0xfffffff0;  // SLURM_MAX_NORMAL_STEP_ID: from here on batch scripts, interactive shells, container steps
constexpr std::uint64_t kFirstPort = 20000, kPorts = 10000;

/// Reads variables, and says so in its errors.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  [[nodiscard]] bool has(const char* name) const { return !text(name).empty(); }
  /// Empty when it is not set.
  [[nodiscard]] std::string text(const char* name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? std::string() : found->second;
  }
  /// The number of a variable; UsageError when it is missing or not in [low, high]. `because`: what else is set, so that it must be.
  [[nodiscard]] std::uint64_t number(const char* name, std::uint64_t low, std::uint64_t high, const char* because) const {
    if (!variables_.contains(name)) {
      throw UsageError(
          fmt::format("{} is set but {} is not; set both as {} does, or neither", because, name, because == kRank ? "torchrun" : "srun"));
    }
    const auto value = numberOf<std::uint64_t>(text(name));
    if (!value || *value < low || *value > high) {
      throw UsageError(fmt::format("{} in the environment is '{}'; it must be a number from {} to {}", name, text(name), low, high));
    }
    return *value;
  }
  [[nodiscard]] int small(const char* name, int low, int high, const char* because = kRank) const {
    return static_cast<int>(number(name, static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high), because));
  }

  static constexpr const char* kRank = "RANK";
  static constexpr const char* kTask = "SLURM_PROCID";

 private:
  const Variables& variables_;
};

bool isLoopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

RankEnvironment fromRank(const Reader& read) {
  RankEnvironment environment;
  environment.worldSize = read.small("WORLD_SIZE", 1, kMostRanks);
  environment.rank = JobRank(read.small("RANK", 0, environment.worldSize - 1));
  environment.masterAddress = read.text("MASTER_ADDR");
  if (environment.masterAddress.empty()) throw UsageError("RANK is set but MASTER_ADDR is not; set both as torchrun does, or neither");
  environment.masterPort = read.small("MASTER_PORT", 1, 65535);
  if (read.has("PIPEWRIGHT_LISTEN_FD")) environment.listenFd = read.small("PIPEWRIGHT_LISTEN_FD", 0, 1 << 20);
  if (read.has("PIPEWRIGHT_STATUS_FD")) environment.statusFd = read.small("PIPEWRIGHT_STATUS_FD", 0, 1 << 20);
  environment.oneHost = isLoopback(environment.masterAddress);
  if (read.has("LOCAL_WORLD_SIZE")) {
    environment.localSize = read.small("LOCAL_WORLD_SIZE", 1, environment.worldSize);
    environment.localRank =
        read.has("LOCAL_RANK") ? read.small("LOCAL_RANK", 0, environment.localSize - 1) : environment.rank.value % environment.localSize;
    environment.oneHost = environment.oneHost || environment.localSize == environment.worldSize;
  } else if (environment.oneHost) {
    environment.localSize = environment.worldSize;
    environment.localRank = environment.rank.value;
  }
  environment.storeIsElsewhere = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  environment.startedBy = environment.statusFd >= 0 ? StartedBy::Us : StartedBy::Torchrun;
  return environment;
}

/// A job that torchrun starts again is another one.
std::string tokenOf(const Reader& read) {
  if (read.has("PIPEWRIGHT_JOB_TOKEN")) return read.text("PIPEWRIGHT_JOB_TOKEN");
  Sha256 digest;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID"})
    digest.addField(read.text(name));
  return hex(digest.finish());
}

/// Whether the variables are those of one of several tasks that srun started.
bool isTask(const Reader& read, const char* tasks) {
  if (!read.has("SLURM_PROCID") || !read.has("SLURM_STEP_ID") || !read.has(tasks)) return false;
  return numberOf<std::uint64_t>(read.text("SLURM_STEP_ID")).value_or(0) < kReservedSteps &&
         numberOf<std::uint64_t>(read.text(tasks)).value_or(0) != 1;
}

/// Tasks on this host; 0 where Slurm does not say.
int tasksHere(const Reader& read, std::size_t hosts, int tasks) {
  if (hosts == 1) return tasks;
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (!read.has(name) || !read.has("SLURM_NODEID")) continue;
    const std::vector<int> perHost = tasksPerHost(read.text(name));
    const auto host = numberOf<std::uint64_t>(read.text("SLURM_NODEID"));
    if (host && *host < perHost.size()) return perHost[*host];
  }
  return read.has("SLURM_NTASKS_PER_NODE") ? read.small("SLURM_NTASKS_PER_NODE", 1, kMostRanks, Reader::kTask) : 0;
}

RankEnvironment fromSlurm(const Reader& read, const char* tasks) {
  RankEnvironment environment;
  environment.startedBy = StartedBy::Slurm;
  environment.worldSize = read.small(tasks, 2, kMostRanks, Reader::kTask);
  environment.rank = JobRank(read.small("SLURM_PROCID", 0, environment.worldSize - 1, Reader::kTask));
  const std::string list = read.has("SLURM_STEP_NODELIST") ? read.text("SLURM_STEP_NODELIST") : read.text("SLURM_NODELIST");
  const std::vector<std::string> hosts = list.empty() ? std::vector<std::string>() : hostsOf(list);
  environment.oneHost = hosts.size() == 1;
  environment.localSize = tasksHere(read, hosts.size(), environment.worldSize);
  if (read.has("SLURM_LOCALID")) environment.localRank = read.small("SLURM_LOCALID", 0, environment.worldSize - 1, Reader::kTask);
  environment.masterAddress = read.text("MASTER_ADDR");
  if (environment.masterAddress.empty()) {
    if (hosts.empty())
      throw UsageError("SLURM_PROCID is set but neither MASTER_ADDR nor SLURM_STEP_NODELIST is; set MASTER_ADDR to the host of task 0");
    environment.masterAddress = environment.oneHost ? "127.0.0.1" : hosts.front();
  }
  if (read.has("MASTER_PORT")) {
    environment.masterPort = read.small("MASTER_PORT", 1, 65535, Reader::kTask);
  } else {
    const std::uint64_t most = ~std::uint32_t{0};
    const std::uint64_t job = read.number("SLURM_JOB_ID", 0, most, Reader::kTask),
                        step = read.number("SLURM_STEP_ID", 0, most, Reader::kTask);
    environment.masterPort = static_cast<int>(kFirstPort + (job + 7919 * step) % kPorts);
  }
  return environment;
}

[[noreturn]] void throwNoList(const char* what, const std::string& list) {
  throw UsageError(
      fmt::format("'{}' is not a list of {} as Slurm writes them; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT instead", list, what));
}

/// One entry of a bracket: `003-005` or `9`. Numbers keep the width they are written with.
void appendRange(std::string_view entry, std::vector<std::string>& out, const std::string& list) {
  const std::size_t dash = entry.find('-');
  const std::string_view first = entry.substr(0, dash), last = dash == std::string_view::npos ? first : entry.substr(dash + 1);
  const auto low = numberOf<std::uint64_t>(first), high = numberOf<std::uint64_t>(last);
  if (!low || !high || *low > *high || *high - *low >= kMostRanks || out.size() >= kMostRanks) throwNoList("hosts", list);
  for (std::uint64_t i = 0; i <= *high - *low; ++i) out.push_back(fmt::format("{:0{}}", *low + i, first.size()));
}

/// The hosts of one name with its brackets.
std::vector<std::string> expand(std::string_view name, const std::string& list) {
  std::vector<std::string> hosts{""};
  while (!name.empty()) {
    const std::size_t open = std::min(name.find('['), name.size());
    const std::size_t close = name.find(']', open);
    std::vector<std::string> numbers;
    if (open < name.size()) {
      if (close == std::string_view::npos) throwNoList("hosts", list);
      std::string_view inside = name.substr(open + 1, close - open - 1);
      for (std::size_t comma = 0; comma != std::string_view::npos;
           inside.remove_prefix(comma == std::string_view::npos ? inside.size() : comma + 1)) {
        comma = inside.find(',');
        appendRange(inside.substr(0, comma), numbers, list);
      }
    } else {
      numbers.emplace_back();
    }
    if (hosts.size() * numbers.size() > kMostRanks) throwNoList("hosts", list);
    std::vector<std::string> longer;
    for (const std::string& host : hosts) {
      for (const std::string& number : numbers) longer.push_back(host + std::string(name.substr(0, open)) + number);
    }
    hosts = std::move(longer);
    name.remove_prefix(open < name.size() ? close + 1 : name.size());
  }
  return hosts;
}

}  // namespace

std::vector<std::string> hostsOf(const std::string& list) {
  std::vector<std::string> hosts;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    if (at < list.size()) inside = list[at] == '[' ? true : list[at] == ']' ? false : inside;
    if (at < list.size() && (list[at] != ',' || inside)) continue;
    const std::string_view name = std::string_view(list).substr(begin, at - begin);
    if (name.empty() || inside) throwNoList("hosts", list);
    for (std::string& host : expand(name, list)) hosts.push_back(std::move(host));
    if (hosts.size() > kMostRanks) throwNoList("hosts", list);
    begin = at + 1;
  }
  return hosts;
}

std::vector<int> tasksPerHost(const std::string& list) {
  std::vector<int> tasks;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string_view entry = std::string_view(list).substr(begin, end - begin);
    std::uint64_t times = 1;
    if (const std::size_t open = entry.find("(x"); open != std::string_view::npos) {
      const auto count = entry.back() == ')' ? numberOf<std::uint64_t>(entry.substr(open + 2, entry.size() - open - 3)) : std::nullopt;
      if (!count) throwNoList("tasks per host", list);
      times = *count;
      entry = entry.substr(0, open);
    }
    const auto number = numberOf<std::uint64_t>(entry);
    if (!number || *number > kMostRanks || times > kMostRanks || tasks.size() + times > kMostRanks) throwNoList("tasks per host", list);
    tasks.insert(tasks.end(), times, static_cast<int>(*number));
    begin = end + 1;
  }
  return tasks;
}

std::string jobMark(const RankEnvironment& environment) {
  constexpr std::size_t kDigits = 16;
  const bool isDrawn = environment.statusFd >= 0;  // by our launcher; another's token is the same for every start
  return isDrawn ? hex(sha256(environment.token)).substr(0, kDigits) : "";
}

std::optional<RankEnvironment> rankEnvironment(const Variables& variables) {
  const Reader read(variables);
  const char* tasks = read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  std::optional<RankEnvironment> environment;
  if (variables.contains("RANK"))
    environment = fromRank(read);
  else if (isTask(read, tasks))
    environment = fromSlurm(read, tasks);
  if (environment) environment->token = tokenOf(read);
  return environment;
}

std::optional<RankEnvironment> rankEnvironment() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (const std::size_t equals = text.find('='); equals != std::string_view::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  const auto environment = rankEnvironment(variables);
  for (const int fd : environment ? std::array{environment->listenFd, environment->statusFd} : std::array{-1, -1}) {
    if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return environment;
}

void requireWorldSize(const RankEnvironment& environment, int ranks, const std::string& plan) {
  if (environment.worldSize == ranks) return;
  const bool slurm = environment.startedBy == StartedBy::Slurm;
  throw UsageError(
      fmt::format("{} is for {} rank{} and {} is {}; {}.", plan, ranks, ranks == 1 ? "" : "s",
                  slurm ? "the number of srun's tasks" : "WORLD_SIZE", environment.worldSize,
                  slurm ? fmt::format("start it with srun --ntasks {}", ranks) : "start as many processes as the plan has ranks"));
}

void reportStartUp(const RankEnvironment& environment, StartUp reached) noexcept {
  if (environment.statusFd < 0) return;
  const std::array<char, 3> line{kStartUpMark, static_cast<char>('0' + static_cast<int>(reached)), '\n'};
  [[maybe_unused]] const auto written = ::write(environment.statusFd, line.data(), line.size());
}

void reportFailure(const RankEnvironment& environment, const std::string& sentence, bool unusable) noexcept {
  if (environment.statusFd < 0) return;
  // One write of at most PIPE_BUF bytes arrives whole. The time lets the launcher tell who failed first.
  const auto now = std::chrono::steady_clock::now();
  std::array<char, 4096> line{};
  const auto time = std::to_chars(line.data(), line.data() + 32, now.time_since_epoch().count()).ptr;
  auto length = static_cast<std::size_t>(time - line.data());
  line[length++] = unusable ? '!' : ' ';
  for (const char c : sentence) {
    if (length + 1 == line.size()) break;
    line[length++] = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  line[length++] = '\n';
  [[maybe_unused]] const auto written = ::write(environment.statusFd, line.data(), length);
}

}  // namespace pw
