#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/messages/communicator.h"
#include "backends/messages/in_memory_communicator.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// Identifies a message: from, to, tag.
using Address = std::tuple<JobRank, JobRank, std::uint32_t>;
using Message = std::vector<std::byte>;

struct Receive {
  Address address;
  Buffer buffer;
  std::optional<std::size_t> got;  ///< bytes of the message that came
};

/// The traffic between two ranks under one tag: messages that have not been requested yet, or receives that wait for one.
struct Channel {
  std::deque<Message> messages;
  std::deque<Receive*> receives;
};

/// What the ranks share, under one mutex: tests and single-rank jobs have few ranks.
struct Exchange {
  std::mutex mutex;
  std::vector<std::condition_variable> changed;  ///< per rank: something arrived for it
  std::map<Address, Channel> channels;           ///< those that are not empty
  std::vector<char> atBarrier;                   ///< per rank, of the barrier that is being met
  std::uint64_t barriers = 0;                    ///< that were met
  std::optional<JobRank> aborted;                ///< the first rank that aborted

  explicit Exchange(int ranks) : changed(static_cast<std::size_t>(ranks)), atBarrier(static_cast<std::size_t>(ranks)) {}

  void wakeAll() {
    for (auto& rank : changed) rank.notify_all();
  }
};

void deliver(std::span<const std::byte> message, Receive& receive) {
  receive.got = message.size();
  if (message.size() == receive.buffer.bytes && !message.empty()) std::memcpy(receive.buffer.data, message.data(), message.size());
}

class InMemoryCommunicator final : public Communicator {
 public:
  InMemoryCommunicator(std::shared_ptr<Exchange> exchange, JobRank rank, std::chrono::milliseconds deadline)
      : exchange_(std::move(exchange)), rank_(rank), deadline_(deadline) {}
  ~InMemoryCommunicator() override;
  InMemoryCommunicator(const InMemoryCommunicator&) = delete;
  InMemoryCommunicator& operator=(const InMemoryCommunicator&) = delete;

  [[nodiscard]] JobRank rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(exchange_->atBarrier.size()); }
  Request send(JobRank to, std::uint32_t tag, Buffer buffer) override;
  Request receive(JobRank from, std::uint32_t tag, Buffer buffer) override;
  void wait(Request request) override;
  std::optional<bool> isDone(Request request) override;
  std::size_t waitAny(std::span<const Request> requests) override;
  MessageState stateOf(Request request) noexcept override;
  void progress() override {}
  void barrier() override;
  void abort() noexcept override;

 private:
  template <class Doing, class Condition>
  bool waitFor(std::unique_lock<std::mutex>& lock, Doing doing, Condition condition);
  [[nodiscard]] bool hasArrived(Request request) const;
  void forget(const Receive& receive);

  std::shared_ptr<Exchange> exchange_;
  JobRank rank_;
  std::chrono::milliseconds deadline_;
  Request next_ = 1;
  std::map<Request, Receive> receives_;  ///< started and not waited for; a send is done when it returns
};

/// Waits for the condition; false when the deadline passed. Throws as soon as any rank aborts, saying what this one was `doing()`.
template <class Doing, class Condition>
bool InMemoryCommunicator::waitFor(std::unique_lock<std::mutex>& lock, Doing doing, Condition condition) {
  bool woken = exchange_->aborted || condition();
  if (!woken) {
    const auto until = std::chrono::steady_clock::now() + deadline_;
    woken = exchange_->changed[rank_.index()].wait_until(lock, until, [&] { return exchange_->aborted || condition(); });
  }
  if (exchange_->aborted) {
    throw Error(fmt::format("rank {} was {} when rank {} gave up; the reason is in that rank's message", rank_.value, doing(),
                            exchange_->aborted->value));
  }
  return woken;
}

Communicator::Request InMemoryCommunicator::send(JobRank to, std::uint32_t tag, Buffer buffer) {
  assert(to.value >= 0 && to.value < size());
  const std::span<const std::byte> bytes(buffer.data, buffer.bytes);
  {
    const std::lock_guard lock(exchange_->mutex);
    const auto channel = exchange_->channels.try_emplace({rank_, to, tag}).first;
    auto& waiting = channel->second.receives;
    if (waiting.empty()) {
      channel->second.messages.emplace_back(bytes.begin(), bytes.end());
      return next_++;
    }
    deliver(bytes, *waiting.front());
    waiting.pop_front();
    if (waiting.empty()) exchange_->channels.erase(channel);
  }
  exchange_->changed[to.index()].notify_all();
  return next_++;
}

