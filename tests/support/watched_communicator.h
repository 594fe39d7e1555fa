#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/messages/communicator.h"
#include "schedules/error.h"

namespace pw::test {

/// How a wrapped communicator treats messages.
struct Watch {
  std::vector<std::string>* log = nullptr;  ///< gets "send 3:7", "receive 3:7" (peer and tag), "barrier"
  std::mt19937_64* random = nullptr;  ///< a message that has come is seen in a random order, and with a chance of 1 in `delay` at each look
  int delay = 0;                      ///< 0: only `wait` and `waitAny` see that a message has come
  bool cannotTell = false;            ///< like Gloo
  std::function<void(JobRank from, std::uint32_t tag, Buffer)> change;  ///< called with every message that was received
};

/// A communicator that records its calls, reports messages late, or changes them. Counts uses of a tag that break the contract.
class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> inner, Watch watch) : inner_(std::move(inner)), watch_(std::move(watch)) {}

  [[nodiscard]] JobRank rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  Request send(JobRank to, std::uint32_t tag, Buffer buffer) override {
    note("send ", to, tag);
    if (!sent_.emplace(to, tag).second) ++repeatedTags;
    return inner_->send(to, tag, buffer);
  }
  Request receive(JobRank from, std::uint32_t tag, Buffer buffer) override {
    note("receive ", from, tag);
    const Request request = inner_->receive(from, tag, buffer);
    receives_[request] = {from, tag, buffer};
    return request;
  }
  void wait(Request request) override {
    inner_->wait(request);
    const auto received = receives_.extract(request);
    if (received && watch_.change) watch_.change(received.mapped().from, received.mapped().tag, received.mapped().buffer);
  }
  [[nodiscard]] std::optional<bool> isDone(Request request) override {
    if (watch_.cannotTell) return std::nullopt;
    const std::optional<bool> done = inner_->isDone(request);
    if (!receives_.contains(request) || !done.value_or(false) || watch_.random == nullptr || seen_.contains(request)) return done;
    if (watch_.delay == 0 || (*watch_.random)() % static_cast<std::uint64_t>(watch_.delay) != 0) return false;
    seen_.insert(request);
    return true;
  }
  [[nodiscard]] std::size_t waitAny(std::span<const Request> requests) override {
    if (watch_.cannotTell) throw UsageError("cannot tell which message has come");
    const std::size_t first = inner_->waitAny(requests);
    if (watch_.random == nullptr) return first;
    std::vector<std::size_t> done;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (inner_->isDone(requests[i]).value_or(false)) done.push_back(i);
    }
    const std::size_t chosen = done[(*watch_.random)() % done.size()];
    seen_.insert(requests[chosen]);
    return chosen;
  }
  void progress() override { inner_->progress(); }
  void barrier() override {
    if (watch_.log != nullptr) watch_.log->push_back("barrier");
    ++barriers;
    sent_.clear();
    inner_->barrier();
  }
  void abort() noexcept override { inner_->abort(); }

  int barriers = 0, repeatedTags = 0;

 private:
  struct Received {
    JobRank from;
    std::uint32_t tag = 0;
    Buffer buffer;
  };
  void note(const char* what, JobRank peer, std::uint32_t tag) const {
    if (watch_.log != nullptr) watch_.log->push_back(what + std::to_string(peer.value) + ":" + std::to_string(tag));
  }

  std::unique_ptr<Communicator> inner_;
  Watch watch_;
  std::set<std::pair<JobRank, std::uint32_t>> sent_;
  std::map<Request, Received> receives_;
  std::set<Request> seen_;
};

}  // namespace pw::test
