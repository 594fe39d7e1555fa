#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/device_messages.h"
#include "schedules/error.h"

namespace pw::test {

/// GPUs of a few ranks (threads of this process) and the links between them, made of host memory: what is asked for is done later by a thread of its
/// own, in an order drawn at random from all that the rules of streams and of NCCL allow. Breaches of the contract are noted in `violations`.
class FakeGpus {
 public:
  FakeGpus(int ranks, std::uint64_t seed)
      : gpus_(static_cast<std::size_t>(ranks)), random_(seed), engine_([this](const std::stop_token& stop) { work(stop); }) {}
  ~FakeGpus() {
    engine_.request_stop();
    changed_.notify_all();
  }
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  /// This thread is that rank from now on; `device` is its.
  void bind(Rank rank) { current() = {this, rank.index()}; }
  static const Device& device() {
    static const Device fake{.allocate = [](std::size_t bytes) { return current().gpus->allocate(current().rank, bytes); },
                             .copy = [](Buffer into, Buffer from) { current().gpus->copy(current().rank, into, from); },
                             .finish = [](std::chrono::milliseconds deadline) { current().gpus->finish(current().rank, deadline); }};
    return fake;
  }
  DeviceLinks links(Rank rank);

  /// This thread's rank computes that, after all it was asked to compute before.
  void compute(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    ask(gpus_[current().rank], {std::move(task), {}});
  }
  /// While held, no message moves.
  void holdLinks(bool hold) {
    const std::lock_guard lock(mutex_);
    held_ = hold;
    changed_.notify_all();
  }
  struct Counts {
    int copies = 0, forgets = 0, aborts = 0, sends = 0;
    std::size_t blocks = 0;  ///< of memory, alive
  };
  [[nodiscard]] Counts counts(Rank rank) {
    const std::lock_guard lock(mutex_);
    Counts counts = gpus_[rank.index()].counts;
    counts.blocks = gpus_[rank.index()].blocks.size();
    return counts;
  }
  [[nodiscard]] std::vector<std::string> violations() {
    const std::lock_guard lock(mutex_);
    return violations_;
  }

 private:
  struct Task {
    std::function<void()> work;
    std::optional<std::uint64_t> behind;  ///< an operation that must be done first
    Buffer into{}, from{};                ///< of a copy
  };
  struct Operation {
    std::size_t rank = 0;
    Buffer buffer;
    std::size_t after = 0;  ///< how many tasks of the rank must be done first
    Ns begin = 0, end = 0;  ///< end 0: not done
  };
  struct Gpu {
    std::deque<Task> compute;
    std::size_t asked = 0, done = 0;
    std::map<const std::byte*, std::size_t> blocks;
    Counts counts;
    bool aborted = false;
  };
  struct Current {
    FakeGpus* gpus = nullptr;
    std::size_t rank = 0;
  };
  /// `Device` is a table of functions: whose they are, the calling thread knows.
  static Current& current() {
    thread_local Current rank;
    return rank;
  }

  static bool overlap(Buffer a, const std::byte* block, std::size_t bytes) { return a.data < block + bytes && block < a.data + a.bytes; }

  void ask(Gpu& gpu, Task task) {
    gpu.compute.push_back(std::move(task));
    ++gpu.asked;
    changed_.notify_all();
  }

  HeldBuffer allocate(std::size_t rank, std::size_t bytes) {
    auto* const data = new std::byte[bytes];
    std::fill_n(data, bytes, std::byte{0xEE});
    const std::lock_guard lock(mutex_);
    gpus_[rank].blocks[data] = bytes;
    return {{data, bytes}, std::shared_ptr<void>(data, [this, rank](void* block) { release(rank, static_cast<std::byte*>(block)); })};
  }

  void release(std::size_t rank, const std::byte* block) {
    const std::lock_guard lock(mutex_);
    Gpu& gpu = gpus_[rank];
    const std::size_t bytes = gpu.blocks.at(block);
    for (const auto& [id, operation] : operations_) {
      const bool moves = operation.rank == rank && operation.end == 0 && !gpu.aborted;
      if (moves && overlap(operation.buffer, block, bytes)) violations_.push_back("memory freed while a link uses it");
    }
    for (const Task& task : gpu.compute) {
      if (overlap(task.into, block, bytes) || overlap(task.from, block, bytes)) violations_.push_back("memory freed while a copy uses it");
    }
    gpu.blocks.erase(block);
    delete[] block;
  }

  void copy(std::size_t rank, Buffer into, Buffer from) {
    const std::lock_guard lock(mutex_);
    if (into.bytes != from.bytes) violations_.push_back("a copy between two sizes");
    ++gpus_[rank].counts.copies;
    ask(gpus_[rank], {[into, from] { std::memcpy(into.data, from.data, from.bytes); }, {}, into, from});
  }

