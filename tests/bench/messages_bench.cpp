// Times messages between two real processes over UCX and Gloo in turn, and the CPU time of ranks that wait: messages_bench pair | waiting.
// Starts itself once per rank; rank 0 prints a JSON document.

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <vector>

#include <nlohmann/json.hpp>

#include "backends/messages/meeting.h"
#include "backends/messages/ucx/communicator.h"
#include "engine/processes/connect.h"
#include "engine/processes/launcher.h"
#include "schedules/error.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using pw::Communicator;
using pw::JobRank;

constexpr int kRounds = 15;
constexpr int kWaitingRanks = 4, kCores = 2;
constexpr auto kBusy = 2s;

/// Mean one-way time [µs] of `count` messages there and back.
double oneWay(Communicator& me, std::size_t bytes, int count) {
  static std::vector<std::byte> out(16 << 20, std::byte{1}), in(16 << 20, std::byte{2});
  const JobRank peer(1 - me.rank().value);
  me.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) {
    if (me.rank() == JobRank(0)) {
      const auto got = me.receive(peer, 1, {in.data(), bytes});
      me.wait(me.send(peer, 1, {out.data(), bytes}));
      me.wait(got);
    } else {
      me.wait(me.receive(peer, 1, {in.data(), bytes}));
      me.wait(me.send(peer, 1, {out.data(), bytes}));
    }
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / 2 / count;
}

nlohmann::json timePair(std::map<std::string, std::unique_ptr<Communicator>>& transports) {
  nlohmann::json results = nlohmann::json::array();
  for (const auto& [bytes, count] : {std::pair{std::size_t{1} << 10, 300}, {std::size_t{1} << 20, 30}, {std::size_t{16} << 20, 4}}) {
    std::map<std::string, std::vector<double>> times;
    for (auto& [name, me] : transports) oneWay(*me, bytes, count);  // warm up
    for (int round = 0; round < kRounds; ++round) {
      for (auto& [name, me] : transports) times[name].push_back(oneWay(*me, bytes, count));
    }
    results.push_back({{"bytes", bytes}, {"microseconds", times}});
  }
  return results;
}

double cpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The last rank computes while the others wait for its message: the largest share of a core that a waiting rank took.
double waitingShare(Communicator& me) {
  const JobRank last(me.size() - 1);
  me.barrier();
  const double before = cpuSeconds();
  const auto start = Clock::now();
  double message = 0, largest = 0;
  if (me.rank() == last) {
    while (Clock::now() - start < kBusy) message = message + 1;
    for (int r = 0; r < last.value; ++r) me.wait(me.send(JobRank(r), 1, {reinterpret_cast<std::byte*>(&message), sizeof message}));
    return 0;
  }
  me.wait(me.receive(last, 1, {reinterpret_cast<std::byte*>(&message), sizeof message}));
  double share = (cpuSeconds() - before) / std::chrono::duration<double>(Clock::now() - start).count();
  if (me.rank() != JobRank(0)) {
    me.wait(me.send(JobRank(0), 2, {reinterpret_cast<std::byte*>(&share), sizeof share}));
    return 0;
  }
  largest = share;
  for (int r = 1; r < last.value; ++r) {
    me.wait(me.receive(JobRank(r), 2, {reinterpret_cast<std::byte*>(&share), sizeof share}));
    largest = std::max(largest, share);
  }
  return largest;
}

void runRank(const std::string& what, const pw::RankEnvironment& environment) {
  pw::Rendezvous meeting;
  meeting.rank = environment.rank;
  meeting.size = environment.worldSize;
  meeting.masterPort = environment.masterPort;
  meeting.listenFd = environment.listenFd;
  const pw::TorchBackend& torch = pw::torchBackend();
  const pw::KeyValueStore store = pw::meet(meeting).dictionary();
  std::map<std::string, std::unique_ptr<Communicator>> transports;
  transports["ucx"] = pw::connectUcx(meeting, store);
  transports["gloo"] = torch.connectGloo(meeting, store);
  nlohmann::json result;
  if (what == "pair") {
    result = timePair(transports);
  } else {
    for (auto& [name, me] : transports) result[name] = waitingShare(*me);
  }
  for (auto& [name, me] : transports) me->barrier();
  if (environment.rank == JobRank(0)) std::cout << result.dump() << std::endl;
}

/// This process and its children run on the first cores only.
void keepToCores(int count) {
  cpu_set_t allowed, kept;
  CPU_ZERO(&kept);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&kept) < count; ++core) {
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &kept);
  }
  sched_setaffinity(0, sizeof kept, &kept);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "";
  if (what != "pair" && what != "waiting") {
    std::cerr << "messages_bench pair | waiting\n";
    return 2;
  }
  try {
    if (const auto environment = pw::rankEnvironment()) {
      runRank(what, *environment);
      return 0;
    }
    if (what == "waiting") keepToCores(kCores);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const auto result = pw::launch(what == "pair" ? 2 : kWaitingRanks, {self, what}, 1, nullptr, 5min);
    if (!result.ok) std::cerr << result.failure << '\n';
    return result.ok ? 0 : 1;
  } catch (const pw::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
