#include "backends/messages/channel/message_channel.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/messages/channel/waker.h"
#include "backends/messages/channel/wire.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How long the thread polls before it sleeps: see backends/messages/ucx/communicator.cpp.
constexpr std::chrono::microseconds kSpin{50};
/// When a yield took so long, others compute on this core: for a while the thread sleeps instead, because a thread that is woken gets its
/// core at once, and one that yielded when the others' time is over (4 ms).
constexpr std::chrono::microseconds kLongYield{200};
constexpr milliseconds kBusy{100};
/// A rank that has nothing to send says after so long what it handled.
constexpr milliseconds kTellTaken{5};
/// How often times are looked at while messages move.
constexpr milliseconds kLookAtTimes{1};
/// A leaving rank gives the last blocks so long.
constexpr milliseconds kLeaving{1000}, kLeavingAtOnce{100};

/// Another rank, as the channel knows it.
struct Peer {
  OutgoingMessages outgoing;
  IncomingMessages incoming;
  std::uint64_t keyThere = 0, keyHere = 0;  ///< of blocks to it, and from it
  Clock::time_point heard{}, said{};        ///< the last block
  std::uint64_t taken = 0, told = 0;        ///< messages of it that were handled, and what it was told
  std::size_t untoldBytes = 0;
  Clock::time_point takenAt{};  ///< the first that it was not told
  bool lost = false;
};

struct Arrival {
  JobRank from;
  ChannelMessage message;
};
struct Loss {
  JobRank rank;
  std::string why;
  bool reported = true;
};

std::size_t bytesOf(const ChannelMessage& message) {
  std::size_t bytes = message.head.size();
  for (const HeldBuffer& part : message.parts) bytes += part.buffer.bytes;
  return bytes;
}

}  // namespace

/// `link_` and what belongs to it is used under `mutex_`, by the channel's thread and, while that sleeps, by senders; messages wait in
/// `fresh_` under a mutex of its own, so that a sender never waits for the transport.
class MessageChannel::Engine {
 public:
  Engine(const LinkMaker& maker, OnMessage onMessage, OnLost onLost, const ChannelOptions& options);
  void send(JobRank to, ChannelMessage message);
  bool close(milliseconds deadline, bool politely);
  [[nodiscard]] JobRank rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(peers_.size()); }

 private:
  LinkEvents events();
  void run();
  void loseAll(const std::string& why);
  bool step();
  bool startAll();
  bool startNext(JobRank rank, Peer& peer);
  bool startBlock(JobRank rank, BlockKind kind, std::uint64_t number, std::uint64_t part, HeldBuffer data);
  void deliver();
  void noteTaken(JobRank from, std::size_t bytes, Clock::time_point now);
  Clock::time_point lookAtTimes(Clock::time_point now);
  void sleep();
  void leave();
  [[nodiscard]] Peer* senderOf(const BlockHead& head);
  template <class Work>
  void take(const BlockHead& head, Work work);
  void lose(JobRank rank, std::string why, bool reported = true);
  [[nodiscard]] bool isDone();

  const JobRank rank_;
  const ChannelOptions options_;
  const OnMessage onMessage_;
  const OnLost onLost_;
  const std::shared_ptr<SharedMemory> shared_;
  const BlockMemory memory_;
  const Waker waker_;

  std::mutex freshMutex_;
  std::vector<Arrival> fresh_;  ///< messages to send; `from` is their receiver
  bool accepts_ = true;

  std::mutex mutex_;
  std::vector<Peer> peers_;
  std::vector<Arrival> inbox_;
  std::vector<Loss> losses_;
  std::vector<JobRank> drops_;  ///< lost ranks that the link does not know of yet
  std::vector<ChannelMessage> ready_;
  bool closing_ = false, politely_ = false, handledAll_ = false;
  Clock::time_point closeBy_, nextLook_, lastLook_;
  MessageLink link_;

  std::atomic<bool> asleep_ = false;
  std::mutex closeMutex_;
  std::thread thread_;
};

