#include "backends/messages/ucx/communicator.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "backends/messages/tags.h"
#include "backends/messages/transport.h"
#include "backends/messages/ucx/worker.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint32_t kMeetTag = kUcxTags.first, kFarewellTag = kMeetTag + 1;

/// How long a wait polls before it sleeps. Sleeping and waking costs about 10 µs; between polls the core is offered to others, so that a
/// peer waiting for this very core gets it (else each message between two ranks of one core takes as long as this).
constexpr std::chrono::microseconds kSpin{20};

/// What a rank left on the way is still delivered for so long: a farewell may overtake it where messages take several ways at once.
constexpr milliseconds kGrace{200};

/// How long a leaving rank tries to get its last messages out.
constexpr milliseconds kLeaving{1000};

enum class Farewell : std::uint8_t { None, Done, GaveUp };

/// A message in flight. UCX holds its address until it is done.
struct Operation {
  bool sending = false;
  JobRank peer;
  std::uint32_t tag = 0;
  std::size_t bytes = 0;     ///< requested
  std::size_t received = 0;  ///< what the sender sent
  ucs_status_t status = UCS_INPROGRESS;
  void* handle = nullptr;  ///< UCX's, while in progress
};

struct Peer {
  ucp_ep_h endpoint = nullptr;
  bool lost = false;
  Farewell farewell = Farewell::None;        ///< what it said on leaving
  std::optional<Clock::time_point> left;     ///< when
  std::optional<JobRank>* gaveUp = nullptr;  ///< where to note the first peer that aborted
  Operation itsFarewell, ourFarewell, closing;
};

void finish(void* handle, ucs_status_t status, void* operation) {
  auto& done = *static_cast<Operation*>(operation);
  done.status = status;
  done.handle = nullptr;
  ucp_request_free(handle);
}

/// The parameters of an operation on memory of the host that reports to `operation`.
ucp_request_param_t parametersOf(Operation& operation, std::uint32_t attributes = 0) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE | attributes;
  parameters.cb.send = &finish;
  parameters.user_data = &operation;
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  return parameters;
}

void finishReceive(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info, void* operation) {
  static_cast<Operation*>(operation)->received = info->length;
  finish(handle, status, operation);
}

void noteFarewell(void* handle, ucs_status_t status, const ucp_tag_recv_info_t*, void* leaving) {
  auto& peer = *static_cast<Peer*>(leaving);
  finish(handle, status, &peer.itsFarewell);
  if (status != UCS_OK) return;
  peer.left = Clock::now();
  if (peer.farewell == Farewell::GaveUp && !*peer.gaveUp) *peer.gaveUp = peer.itsFarewell.peer;
}

/// Takes what a call that starts an operation returned.
void take(Operation& operation, ucs_status_ptr_t started) {
  if (operation.status != UCS_INPROGRESS) return;  // it called back already
  if (UCS_PTR_IS_PTR(started)) {
    operation.handle = started;
  } else {
    operation.status = UCS_PTR_RAW_STATUS(started);
  }
}

/// UCX's tags are (sender, our tag).
ucp_tag_t tagOf(JobRank sender, std::uint32_t tag) { return static_cast<ucp_tag_t>(sender.value) << 32U | tag; }

constexpr ucp_tag_t kAllBits = ~ucp_tag_t{0};

class UcxCommunicator final : public Communicator {
 public:
  UcxCommunicator(const Rendezvous& rendezvous, const KeyValueStore& store);
  ~UcxCommunicator() override;
  UcxCommunicator(const UcxCommunicator&) = delete;
  UcxCommunicator& operator=(const UcxCommunicator&) = delete;

  JobRank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  Request send(JobRank to, std::uint32_t tag, Buffer buffer) override;
  Request receive(JobRank from, std::uint32_t tag, Buffer buffer) override;
  void wait(Request request) override;
  std::optional<bool> isDone(Request request) override;
  std::size_t waitAny(std::span<const Request> requests) override;
  MessageState stateOf(Request request) noexcept override;
  void progress() override {
    if (own_ == Farewell::None) ucp_worker_progress(ucx_.worker.get());
  }
  void barrier() override { meetByMessages(*this); }
  void abort() noexcept override;

 private:
  void meet();
  void startSend(Operation& operation, Buffer buffer);
  void startReceive(Operation& operation, Buffer buffer);
  Operation& open(const Operation& operation);
  Operation& operationOf(Request request);
  [[nodiscard]] bool isSettled(const Operation& operation) const;
  [[nodiscard]] bool hasJobFailed() const { return jobFailed_ != nullptr && *jobFailed_; }
  [[nodiscard]] std::string failureOf(const Operation& operation) const;
  void expectFarewell(JobRank rank);
  void cancel(Operation& operation);
  void leave(Farewell farewell) noexcept;
  template <class Condition>
  bool runUntil(Clock::time_point end, Condition condition);

  JobRank rank_;
  milliseconds deadline_;
  const std::atomic<bool>* jobFailed_;
  // Before UCX's worker, which reports to these until it is destroyed.
  std::vector<Peer> peers_;
  std::unordered_map<Request, Operation> operations_;
  std::optional<JobRank> gaveUp_;  ///< the first peer that aborted
  Farewell own_ = Farewell::None;
  Operation flush_;
  UcxWorker ucx_;
  Request next_ = 1;
};

