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

#include "backends/communicator.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// Whose message: from, to, tag.
using Address = std::tuple<Rank, Rank, std::uint32_t>;
using Message = std::vector<std::byte>;

/// What the ranks share, under one mutex: tests and single-rank jobs have few ranks.
struct Exchange {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Address, std::deque<Message>> mailboxes;
  std::vector<char> atBarrier;  ///< per rank, of the barrier that is being met
  std::uint64_t barriers = 0;   ///< that were met
  std::optional<Rank> aborted;  ///< the first rank that aborted

  explicit Exchange(int ranks) : atBarrier(static_cast<std::size_t>(ranks)) {}
};

class InMemoryCommunicator final : public Communicator {
 public:
  InMemoryCommunicator(std::shared_ptr<Exchange> exchange, Rank rank, std::chrono::milliseconds deadline)
      : exchange_(std::move(exchange)), rank_(rank), deadline_(deadline) {}

  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(exchange_->atBarrier.size()); }
  Ticket send(Rank to, std::uint32_t tag, Buffer buffer) override;
  Ticket receive(Rank from, std::uint32_t tag, Buffer buffer) override;
  void wait(Ticket ticket) override;
  void barrier() override;
  void abort() noexcept override;

 private:
  struct Receive {
    Address address;
    Buffer buffer;
  };

  template <class Condition>
  bool waitFor(std::unique_lock<std::mutex>& lock, std::string_view doing, Condition condition);
  Message takeMessage(const Receive& receive);

  std::shared_ptr<Exchange> exchange_;
  Rank rank_;
  std::chrono::milliseconds deadline_;
  Ticket next_ = 1;
  std::map<Ticket, Receive> receives_;  ///< started and not waited for; a send is done when it returns
};

/// Waits for the condition; false when the deadline passed. Throws as soon as any rank aborts.
template <class Condition>
bool InMemoryCommunicator::waitFor(std::unique_lock<std::mutex>& lock, std::string_view doing, Condition condition) {
  const auto until = std::chrono::steady_clock::now() + deadline_;
  const bool woken = exchange_->changed.wait_until(lock, until, [&] { return exchange_->aborted || condition(); });
  if (exchange_->aborted) {
    throw Error(fmt::format("rank {} was {} when rank {} gave up; the reason is in that rank's message", rank_.value, doing,
                            exchange_->aborted->value));
  }
  return woken;
}

Communicator::Ticket InMemoryCommunicator::send(Rank to, std::uint32_t tag, Buffer buffer) {
  assert(to.value >= 0 && to.value < size());
  {
    const std::span<const std::byte> bytes(buffer.data, buffer.bytes);
    const std::lock_guard lock(exchange_->mutex);
    exchange_->mailboxes[{rank_, to, tag}].emplace_back(bytes.begin(), bytes.end());
  }
  exchange_->changed.notify_all();
  return next_++;
}

Communicator::Ticket InMemoryCommunicator::receive(Rank from, std::uint32_t tag, Buffer buffer) {
  assert(from.value >= 0 && from.value < size());
  receives_[next_] = {{from, rank_, tag}, buffer};
  return next_++;
}

Message InMemoryCommunicator::takeMessage(const Receive& receive) {
  const auto& [from, to, tag] = receive.address;
  std::unique_lock lock(exchange_->mutex);
  auto& mailboxes = exchange_->mailboxes;
  const bool arrived = waitFor(lock, fmt::format("waiting for rank {} (tag {})", from.value, tag),
                               [&] { return mailboxes.contains(receive.address); });
  if (!arrived) {
    throw Error(fmt::format("rank {} got no message with tag {} from rank {} within {} ms", to.value, tag, from.value, deadline_.count()));
  }
  const auto mailbox = mailboxes.find(receive.address);
  Message message = std::move(mailbox->second.front());
  mailbox->second.pop_front();
  if (mailbox->second.empty()) mailboxes.erase(mailbox);
  return message;
}

void InMemoryCommunicator::wait(Ticket ticket) {
  assert(ticket > 0 && ticket < next_);
  auto started = receives_.extract(ticket);
  if (started.empty()) {  // a send: all there is to wait for is bad news
    std::unique_lock lock(exchange_->mutex);
    (void)waitFor(lock, "sending", [] { return true; });
    return;
  }
  const Receive& receive = started.mapped();
  const Message message = takeMessage(receive);
  if (message.size() != receive.buffer.bytes) {
    throw Error(fmt::format("rank {} expected {} bytes with tag {} from rank {} but got {}; the ranks run different plans", rank_.value,
                            receive.buffer.bytes, std::get<2>(receive.address), std::get<0>(receive.address).value, message.size()));
  }
  if (!message.empty()) std::memcpy(receive.buffer.data, message.data(), message.size());
}

void InMemoryCommunicator::barrier() {
  std::unique_lock lock(exchange_->mutex);
  auto& present = exchange_->atBarrier;
  present[rank_.index()] = 1;
  const std::uint64_t mine = exchange_->barriers;
  if (std::ranges::count(present, 0) == 0) {
    std::ranges::fill(present, 0);
    ++exchange_->barriers;
    exchange_->changed.notify_all();
  }
  if (waitFor(lock, "waiting at a barrier", [&] { return exchange_->barriers != mine; })) return;
  std::vector<std::size_t> missing;
  for (std::size_t r = 0; r < present.size(); ++r) {
    if (present[r] == 0) missing.push_back(r);
  }
  present[rank_.index()] = 0;
  throw Error(fmt::format("rank {} waited {} ms at a barrier for rank {}", rank_.value, deadline_.count(), fmt::join(missing, ", ")));
}

void InMemoryCommunicator::abort() noexcept {
  {
    const std::lock_guard lock(exchange_->mutex);
    if (!exchange_->aborted) exchange_->aborted = rank_;
  }
  exchange_->changed.notify_all();
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> inMemoryCommunicators(int ranks, std::chrono::milliseconds deadline) {
  assert(ranks >= 1);
  auto exchange = std::make_shared<Exchange>(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<InMemoryCommunicator>(exchange, Rank(r), deadline));
  return communicators;
}

}  // namespace pw