Communicator::Request InMemoryCommunicator::receive(JobRank from, std::uint32_t tag, Buffer buffer) {
  assert(from.value >= 0 && from.value < size());
  Receive& receive = receives_[next_] = {{from, rank_, tag}, buffer, std::nullopt};
  const std::lock_guard lock(exchange_->mutex);
  const auto channel = exchange_->channels.try_emplace(receive.address).first;
  auto& messages = channel->second.messages;
  if (messages.empty()) {
    channel->second.receives.push_back(&receive);
  } else {
    deliver(messages.front(), receive);
    messages.pop_front();
    if (messages.empty()) exchange_->channels.erase(channel);
  }
  return next_++;
}

bool InMemoryCommunicator::hasArrived(Request request) const {
  assert(request > 0 && request < next_);
  const auto receive = receives_.find(request);
  return receive == receives_.end() || receive->second.got;  // a send is already done: only a failure can still be noticed
}

/// Removes a receive without a message from its channel.
void InMemoryCommunicator::forget(const Receive& receive) {
  const auto channel = exchange_->channels.find(receive.address);
  if (receive.got || channel == exchange_->channels.end()) return;
  std::erase(channel->second.receives, &receive);
  if (channel->second.receives.empty()) exchange_->channels.erase(channel);
}

InMemoryCommunicator::~InMemoryCommunicator() {
  const std::lock_guard lock(exchange_->mutex);
  for (const auto& [request, receive] : receives_) forget(receive);
}

void InMemoryCommunicator::wait(Request request) {
  const auto started = receives_.find(request);
  const bool sending = started == receives_.end();
  const auto [from, to, tag] = sending ? Address{} : started->second.address;
  {
    std::unique_lock lock(exchange_->mutex);
    const auto doing = [&, f = from, t = tag] { return sending ? "sending" : fmt::format("waiting for rank {} (tag {})", f.value, t); };
    const bool arrived = waitFor(lock, doing, [&] { return hasArrived(request); });
    if (sending) return;
    if (!arrived) {
      forget(started->second);  // its request stays known, for `stateOf`
      throw Error(fmt::format("rank {} got no message with tag {} from rank {} within {}", to.value, tag, from.value, inWords(deadline_)));
    }
  }
  const Receive receive = receives_.extract(started).mapped();
  if (*receive.got != receive.buffer.bytes) throw Error(sizeSentence(rank_, from, tag, receive.buffer.bytes, *receive.got));
}

std::optional<bool> InMemoryCommunicator::isDone(Request request) {
  const std::lock_guard lock(exchange_->mutex);
  return exchange_->aborted || hasArrived(request);
}

MessageState InMemoryCommunicator::stateOf(Request request) noexcept {
  const std::lock_guard lock(exchange_->mutex);
  return hasArrived(request) ? MessageState::Done : MessageState::Waiting;
}

std::size_t InMemoryCommunicator::waitAny(std::span<const Request> requests) {
  assert(!requests.empty());
  std::unique_lock lock(exchange_->mutex);
  auto done = requests.end();
  const bool arrived = waitFor(
      lock, [] { return "waiting for any of its messages"; },
      [&] {
        done = std::ranges::find_if(requests, [&](Request request) { return hasArrived(request); });
        return done != requests.end();
      });
  if (arrived) return static_cast<std::size_t>(done - requests.begin());
  const auto& [from, to, tag] = receives_.at(requests.front()).address;
  throw Error(fmt::format("rank {} got no message with tag {} from rank {}, nor another it waits for, within {}", to.value, tag, from.value,
                          inWords(deadline_)));
}

void InMemoryCommunicator::barrier() {
  std::unique_lock lock(exchange_->mutex);
  auto& present = exchange_->atBarrier;
  present[rank_.index()] = 1;
  const std::uint64_t mine = exchange_->barriers;
  if (std::ranges::count(present, 0) == 0) {
    std::ranges::fill(present, 0);
    ++exchange_->barriers;
    exchange_->wakeAll();
  }
  if (waitFor(
          lock, [] { return "waiting at a barrier"; }, [&] { return exchange_->barriers != mine; }))
    return;
  std::vector<std::size_t> missing;
  for (std::size_t r = 0; r < present.size(); ++r) {
    if (present[r] == 0) missing.push_back(r);
  }
  present[rank_.index()] = 0;
  throw Error(fmt::format("rank {} waited {} at a barrier for rank {}", rank_.value, inWords(deadline_), fmt::join(missing, ", ")));
}

void InMemoryCommunicator::abort() noexcept {
  const std::lock_guard lock(exchange_->mutex);
  if (!exchange_->aborted) exchange_->aborted = rank_;
  exchange_->wakeAll();
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> inMemoryCommunicators(int ranks, std::chrono::milliseconds deadline) {
  assert(ranks >= 1);
  auto exchange = std::make_shared<Exchange>(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<InMemoryCommunicator>(exchange, JobRank(r), deadline));
  return communicators;
}

}  // namespace pw
