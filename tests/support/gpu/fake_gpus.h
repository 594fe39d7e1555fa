#pragma once

#include <algorithm>
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

#include "backends/messages/device_messages.h"
#include "schedules/error.h"
#include "tests/support/collectives.h"

namespace pw::test {

/// GPUs of a few ranks (threads of this process) and the links between them, made of host memory: enqueued work is done later by a separate
/// thread, in a random order among those that the rules of streams and of NCCL allow. Violations of the contract are recorded in
/// `violations`.
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
  void bind(JobRank rank) { current() = {this, rank.index()}; }
  static const Device& device() {
    static const Device fake{
        .allocate = [](std::size_t bytes) { return current().gpus->allocate(current().rank, bytes); },
        .copy = [](Buffer into, Buffer from) { current().gpus->copy(current().rank, into, from); },
        .finish = [](std::chrono::milliseconds deadline,
                     const std::function<void()>& meanwhile) { current().gpus->finish(current().rank, deadline, meanwhile); }};
    return fake;
  }
  DeviceLinks links(JobRank rank);

  /// This thread's rank computes that, after everything enqueued before.
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
    int copies = 0, forgets = 0, aborts = 0, sends = 0, collectives = 0;
    std::size_t blocks = 0;  ///< of memory, alive
  };
  [[nodiscard]] Counts counts(JobRank rank) {
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
    std::optional<std::uint64_t> dependency;  ///< an operation that must be done first
    Buffer into{}, from{};                    ///< of a copy
  };
  struct Operation {
    std::size_t rank = 0;
    Buffer buffer;
    std::size_t after = 0;  ///< how many tasks of the rank must be done first
    Ns begin = 0, end = 0;  ///< end 0: not done
    std::optional<Collective> collective{};
    DType dtype = DType::UInt8;
    const std::vector<std::size_t>* meets = nullptr;  ///< the key of its queues: sender and receiver, or a group
  };
  using Queues = std::vector<std::deque<std::uint64_t>>;  ///< by member: operations not done
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

  void finish(std::size_t rank, std::chrono::milliseconds deadline, const std::function<void()>& meanwhile) {
    std::unique_lock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + deadline;
    while (!changed_.wait_for(lock, std::chrono::microseconds(100), [&] { return gpus_[rank].compute.empty(); })) {
      if (std::chrono::steady_clock::now() >= until) throw Error("the fake GPU did not finish");
      lock.unlock();
      if (meanwhile) meanwhile();
      lock.lock();
    }
  }

  /// `members`: a sender and its receiver, or a group, which is another queue than theirs.
  std::uint64_t begin(std::size_t rank, const std::vector<std::size_t>& members, Operation operation) {
    const std::lock_guard lock(mutex_);
    if (gpus_[rank].aborted) throw Error("the links of this rank were aborted");
    const std::uint64_t id = ++lastOperation_;
    const auto queues = (operation.collective ? groups_ : pairs_).try_emplace(members, Queues(members.size())).first;
    operation.rank = rank;
    operation.after = gpus_[rank].asked;
    operation.begin = ++clock_;
    operation.meets = &queues->first;
    const auto place = static_cast<std::size_t>(std::ranges::find(members, rank) - members.begin());
    queues->second[place].push_back(id);
    if (operation.collective) ++gpus_[rank].counts.collectives;
    if (!operation.collective && place == 0) ++gpus_[rank].counts.sends;
    operations_[id] = operation;
    changed_.notify_all();
    return id;
  }

  MessageState stateOf(std::size_t rank, std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    const Operation& operation = operationOf(rank, id);
    if (operation.end != 0) return MessageState::Done;
    if (operation.meets == nullptr) return MessageState::Unknown;
    const Queues& queues = (operation.collective ? groups_ : pairs_).at(*operation.meets);
    const bool isNext = std::ranges::any_of(queues, [id](const auto& queue) { return !queue.empty() && queue.front() == id; });
    return isNext && std::ranges::none_of(queues, &std::deque<std::uint64_t>::empty) ? MessageState::Moving : MessageState::Waiting;
  }

  /// An operation that a rank may query.
  const Operation& operationOf(std::size_t rank, std::uint64_t id) {
    static const Operation none{};
    const auto found = operations_.find(id);
    if (found != operations_.end() && found->second.rank == rank) return found->second;
    violations_.push_back("queried an operation that was forgotten");
    return none;
  }

  void forget(std::size_t rank) {
    const std::lock_guard lock(mutex_);
    ++gpus_[rank].counts.forgets;
    for (const auto& [id, operation] : operations_) {
      if (operation.rank == rank && operation.end == 0) violations_.push_back("forgot an operation in flight");
    }
    std::erase_if(operations_, [&](const auto& entry) { return entry.second.rank == rank; });
  }

  /// The first operations of all members meet.
  void move(Queues& queues) {
    std::vector<Operation*> all;
    for (auto& queue : queues) {
      all.push_back(&operations_.at(queue.front()));
      queue.pop_front();
    }
    std::vector<Buffer> buffers;
    for (const Operation* operation : all) {
      buffers.push_back(operation->buffer);
      if (operation->buffer.bytes != all.front()->buffer.bytes) violations_.push_back("operations of two sizes met");
      if (operation->collective != all.front()->collective) violations_.push_back("two collectives met");
    }
    const std::size_t bytes = std::min(buffers[0].bytes, buffers[1].bytes);
    const auto what = all.front()->collective;
    what ? combineNow(*what, all.front()->dtype, buffers) : static_cast<void>(std::copy_n(buffers[0].data, bytes, buffers[1].data));
    ++clock_;
    for (Operation* operation : all) operation->end = clock_;
  }

  /// Whether all members have come, and those who give something have computed it.
  bool canMove(const std::vector<std::size_t>& members, const Queues& queues, bool allGive) {
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (queues[m].empty() || gpus_[members[m]].aborted) return false;
      if ((allGive || m == 0) && operations_.at(queues[m].front()).after > gpus_[members[m]].done) return false;
    }
    return true;
  }

  /// What could be done next, in any order.
  std::vector<std::function<void()>> possible() {
    std::vector<std::function<void()>> steps;
    for (Gpu& gpu : gpus_) {
      if (gpu.compute.empty()) continue;
      const auto dependency = gpu.compute.front().dependency;
      if (dependency && operations_.at(*dependency).end == 0) continue;
      steps.emplace_back([&gpu] {
        if (gpu.compute.front().work) gpu.compute.front().work();
        gpu.compute.pop_front();
        ++gpu.done;
      });
    }
    for (auto* const meetings : {&pairs_, &groups_}) {
      for (auto& [members, queues] : *meetings) {
        if (held_ || !canMove(members, queues, meetings == &groups_)) continue;
        steps.emplace_back([this, &queues = queues] { move(queues); });
      }
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
  std::map<std::vector<std::size_t>, Queues> pairs_, groups_;  ///< by sender and receiver; by members
  std::map<std::uint64_t, Operation> operations_;
  std::uint64_t lastOperation_ = 0;
  Ns clock_ = 0;  ///< counts what happens
  bool held_ = false;
  std::vector<std::string> violations_;
  std::mt19937_64 random_;
  std::jthread engine_;
};

inline DeviceLinks FakeGpus::links(JobRank self) {
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
  links.send = [this, rank](JobRank to, Buffer buffer) { return begin(rank, {rank, to.index()}, {.buffer = buffer}); };
  links.receive = [this, rank](JobRank from, Buffer buffer) { return begin(rank, {from.index(), rank}, {.buffer = buffer}); };
  links.startCollective = [this, rank](Collective what, std::span<const JobRank> group, DType dtype,
                                       Buffer buffer) -> std::optional<std::uint64_t> {
    if (!isSummed(dtype)) return std::nullopt;
    std::vector<std::size_t> members;
    for (const JobRank member : group) members.push_back(member.index());
    return begin(rank, members, {.buffer = buffer, .collective = what, .dtype = dtype});
  };
  links.stateOf = [this, rank](std::uint64_t operation) { return stateOf(rank, operation); };
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