UcxCommunicator::UcxCommunicator(const Rendezvous& rendezvous, const KeyValueStore& store)
    : rank_(rendezvous.rank),
      deadline_(rendezvous.deadline),
      jobFailed_(rendezvous.jobFailed),
      peers_(static_cast<std::size_t>(rendezvous.size)),
      ucx_(rendezvous, UCP_FEATURE_TAG, UCS_THREAD_MODE_SINGLE) {
  const auto addresses = exchangedAddresses(ucx_, "ucx", rendezvous, store);
  const auto lost = [](void* peer, ucp_ep_h, ucs_status_t) { static_cast<Peer*>(peer)->lost = true; };
  for (std::size_t r = 0; r < peers_.size(); ++r)
    peers_[r].endpoint = connectTo(ucx_, JobRank(static_cast<int>(r)), addresses[r], lost, &peers_[r]);
  meet();
}

/// Messages to and from each rank: they open the connections, so that the first step does not have to, and show who is missing. Twice,
/// because a rank that got the second knows that the peer answered its request to connect.
void UcxCommunicator::meet() {
  for (int r = 0; r < size(); ++r) {
    if (r != rank_.value) expectFarewell(JobRank(r));
  }
  for (int round = 0; round < 2; ++round) {
    std::vector<Request> requests;
    for (int r = 0; r < size(); ++r) {
      if (r == rank_.value) continue;
      requests.push_back(receive(JobRank(r), kMeetTag, {}));
      requests.push_back(send(JobRank(r), kMeetTag, {}));
    }
    for (const Request request : requests) wait(request);
  }
}

Operation& UcxCommunicator::open(const Operation& operation) {
  assert(operation.peer.value >= 0 && operation.peer.value < size());
  if (own_ != Farewell::None) throw Error(leftSentence());
  return operations_[next_++] = operation;
}

Communicator::Request UcxCommunicator::send(JobRank to, std::uint32_t tag, Buffer buffer) {
  startSend(open({.sending = true, .peer = to, .tag = tag, .bytes = buffer.bytes}), buffer);
  return next_ - 1;
}

Communicator::Request UcxCommunicator::receive(JobRank from, std::uint32_t tag, Buffer buffer) {
  startReceive(open({.sending = false, .peer = from, .tag = tag, .bytes = buffer.bytes}), buffer);
  return next_ - 1;
}

void UcxCommunicator::startSend(Operation& operation, Buffer buffer) {
  const ucp_request_param_t parameters = parametersOf(operation);
  const ucp_ep_h to = peers_[operation.peer.index()].endpoint;
  take(operation, ucp_tag_send_nbx(to, buffer.data, buffer.bytes, tagOf(rank_, operation.tag), &parameters));
}

