#include "backends/messages/ucx/link.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/messages/channel/direct_writes.h"
#include "backends/messages/channel/wire.h"
#include "backends/messages/transport.h"
#include "backends/messages/ucx/worker.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr unsigned kBlockId = 1, kHelloId = 2, kDirectId = 3;

/// [bytes] From here on a block is fetched by its receiver, without copies.
constexpr std::size_t kFetched = 32 << 10;

/// Twice: a rank that got the second hello knows that the peer answered its request to connect.
constexpr std::uint32_t kHellos = 2;
struct Hello {
  std::uint64_t key = 0;
  std::uint32_t from = 0, round = 0;
  SharedMemoryName memory;
};

class UcxLink;

/// A block in flight. UCX holds its address until it is done.
struct BlockInFlight {
  UcxLink* link = nullptr;
  JobRank peer;
  bool sending = false;
  BlockHead head;
  HeldBuffer data;
  std::list<BlockInFlight>::iterator self{};
};

/// A message of a block that is written directly, until UCX has sent it.
struct Note {
  UcxLink* link = nullptr;
  JobRank peer;
  DirectMessage message;
  std::list<Note>::iterator self{};
};

struct LinkPeer {
  UcxLink* link = nullptr;
  JobRank rank;
  ucp_ep_h endpoint = nullptr;
  std::uint32_t hellos = 0;
  bool lost = false;
};

void release(void* handle, ucs_status_t, void* count) {
  --*static_cast<int*>(count);
  ucp_request_free(handle);
}

ucp_request_param_t parametersOfBlock(void* data) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS;
  parameters.user_data = data;
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  return parameters;
}

class UcxLink {
 public:
  UcxLink(const Rendezvous& rendezvous, const KeyValueStore& store, LinkEvents events);
  ~UcxLink() { leave(milliseconds(0)); }
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;

  [[nodiscard]] int fd() const { return ucx_.fd; }
  bool start(JobRank to, const BlockHead& head, HeldBuffer data);
  bool progress() {
    const bool moved = ucp_worker_progress(worker()) != 0;
    return direct_.write() || moved;
  }
  bool arm() { return !direct_.isWriting() && ucp_worker_arm(worker()) == UCS_OK; }
  void drop(JobRank rank);
  void leave(milliseconds longest);

 private:
  [[nodiscard]] ucp_worker_h worker() const { return ucx_.worker.get(); }
  void setHandler(unsigned id, ucp_am_recv_callback_t handler);
  void meet(const Rendezvous& rendezvous);
  bool sayHello(LinkPeer& peer, Hello& hello);
  bool send(JobRank to, const BlockHead& head, HeldBuffer data);
  void post(JobRank to, const DirectMessage& message);
  void sent(Note& note, ucs_status_t status);
  BlockInFlight& open(const BlockInFlight& operation);
  void finished(BlockInFlight& operation, ucs_status_t status);
  ucs_status_t take(const BlockHead& head, void* data, std::size_t bytes, bool isFetched);
  template <class Condition>
  bool runUntil(Clock::time_point end, Condition condition);

  JobRank rank_;
  std::string token_;
  LinkEvents events_;
  // Before UCX's worker, which reports to these until it is destroyed.
  std::vector<LinkPeer> peers_;
  std::vector<Hello> hellos_;
  std::list<BlockInFlight> operations_;
  std::list<Note> notes_;
  DirectWrites direct_;
  int unreleased_ = 0;  ///< requests of endpoints that close, and of hellos
  int flushes_ = 0;
  UcxWorker ucx_;
};