MessageChannel::Engine::Engine(const LinkMaker& maker, OnMessage onMessage, OnLost onLost, const ChannelOptions& options)
    : rank_(maker.rank),
      options_(options),
      onMessage_(std::move(onMessage)),
      onLost_(std::move(onLost)),
      shared_(maker.writesToPeers && maker.size > 1 ? SharedMemory::make() : nullptr),
      memory_(options.keptMemory, shared_) {
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < maker.size; ++r) {
    peers_.push_back({.outgoing = OutgoingMessages(options_.window),
                      .incoming = IncomingMessages(options_.window, memory_),
                      .keyThere = blockKey(maker.token, rank_, JobRank(r)),
                      .keyHere = blockKey(maker.token, JobRank(r), rank_)});
  }
  link_ = maker.connect(events());
  lastLook_ = Clock::now();
  for (Peer& peer : peers_) peer.heard = peer.said = lastLook_;
  thread_ = std::thread([this] { run(); });
}

void MessageChannel::Engine::send(JobRank to, ChannelMessage message) {
  if (to.value < 0 || to.value >= size())
    throw UsageError(fmt::format("a message is for rank {}, but the job has ranks 0 to {}", to.value, size() - 1));
  if (const std::size_t bytes = bytesOf(message) + prefixBytes(message.parts.size()); bytes > options_.window.largestMessage)
    throw UsageError(
        fmt::format("a message of {} bytes is above the limit of {}; send it in pieces", bytes, options_.window.largestMessage));
  {
    const std::lock_guard lock(freshMutex_);
    if (!accepts_) return;
    fresh_.push_back({to, std::move(message)});
  }
  if (!asleep_) return;
  // Starting it here saves waking a thread only to start it.
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock && !startAll()) return;
  waker_.wake();
}

/// Starts what may go. Returns whether the channel's thread must look at something.
bool MessageChannel::Engine::startAll() {
  std::vector<Arrival> fresh;
  {
    const std::lock_guard lock(freshMutex_);
    fresh.swap(fresh_);
  }
  bool needsThread = false;
  for (Arrival& message : fresh) {
    Peer& peer = peers_[message.from.index()];
    if (message.from == rank_) {
      inbox_.push_back({rank_, copyOf(message.message)});
    } else if (!peer.lost) {
      peer.outgoing.push(std::move(message.message));
    }
  }
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    while (peers_[r].outgoing.mayStart()) needsThread |= !startNext(JobRank(static_cast<int>(r)), peers_[r]);
  }
  return needsThread || !inbox_.empty() || !losses_.empty();
}

/// Returns whether it is sent already.
bool MessageChannel::Engine::startNext(JobRank rank, Peer& peer) {
  PackedMessage message = peer.outgoing.start();
  const std::uint64_t number = peer.outgoing.number();
  bool isSent = startBlock(rank, BlockKind::Message, number, 0, std::move(message.first));
  for (PackedMessage::Part& part : message.large) isSent &= startBlock(rank, BlockKind::Part, number, part.index, std::move(part.data));
  return isSent;
}

bool MessageChannel::Engine::startBlock(JobRank rank, BlockKind kind, std::uint64_t number, std::uint64_t part, HeldBuffer data) {
  Peer& peer = peers_[rank.index()];
  peer.said = Clock::now();
  peer.told = peer.taken;
  peer.untoldBytes = 0;
  const BlockHead head{.key = peer.keyThere,
                       .from = static_cast<std::uint32_t>(rank_.value),
                       .kind = kind,
                       .number = number,
                       .part = part,
                       .taken = peer.taken};
  return link_.start(rank, head, std::move(data));
}

/// The rank that wrote a block; null if none of this job did, or it is lost.
Peer* MessageChannel::Engine::senderOf(const BlockHead& head) {
  if (head.from >= peers_.size() || JobRank(static_cast<int>(head.from)) == rank_) return nullptr;
  Peer& peer = peers_[head.from];
  return peer.lost || head.key != peer.keyHere ? nullptr : &peer;
}