  void finish(std::size_t rank, std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, deadline, [&] { return gpus_[rank].compute.empty(); })) throw Error("the fake GPU did not finish");
  }

  std::uint64_t begin(std::size_t rank, std::size_t from, std::size_t to, Buffer buffer) {
    const std::lock_guard lock(mutex_);
    if (gpus_[rank].aborted) throw Error("the links of this rank were aborted");
    const std::uint64_t id = ++lastOperation_;
    operations_[id] = {rank, buffer, gpus_[rank].asked, ++clock_};
    pairs_[{from, to}][rank == from ? 0 : 1].push_back(id);
    if (rank == from) ++gpus_[rank].counts.sends;
    changed_.notify_all();
    return id;
  }

  /// An operation that a rank may ask about.
  const Operation& operationOf(std::size_t rank, std::uint64_t id) {
    static const Operation none{};
    const auto found = operations_.find(id);
    if (found != operations_.end() && found->second.rank == rank) return found->second;
    violations_.push_back("asked about an operation that was forgotten");
    return none;
  }

  void forget(std::size_t rank) {
    const std::lock_guard lock(mutex_);
    ++gpus_[rank].counts.forgets;
    for (const auto& [id, operation] : operations_) {
      if (operation.rank == rank && operation.end == 0) violations_.push_back("forgot an operation under way");
    }
    std::erase_if(operations_, [&](const auto& entry) { return entry.second.rank == rank; });
  }

  /// The first send and the first receive of a pair meet.
  void move(std::deque<std::uint64_t>& sends, std::deque<std::uint64_t>& receives) {
    Operation& out = operations_.at(sends.front());
    Operation& in = operations_.at(receives.front());
    if (out.buffer.bytes != in.buffer.bytes) violations_.push_back("a send met a receive of another size");
    std::memcpy(in.buffer.data, out.buffer.data, std::min(in.buffer.bytes, out.buffer.bytes));
    out.end = in.end = ++clock_;
    sends.pop_front();
    receives.pop_front();
  }

  /// What could be done next, in any order.
  std::vector<std::function<void()>> possible() {
    std::vector<std::function<void()>> steps;
    for (Gpu& gpu : gpus_) {
      if (gpu.compute.empty()) continue;
      const auto behind = gpu.compute.front().behind;
      if (behind && operations_.at(*behind).end == 0) continue;
      steps.emplace_back([&gpu] {
        if (gpu.compute.front().work) gpu.compute.front().work();
        gpu.compute.pop_front();
        ++gpu.done;
      });
    }
    for (auto& [ranks, pair] : pairs_) {
      if (held_ || pair[0].empty() || pair[1].empty() || gpus_[ranks.first].aborted || gpus_[ranks.second].aborted) continue;
      if (operations_.at(pair[0].front()).after > gpus_[ranks.first].done) continue;
      steps.emplace_back([this, &pair = pair] { move(pair[0], pair[1]); });
    }
    return steps;
  }

  void work(const std::stop_token& stop) {
    for (std::unique_lock lock(mutex_); !stop.stop_requested();) {
      const auto steps = possible();
      if (steps.empty()) {
        changed_.wait(lock, stop, [this] { return !possible().empty(); });
        continue;
      }
      if (random_() % 2 == 0) steps[random_() % steps.size()]();
      changed_.notify_all();
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Gpu> gpus_;
  std::map<std::pair<std::size_t, std::size_t>, std::array<std::deque<std::uint64_t>, 2>> pairs_;  ///< from, to: sends and receives not done
  std::map<std::uint64_t, Operation> operations_;
  std::uint64_t lastOperation_ = 0;
  Ns clock_ = 0;  ///< counts what happens
  bool held_ = false;
  std::vector<std::string> violations_;
  std::mt19937_64 random_;
  std::jthread engine_;
};

inline DeviceLinks FakeGpus::links(Rank self) {
  const std::size_t rank = self.index();
  DeviceLinks links;
  links.holds = [this, rank](const void* address) {
    const std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const std::byte*>(address);
    const auto after = gpus_[rank].blocks.upper_bound(at);
    if (after == gpus_[rank].blocks.begin()) return false;
    const auto& [block, bytes] = *std::prev(after);
    return at < block + bytes;
  };
  links.send = [this, rank](Rank to, Buffer buffer) { return begin(rank, rank, to.index(), buffer); };
  links.receive = [this, rank](Rank from, Buffer buffer) { return begin(rank, from.index(), rank, buffer); };
  links.isDone = [this, rank](std::uint64_t operation) {
    const std::lock_guard lock(mutex_);
    return operationOf(rank, operation).end != 0;
  };
  links.order = [this, rank](std::uint64_t operation) {
    const std::lock_guard lock(mutex_);
    operationOf(rank, operation);
    ask(gpus_[rank], {{}, operation});
  };
  links.times = [this, rank](std::uint64_t operation) {
    const std::lock_guard lock(mutex_);
    const Operation& asked = operationOf(rank, operation);
    return std::pair(asked.begin, asked.end);
  };
  links.forget = [this, rank] { forget(rank); };
  links.abort = [this, rank] {
    const std::lock_guard lock(mutex_);
    gpus_[rank].aborted = true;
    ++gpus_[rank].counts.aborts;
    changed_.notify_all();
  };
  return links;
}

}  // namespace pw::test