UcxLink::UcxLink(const Rendezvous& rendezvous, const KeyValueStore& store, LinkEvents events)
    : rank_(rendezvous.rank),
      token_(rendezvous.token),
      events_(std::move(events)),
      peers_(static_cast<std::size_t>(rendezvous.size)),
      direct_(
          rank_, peers_.size(), token_, events_, [this](JobRank to, const DirectMessage& message) { post(to, message); },
          [this](JobRank to, const BlockHead& head, HeldBuffer data) { send(to, head, std::move(data)); }),
      ucx_(rendezvous, UCP_FEATURE_AM, UCS_THREAD_MODE_SERIALIZED) {
  setHandler(kBlockId, [](void* link, const void* header, std::size_t headerBytes, void* data, std::size_t bytes,
                          const ucp_am_recv_param_t* parameters) {
    BlockHead head;
    if (headerBytes != sizeof head) return UCS_OK;
    std::memcpy(&head, header, sizeof head);
    return static_cast<UcxLink*>(link)->take(head, data, bytes, (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  });
  setHandler(kHelloId, [](void* link, const void* header, std::size_t headerBytes, void*, std::size_t, const ucp_am_recv_param_t*) {
    auto& self = *static_cast<UcxLink*>(link);
    Hello hello;
    if (headerBytes != sizeof hello) return UCS_OK;
    std::memcpy(&hello, header, sizeof hello);
    const JobRank from(static_cast<int>(hello.from));
    if (hello.from >= self.peers_.size() || hello.key != blockKey(self.token_, from, self.rank_)) return UCS_OK;
    self.peers_[hello.from].hellos = std::max(self.peers_[hello.from].hellos, hello.round);
    self.direct_.meet(from, hello.memory);
    return UCS_OK;
  });
  setHandler(kDirectId, [](void* link, const void* header, std::size_t headerBytes, void*, std::size_t, const ucp_am_recv_param_t*) {
    DirectMessage message;
    if (headerBytes != sizeof message) return UCS_OK;
    std::memcpy(&message, header, sizeof message);
    static_cast<UcxLink*>(link)->direct_.handle(message);
    return UCS_OK;
  });
  const auto addresses = exchangedAddresses(ucx_, "channel", rendezvous, store);
  const auto lost = [](void* lostPeer, ucp_ep_h, ucs_status_t) {
    auto& peer = *static_cast<LinkPeer*>(lostPeer);
    peer.lost = true;
    peer.link->events_.lost(peer.rank, lostSentence(peer.rank));
  };
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    LinkPeer& peer = peers_[r];
    peer.link = this;
    peer.rank = JobRank(static_cast<int>(r));
    if (peer.rank != rank_) peer.endpoint = connectTo(ucx_, peer.rank, addresses[r], lost, &peer);
  }
  meet(rendezvous);
}

void UcxLink::setHandler(unsigned id, ucp_am_recv_callback_t handler) {
  ucp_am_handler_param_t parameters{};
  parameters.field_mask =
      UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  parameters.id = id;
  parameters.cb = handler;
  parameters.arg = this;
  parameters.flags = UCP_AM_FLAG_WHOLE_MSG;
  requireUcx(ucp_worker_set_am_recv_handler(worker(), &parameters), "take active messages");
}

/// Runs the transport until the condition holds; false when the time is over first.
template <class Condition>
bool UcxLink::runUntil(Clock::time_point end, Condition condition) {
  constexpr milliseconds kLongest{50};
  while (!condition()) {
    if (progress()) continue;
    const auto now = Clock::now();
    if (now >= end) return false;
    if (!arm()) continue;
    const auto longest = std::chrono::ceil<milliseconds>(std::min<Clock::duration>(end - now, kLongest));
    pollfd fd{ucx_.fd, POLLIN, 0};
    ::poll(&fd, 1, static_cast<int>(longest.count()));
  }
  return true;
}

void UcxLink::meet(const Rendezvous& rendezvous) {
  const auto end = Clock::now() + rendezvous.deadline;
  const auto hasFailed = [&] { return rendezvous.jobFailed != nullptr && *rendezvous.jobFailed; };
  hellos_.resize(peers_.size() * kHellos);
  for (std::uint32_t round = 1; round <= kHellos; ++round) {
    for (LinkPeer& peer : peers_) {
      if (peer.rank == rank_) continue;
      Hello& hello = hellos_[peer.rank.index() * kHellos + round - 1];
      hello = {.key = blockKey(token_, rank_, peer.rank),
               .from = static_cast<std::uint32_t>(rank_.value),
               .round = round,
               .memory = direct_.name()};
      if (!sayHello(peer, hello)) throw Error(lostSentence(peer.rank));
    }
    const auto isAbsent = [&](const LinkPeer& peer) { return peer.rank != rank_ && peer.hellos < round; };
    const auto isLost = [](const LinkPeer& peer) { return peer.lost; };
    runUntil(end, [&] { return hasFailed() || std::ranges::any_of(peers_, isLost) || std::ranges::none_of(peers_, isAbsent); });
    if (hasFailed()) throw Error(failedSentence());
    if (const auto lost = std::ranges::find_if(peers_, isLost); lost != peers_.end()) throw Error(lostSentence(lost->rank));
    if (const auto absent = std::ranges::find_if(peers_, isAbsent); absent != peers_.end())
      throw Error(lateSentence(false, absent->rank, rendezvous.deadline));
  }
}

bool UcxLink::sayHello(LinkPeer& peer, Hello& hello) {
  ucp_request_param_t parameters = parametersOfBlock(&unreleased_);
  parameters.cb.send = &release;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  const ucs_status_ptr_t started = ucp_am_send_nbx(peer.endpoint, kHelloId, &hello, sizeof hello, nullptr, 0, &parameters);
  if (UCS_PTR_IS_PTR(started)) ++unreleased_;
  return !UCS_PTR_IS_ERR(started);
}

BlockInFlight& UcxLink::open(const BlockInFlight& operation) {
  operations_.push_back(operation);
  operations_.back().self = std::prev(operations_.end());
  return operations_.back();
}

bool UcxLink::start(JobRank to, const BlockHead& head, HeldBuffer data) {
  if (peers_[to.index()].endpoint == nullptr) return true;
  if (!direct_.takes(to, data.buffer.bytes)) return send(to, head, std::move(data));
  direct_.start(to, head, std::move(data));
  return false;
}

void UcxLink::post(JobRank to, const DirectMessage& message) {
  const LinkPeer& peer = peers_[to.index()];
  if (peer.endpoint == nullptr) return;
  notes_.push_back({.link = this, .peer = to, .message = message});
  Note& note = notes_.back();
  note.self = std::prev(notes_.end());
  ucp_request_param_t parameters = parametersOfBlock(&note);
  parameters.cb.send = [](void* handle, ucs_status_t status, void* sent) {
    ucp_request_free(handle);
    static_cast<Note*>(sent)->link->sent(*static_cast<Note*>(sent), status);
  };
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  const ucs_status_ptr_t started = ucp_am_send_nbx(peer.endpoint, kDirectId, &note.message, sizeof note.message, nullptr, 0, &parameters);
  if (!UCS_PTR_IS_PTR(started)) sent(note, UCS_PTR_RAW_STATUS(started));
}

void UcxLink::sent(Note& note, ucs_status_t status) {
  if (status != UCS_OK) events_.lost(note.peer, lostSentence(note.peer));
  notes_.erase(note.self);
}

bool UcxLink::send(JobRank to, const BlockHead& head, HeldBuffer data) {
  const LinkPeer& peer = peers_[to.index()];
  if (peer.endpoint == nullptr) return true;
  BlockInFlight& operation = open({.link = this, .peer = to, .sending = true, .head = head, .data = std::move(data)});
  ucp_request_param_t parameters = parametersOfBlock(&operation);
  parameters.cb.send = [](void* handle, ucs_status_t status, void* done) {
    ucp_request_free(handle);
    static_cast<BlockInFlight*>(done)->link->finished(*static_cast<BlockInFlight*>(done), status);
  };
  const Buffer buffer = operation.data.buffer;
  parameters.flags = buffer.bytes < kFetched ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
  const ucs_status_ptr_t started =
      ucp_am_send_nbx(peer.endpoint, kBlockId, &operation.head, sizeof operation.head, buffer.data, buffer.bytes, &parameters);
  if (UCS_PTR_IS_PTR(started)) return false;
  finished(operation, UCS_PTR_RAW_STATUS(started));
  return UCS_PTR_RAW_STATUS(started) == UCS_OK;
}

void UcxLink::finished(BlockInFlight& operation, ucs_status_t status) {
  if (status == UCS_OK && !operation.sending) events_.placed(operation.head, std::move(operation.data));
  if (status != UCS_OK) events_.lost(operation.peer, lostSentence(operation.peer));
  operations_.erase(operation.self);
}

/// A block came; UCX still has large data.
ucs_status_t UcxLink::take(const BlockHead& head, void* data, std::size_t bytes, bool isFetched) {
  if (!isFetched) {
    events_.arrived(head, {static_cast<const std::byte*>(data), bytes});
    return UCS_OK;
  }
  const std::optional<HeldBuffer> announced = direct_.announced(head, bytes);
  HeldBuffer memory = announced ? *announced : events_.place(head, bytes);
  if (memory.owner == nullptr) return UCS_ERR_REJECTED;
  BlockInFlight& operation =
      open({.link = this, .peer = JobRank(static_cast<int>(head.from)), .sending = false, .head = head, .data = std::move(memory)});
  ucp_request_param_t parameters = parametersOfBlock(&operation);
  parameters.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  parameters.cb.recv_am = [](void* handle, ucs_status_t status, std::size_t, void* done) {
    ucp_request_free(handle);
    static_cast<BlockInFlight*>(done)->link->finished(*static_cast<BlockInFlight*>(done), status);
  };
  const ucs_status_ptr_t started = ucp_am_recv_data_nbx(worker(), data, operation.data.buffer.data, bytes, &parameters);
  if (!UCS_PTR_IS_PTR(started)) finished(operation, UCS_PTR_RAW_STATUS(started));
  return UCS_OK;
}

void UcxLink::drop(JobRank rank) {
  direct_.drop(rank);
  LinkPeer& peer = peers_[rank.index()];
  if (peer.endpoint == nullptr) return;
  ucp_request_param_t parameters = parametersOfBlock(&unreleased_);
  parameters.cb.send = &release;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  if (UCS_PTR_IS_PTR(ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &parameters))) ++unreleased_;
}

/// Peers may hang: all for a short while only.
void UcxLink::leave(milliseconds longest) {
  constexpr milliseconds kClosing{200};
  if (std::ranges::none_of(peers_, [](const LinkPeer& peer) { return peer.endpoint != nullptr; }) && unreleased_ == 0) return;
  if (longest.count() > 0) {
    ucp_request_param_t parameters = parametersOfBlock(&flushes_);
    parameters.cb.send = &release;
    parameters.flags = 0;
    if (UCS_PTR_IS_PTR(ucp_worker_flush_nbx(worker(), &parameters))) ++flushes_;
    runUntil(Clock::now() + longest, [&] { return flushes_ == 0; });
  }
  for (const LinkPeer& peer : peers_) drop(peer.rank);
  runUntil(Clock::now() + kClosing, [&] { return unreleased_ == 0; });
}

}  // namespace

MessageLink newUcxLink(const Rendezvous& rendezvous, const KeyValueStore& store, LinkEvents events) {
  return linkOf(std::make_shared<UcxLink>(rendezvous, store, std::move(events)));
}

}  // namespace pw