/// Does it with the sender of a block, which is lost where something is wrong with the block.
template <class Work>
void MessageChannel::Engine::take(const BlockHead& head, Work work) {
  Peer* peer = senderOf(head);
  if (peer == nullptr) return;
  const JobRank from(static_cast<int>(head.from));
  peer->heard = Clock::now();
  try {
    if (!peer->outgoing.noteTaken(head.taken)) throw Error(fmt::format("it took {} messages, more than it was sent", head.taken));
    work(*peer);
    peer->incoming.takeReady(ready_);
  } catch (const std::exception& error) {  // what others send must not end this rank
    lose(from, fmt::format("the messages of rank {} make no sense: {}; do all ranks run the same version?", from.value, error.what()));
  }
  for (ChannelMessage& message : ready_) inbox_.push_back({from, std::move(message)});
  ready_.clear();
}

LinkEvents MessageChannel::Engine::events() {
  LinkEvents events;
  events.arrived = [this](const BlockHead& head, std::span<const std::byte> data) {
    take(head, [&](Peer& peer) {
      const JobRank from(static_cast<int>(head.from));
      if (head.kind == BlockKind::Bye) return lose(from, closedSentence(from), !closing_);
      if (head.kind != BlockKind::Beat) peer.incoming.arrived(head, data);
    });
  };
  events.place = [this](const BlockHead& head, std::size_t bytes) {
    HeldBuffer memory;
    take(head, [&](Peer& peer) { memory = peer.incoming.place(head, bytes); });
    return memory;
  };
  events.placed = [this](const BlockHead& head, HeldBuffer data) {
    take(head, [&](Peer& peer) { peer.incoming.placed(head, std::move(data)); });
  };
  events.lost = [this](JobRank rank, std::string why) { lose(rank, std::move(why)); };
  events.shared = shared_;
  return events;
}

void MessageChannel::Engine::lose(JobRank rank, std::string why, bool reported) {
  Peer& peer = peers_[rank.index()];
  if (std::exchange(peer.lost, true)) return;
  peer.outgoing.clear();
  peer.incoming.clear();
  losses_.push_back({rank, std::move(why), reported});
  drops_.push_back(rank);
}

/// Moves what can move; returns whether anything did.
bool MessageChannel::Engine::step() {
  const std::lock_guard lock(mutex_);
  for (const JobRank rank : std::exchange(drops_, {})) link_.drop(rank);
  bool moved = startAll();
  moved |= link_.progress();
  const auto now = Clock::now();
  if (now >= nextLook_) nextLook_ = std::min(lookAtTimes(now), now + kLookAtTimes);
  return moved || !inbox_.empty() || !losses_.empty();
}

/// Calls the handlers, outside the lock: they may send.
void MessageChannel::Engine::deliver() {
  std::vector<Arrival> messages;
  std::vector<Loss> losses;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(inbox_);
    losses.swap(losses_);
  }
  for (Arrival& message : messages) {
    const std::size_t bytes = bytesOf(message.message);
    onMessage_(message.from, std::move(message.message));
    if (message.from != rank_) noteTaken(message.from, bytes, Clock::now());
  }
  for (Loss& loss : losses) {
    if (loss.reported) onLost_(loss.rank, std::move(loss.why));
  }
}

void MessageChannel::Engine::noteTaken(JobRank from, std::size_t bytes, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[from.index()];
  if (peer.taken == peer.told) peer.takenAt = now;
  ++peer.taken;
  peer.untoldBytes += bytes;
  const bool isMuch = peer.taken - peer.told >= options_.window.messages / 4 || peer.untoldBytes >= options_.window.bytes / 4;
  if (isMuch && !peer.lost) startBlock(from, BlockKind::Beat, 0, 0, {});
}

/// Says that this rank lives, and what it took, where it is time; finds ranks that are silent. Returns when to look again.
Clock::time_point MessageChannel::Engine::lookAtTimes(Clock::time_point now) {
  const auto beat = options_.lostAfter / 4;
  auto next = now + beat;
  // This thread itself did not run for long (a stopped process, a handler, a busy machine): what came meanwhile is still to be read.
  const auto latest = now - std::exchange(lastLook_, now) > 2 * beat ? now - 2 * beat : Clock::time_point{};
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    const JobRank rank(static_cast<int>(r));
    if (rank == rank_ || peer.lost) continue;
    peer.heard = std::max(peer.heard, latest);
    if (now - peer.heard >= options_.lostAfter) {
      lose(rank, silentSentence(rank, options_.lostAfter));
      continue;
    }
    const auto due = [&] { return peer.taken != peer.told ? std::min(peer.takenAt + kTellTaken, peer.said + beat) : peer.said + beat; };
    if (now >= due()) startBlock(rank, BlockKind::Beat, 0, 0, {});
    next = std::min({next, due(), peer.heard + options_.lostAfter});
  }
  return next;
}