void UcxCommunicator::startReceive(Operation& operation, Buffer buffer) {
  // Without this flag a message that is here already does not say its size.
  ucp_request_param_t parameters = parametersOf(operation, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
  parameters.cb.recv = &finishReceive;
  take(operation,
       ucp_tag_recv_nbx(ucx_.worker.get(), buffer.data, buffer.bytes, tagOf(operation.peer, operation.tag), kAllBits, &parameters));
}

Operation& UcxCommunicator::operationOf(Request request) {
  if (own_ != Farewell::None) throw Error(leftSentence());
  const auto found = operations_.find(request);
  assert(found != operations_.end());
  return found->second;
}

bool UcxCommunicator::isSettled(const Operation& operation) const {
  if (operation.status != UCS_INPROGRESS || gaveUp_ || hasJobFailed()) return true;
  const Peer& peer = peers_[operation.peer.index()];
  return peer.lost || (peer.left && Clock::now() - *peer.left > kGrace);
}

/// Runs the transport until the condition holds; false when the time is over first.
template <class Condition>
bool UcxCommunicator::runUntil(Clock::time_point end, Condition condition) {
  if (condition()) return true;
  Clock::time_point sleepAt{};
  for (bool rested = true;;) {
    const bool moved = ucp_worker_progress(ucx_.worker.get()) != 0;
    if (condition()) return true;
    const auto now = Clock::now();
    if (now >= end) return false;
    if (moved || rested) sleepAt = now + kSpin;
    rested = false;
    if (now < sleepAt) {
      if (!moved) ::sched_yield();
      continue;
    }
    if (ucp_worker_arm(ucx_.worker.get()) == UCS_ERR_BUSY) continue;
    const auto longest = std::chrono::ceil<milliseconds>(std::min<Clock::duration>(end - now, kGrace));
    pollfd fd{ucx_.fd, POLLIN, 0};
    ::poll(&fd, 1, static_cast<int>(longest.count()));
    rested = true;
  }
}

void UcxCommunicator::wait(Request request) {
  Operation& operation = operationOf(request);
  if (!runUntil(Clock::now() + deadline_, [&] { return isSettled(operation); })) {
    cancel(operation);
    throw Error(lateSentence(operation.sending, operation.peer, deadline_));
  }
  if (operation.status != UCS_OK || (!operation.sending && operation.received != operation.bytes)) {
    cancel(operation);
    throw Error(failureOf(operation));
  }
  operations_.erase(request);
}

std::string UcxCommunicator::failureOf(const Operation& operation) const {
  const bool wrongSize = operation.status == UCS_OK || operation.status == UCS_ERR_MESSAGE_TRUNCATED;
  if (wrongSize) return sizeSentence(rank_, operation.peer, operation.tag, operation.bytes, operation.received);
  if (gaveUp_) return gaveUpSentence(*gaveUp_);
  if (hasJobFailed()) return failedSentence();
  const Peer& peer = peers_[operation.peer.index()];
  if (peer.lost || peer.left) return lostSentence(operation.peer);
  return fmt::format("{} rank {} failed ({}); start the job again", operation.sending ? "sending to" : "receiving from",
                     operation.peer.value, ucs_status_string(operation.status));
}

std::optional<bool> UcxCommunicator::isDone(Request request) {
  const Operation& operation = operationOf(request);
  if (!isSettled(operation)) ucp_worker_progress(ucx_.worker.get());
  return isSettled(operation);
}

MessageState UcxCommunicator::stateOf(Request request) noexcept {
  const auto found = operations_.find(request);
  if (found == operations_.end()) return MessageState::Unknown;
  return found->second.status == UCS_OK ? MessageState::Done : MessageState::Waiting;
}

std::size_t UcxCommunicator::waitAny(std::span<const Request> requests) {
  assert(!requests.empty());
  std::vector<const Operation*> operations;
  for (const Request request : requests) operations.push_back(&operationOf(request));
  auto settled = operations.end();
  const bool inTime = runUntil(Clock::now() + deadline_, [&] {
    settled = std::ranges::find_if(operations, [&](const Operation* operation) { return isSettled(*operation); });
    return settled != operations.end();
  });
  if (!inTime) throw Error(lateSentence(operations.front()->sending, operations.front()->peer, deadline_));
  return static_cast<std::size_t>(settled - operations.begin());
}

/// Nothing will be written into its buffer any more, unless it is on its way already.
void UcxCommunicator::cancel(Operation& operation) {
  if (operation.handle != nullptr && !operation.sending) ucp_request_cancel(ucx_.worker.get(), operation.handle);
}

/// Posts the receive that tells us when a peer leaves: transports through shared memory do not.
void UcxCommunicator::expectFarewell(JobRank rank) {
  Peer& peer = peers_[rank.index()];
  peer.gaveUp = &gaveUp_;
  peer.itsFarewell = {.sending = false, .peer = rank, .tag = kFarewellTag, .bytes = 1};
  ucp_request_param_t parameters = parametersOf(peer.itsFarewell, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
  parameters.cb.recv = &noteFarewell;
  parameters.user_data = &peer;
  take(peer.itsFarewell, ucp_tag_recv_nbx(ucx_.worker.get(), &peer.farewell, 1, tagOf(rank, kFarewellTag), kAllBits, &parameters));
}

/// Says farewell, gets the last messages out, closes the endpoints; all for a short while only, because peers may hang.
void UcxCommunicator::leave(Farewell farewell) noexcept {
  if (own_ != Farewell::None) return;
  own_ = farewell;
  for (auto& [request, operation] : operations_) cancel(operation);  // first: their buffers may be gone
  for (Peer& peer : peers_) {
    cancel(peer.itsFarewell);
    peer.ourFarewell = {.sending = true, .peer = JobRank(static_cast<int>(&peer - peers_.data())), .tag = kFarewellTag, .bytes = 1};
    const bool hears = peer.endpoint != nullptr && !peer.lost && peer.ourFarewell.peer != rank_;
    if (hears) startSend(peer.ourFarewell, {reinterpret_cast<std::byte*>(&own_), 1});
  }
  ucp_request_param_t parameters = parametersOf(flush_);
  take(flush_, ucp_worker_flush_nbx(ucx_.worker.get(), &parameters));
  runUntil(Clock::now() + (farewell == Farewell::Done ? kLeaving : kGrace), [&] { return flush_.status != UCS_INPROGRESS; });
  for (Peer& peer : peers_) {
    if (peer.endpoint == nullptr) continue;
    parameters = parametersOf(peer.closing, UCP_OP_ATTR_FIELD_FLAGS);
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    take(peer.closing, ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &parameters));
  }
  const auto isClosed = [](const Peer& peer) { return peer.closing.handle == nullptr; };
  runUntil(Clock::now() + kGrace, [&] { return std::ranges::all_of(peers_, isClosed); });
}

void UcxCommunicator::abort() noexcept { leave(Farewell::GaveUp); }

/// With operations that nobody waited for it is a failure that ends this rank.
UcxCommunicator::~UcxCommunicator() { leave(operations_.empty() ? Farewell::Done : Farewell::GaveUp); }

}  // namespace

std::unique_ptr<Communicator> newUcxCommunicator(const Rendezvous& rendezvous, const KeyValueStore& store) {
  return std::make_unique<UcxCommunicator>(rendezvous, store);
}

}  // namespace pw
