#pragma once

// A job of remote calls with threads as workers: a queue for each pair stands for the network.

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/remote/post.h"
#include "engine/remote/remote.h"

namespace pw::test {

/// What a message is, as its head says after token and number.
struct MessageView {
  JobRank from, to;
  MessageKind kind{};
  int first = 0;  ///< first byte of its body: autograd's PassStep
};

struct JobOptions {
  int workers = 2;
  const AutogradFunctions* functions = nullptr;
  std::uint64_t seed = 0;  ///< of the order in which messages of different pairs arrive; 0: as they come
  std::chrono::milliseconds deadline{20000};
  int runningCalls = 4, mostThreads = 256;
  std::function<bool(const MessageView&)> drops = {};    ///< these get lost
  std::function<bool(const MessageView&)> repeats = {};  ///< these arrive twice
};

class RemoteJob {
 public:
  explicit RemoteJob(JobOptions options) : options_(std::move(options)) {
    std::vector<std::string> names;
    names.reserve(static_cast<std::size_t>(options_.workers));
    for (int i = 0; i < options_.workers; ++i) names.push_back("worker" + std::to_string(i));
    for (int i = 0; i < options_.workers; ++i) workers_.push_back(std::make_unique<Worker>(options_.workers));
    for (int i = 0; i < options_.workers; ++i) {
      const JobRank self(i);
      RemoteSettings settings{self, names, 4711, options_.deadline, options_.runningCalls, options_.mostThreads, options_.functions};
      Worker& worker = *workers_[static_cast<std::size_t>(i)];
      worker.remote =
          std::make_unique<Remote>(settings, [this, self](JobRank to, ChannelMessage message) { send(self, to, std::move(message)); });
      if (options_.functions != nullptr) worker.autograd = std::make_unique<DistributedAutograd>(*worker.remote);
    }
  }
  ~RemoteJob() { stop(); }
  RemoteJob(const RemoteJob&) = delete;
  RemoteJob& operator=(const RemoteJob&) = delete;

  /// Messages are delivered from now on; functions are defined before.
  void start() {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      workers_[i]->thread = std::thread([this, i] { receive(JobRank(i)); });
    }
  }
  [[nodiscard]] Remote& remote(int worker) { return *workers_.at(static_cast<std::size_t>(worker))->remote; }
  [[nodiscard]] DistributedAutograd& autograd(int worker) { return *workers_.at(static_cast<std::size_t>(worker))->autograd; }
  [[nodiscard]] int size() const { return options_.workers; }

  void defineEverywhere(const std::string& name, const Remote::Function& function) {
    for (const auto& worker : workers_) worker->remote->define(name, function);
  }
  /// The worker neither sends nor receives from now on, and the others are told.
  void kill(int worker) {
    workers_.at(static_cast<std::size_t>(worker))->dead = true;
    for (int i = 0; i < size(); ++i) {
      if (i != worker) remote(i).lost(JobRank(worker), "its process ended");
    }
  }
  /// Neither sends nor receives, and nobody is told.
  void freeze(int worker) { workers_.at(static_cast<std::size_t>(worker))->dead = true; }
  void stop() {
    for (const auto& worker : workers_) {
      const std::lock_guard lock(worker->mutex);
      worker->closed = true;
      worker->changed.notify_all();
    }
    for (const auto& worker : workers_) {
      if (worker->thread.joinable()) worker->thread.join();
    }
    for (const auto& worker : workers_) worker->remote->close();
    for (const auto& worker : workers_) worker->autograd.reset();
    for (const auto& worker : workers_) worker->remote.reset();
  }
  [[nodiscard]] std::size_t messages() const { return messages_; }

 private:
  struct Worker {
    explicit Worker(int workers) : from(static_cast<std::size_t>(workers)) {}
    std::unique_ptr<Remote> remote;
    std::unique_ptr<DistributedAutograd> autograd;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::deque<ChannelMessage>> from;
    bool closed = false;
    std::atomic<bool> dead = false;
    std::thread thread;
  };

  static HeldBuffer copyOf(const HeldBuffer& part) {
    std::shared_ptr<std::byte[]> copy(new std::byte[part.buffer.bytes + 1]);
    if (part.buffer.bytes > 0) std::memcpy(copy.get(), part.buffer.data, part.buffer.bytes);
    return {{copy.get(), part.buffer.bytes}, copy};
  }
  void send(JobRank from, JobRank to, ChannelMessage message) {
    Worker& target = *workers_[to.index()];
    if (workers_[from.index()]->dead || target.dead) return;
    const MessageView view{from, to, static_cast<MessageKind>(message.head.at(16)), message.head.size() > 17 ? message.head[17] : -1};
    if (options_.drops && options_.drops(view)) return;
    ++messages_;
    for (HeldBuffer& part : message.parts) part = copyOf(part);
    const std::lock_guard lock(target.mutex);
    if (target.closed) return;
    if (options_.repeats && options_.repeats(view)) {
      ChannelMessage again{message.head, {}};
      for (const HeldBuffer& part : message.parts) again.parts.push_back(copyOf(part));
      target.from[from.index()].push_back(std::move(again));
    }
    target.from[from.index()].push_back(std::move(message));
    target.changed.notify_all();
  }
  void receive(JobRank self) {
    Worker& worker = *workers_[self.index()];
    std::mt19937_64 random(options_.seed * 1000003 + static_cast<std::uint64_t>(self.value));
    std::size_t turn = 0;
    while (true) {
      std::unique_lock lock(worker.mutex);
      const auto full = [&] {
        std::vector<std::size_t> pairs;
        for (std::size_t i = 0; i < worker.from.size(); ++i) {
          if (!worker.from[i].empty()) pairs.push_back(i);
        }
        return pairs;
      };
      worker.changed.wait(lock, [&] { return worker.closed || !full().empty(); });
      if (worker.closed) return;
      if (options_.seed != 0 && random() % 4 == 0) {  // let more come, so that there is something to choose from
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
      }
      const auto pairs = full();
      const std::size_t from = options_.seed == 0 ? pairs[turn++ % pairs.size()] : pairs[random() % pairs.size()];
      ChannelMessage message = std::move(worker.from[from].front());
      worker.from[from].pop_front();
      lock.unlock();
      if (!worker.dead) worker.remote->deliver(JobRank(from), std::move(message));
    }
  }

  JobOptions options_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<std::size_t> messages_ = 0;
};

}  // namespace pw::test