/// Until something happens, or it is time for something.
void MessageChannel::Engine::sleep() {
  asleep_ = true;  // from here on senders look after their messages
  Clock::time_point until;
  bool mayWait = false;
  {
    const std::scoped_lock lock(mutex_, freshMutex_);
    until = lookAtTimes(Clock::now());
    if (closing_) until = std::min(until, closeBy_);
    mayWait = fresh_.empty() && inbox_.empty() && losses_.empty() && link_.arm();
  }
  if (mayWait) {
    const auto longest = std::chrono::ceil<milliseconds>(until - Clock::now());
    std::array<pollfd, 2> fds{pollfd{link_.eventFd, POLLIN, 0}, pollfd{waker_.fd(), POLLIN, 0}};
    ::poll(fds.data(), fds.size(), std::max(0, static_cast<int>(longest.count())));
    if (fds[1].revents != 0) waker_.clear();
  }
  asleep_ = false;
}

/// Whether the channel may end.
bool MessageChannel::Engine::isDone() {
  const std::scoped_lock lock(mutex_, freshMutex_);
  if (!closing_) return false;
  handledAll_ = fresh_.empty() && inbox_.empty() && std::ranges::all_of(peers_, [](const Peer& peer) { return peer.outgoing.isDone(); });
  return !politely_ || handledAll_ || Clock::now() >= closeBy_;
}

void MessageChannel::Engine::run() {
  Clock::time_point sleepAt, busyUntil;
  while (!isDone()) {
    try {
      const bool moved = step();
      if (moved) deliver();
      const auto now = Clock::now();
      if (moved) {
        sleepAt = now + kSpin;
      } else if (now < sleepAt && now >= busyUntil) {
        ::sched_yield();
        if (Clock::now() - now > kLongYield) busyUntil = now + kBusy;
      } else {
        sleep();
        sleepAt = Clock::now() + kSpin;
      }
    } catch (const std::exception& error) {  // no memory: what was being moved is lost, so no connection is whole
      loseAll(fmt::format("this rank's messages cannot be moved: {}", error.what()));
      std::this_thread::sleep_for(kTellTaken);
    }
  }
  leave();
}

void MessageChannel::Engine::loseAll(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (JobRank(static_cast<int>(r)) != rank_) lose(JobRank(static_cast<int>(r)), why);
  }
}

void MessageChannel::Engine::leave() {
  const std::lock_guard lock(mutex_);
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const JobRank rank(static_cast<int>(r));
    if (rank != rank_ && !peers_[r].lost) startBlock(rank, BlockKind::Bye, 0, 0, {});
  }
  link_.leave(politely_ ? kLeaving : kLeavingAtOnce);
}

bool MessageChannel::Engine::close(milliseconds deadline, bool politely) {
  const std::lock_guard closing(closeMutex_);
  assert(thread_.get_id() != std::this_thread::get_id());
  if (!thread_.joinable()) return handledAll_;
  {
    const std::scoped_lock lock(mutex_, freshMutex_);
    accepts_ = false;
    closing_ = true;
    politely_ = politely;
    closeBy_ = Clock::now() + deadline;
  }
  waker_.wake();
  thread_.join();
  return handledAll_;
}

MessageChannel::MessageChannel(const LinkMaker& link, OnMessage onMessage, OnLost onLost, const ChannelOptions& options)
    : engine_(std::make_unique<Engine>(link, std::move(onMessage), std::move(onLost), options)) {}

MessageChannel::~MessageChannel() { engine_->close(milliseconds(0), false); }

JobRank MessageChannel::rank() const { return engine_->rank(); }

int MessageChannel::size() const { return engine_->size(); }

void MessageChannel::send(JobRank to, ChannelMessage message) { engine_->send(to, std::move(message)); }

bool MessageChannel::close(milliseconds deadline) { return engine_->close(deadline, true); }

}  // namespace pw
