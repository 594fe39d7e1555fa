#include "backends/torch/gloo_link.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backends/messages/channel/waker.h"
#include "backends/messages/channel/wire.h"
#include "backends/messages/transport.h"
#include "backends/torch/gloo_group.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using GlooWork = c10::intrusive_ptr<c10d::Work>;

constexpr int kHeadTag = 1, kDataTag = 2;
/// The channel finds silent ranks; a deadline of Gloo's would end the connections to all.
constexpr milliseconds kForever = std::chrono::hours(24 * 365);

/// What goes before the data of each block.
struct Envelope {
  BlockHead head;
  std::uint64_t bytes = 0;  ///< of the data
};

/// Waits for operations, one after the other, and says what became of each: nothing, or a sentence of Gloo's.
class Waiter {
 public:
  using OnDone = std::function<void(std::optional<std::string> failure)>;
  explicit Waiter(OnDone onDone) : onDone_(std::move(onDone)), thread_([this] { run(); }) {}
  ~Waiter() {
    stop();
    thread_.join();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void add(GlooWork work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
    changed_.notify_one();
  }

  /// Waits for nothing any more; the operations that nobody waited for stay as they are.
  void stop() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    changed_.notify_one();
    for (const GlooWork& work : works_) work->abort();
  }

 private:
  void run() {
    for (;;) {
      GlooWork work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || !works_.empty(); });
        if (stopped_) return;
        work = works_.front();
      }
      std::optional<std::string> failure;
      try {
        work->wait(kForever);
      } catch (const std::exception& error) {  // a thread's entry: the link says it
        failure = shortened(error.what());
      }
      {
        const std::lock_guard lock(mutex_);
        if (stopped_) return;
        works_.pop_front();
      }
      onDone_(std::move(failure));
    }
  }

  const OnDone onDone_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GlooWork> works_;  ///< the first is waited for
  bool stopped_ = false;
  std::thread thread_;
};

/// A block on its way to a rank. Gloo reads its memory until it is done.
struct Outgoing {
  std::unique_ptr<Envelope> envelope;
  HeldBuffer data;
  int operations = 1;  ///< that are not done
};

struct Peer {
  std::deque<Outgoing> outgoing;  ///< in order
  // What comes next from it.
  Envelope envelope;
  HeldBuffer data;
  bool readsData = false, isPlaced = false;
  bool ended = false;
  std::unique_ptr<Waiter> sends, receives;
};

std::vector<at::Tensor> viewOf(const void* data, std::size_t bytes) {
  return {at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte))};
}

class GlooLink {
 public:
  GlooLink(const Rendezvous& rendezvous, const KeyValueStore& store, LinkEvents events);
  ~GlooLink() { leave(milliseconds(0)); }
  GlooLink(const GlooLink&) = delete;
  GlooLink& operator=(const GlooLink&) = delete;

  [[nodiscard]] int fd() const { return waker_.fd(); }
  bool start(JobRank to, const BlockHead& head, HeldBuffer data);
  bool progress();
  bool arm();
  void drop(JobRank rank);
  void leave(milliseconds longest);

 private:
  struct Done {
    std::size_t peer = 0;
    bool sending = false;
    std::optional<std::string> failure;
  };
  [[nodiscard]] std::unique_ptr<Waiter> newWaiter(std::size_t peer, bool sending);
  void send(std::size_t peer, int tag, const void* data, std::size_t bytes);
  void receive(std::size_t peer, int tag, void* data, std::size_t bytes);
  void take(std::size_t peer);
  void takeData(std::size_t peer);
  void lose(std::size_t peer, const std::string& failure);

  JobRank rank_;
  LinkEvents events_;
  Waker waker_;
  std::mutex doneMutex_;
  std::vector<Done> done_;
  std::deque<Peer> peers_;  // their memory outlives Gloo's connections
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

GlooLink::GlooLink(const Rendezvous& rendezvous, const KeyValueStore& store, LinkEvents events)
    : rank_(rendezvous.rank), events_(std::move(events)), group_(newGlooGroup("channel", rendezvous, store)) {
  for (std::size_t r = 0; r < static_cast<std::size_t>(rendezvous.size); ++r) {
    Peer& peer = peers_.emplace_back();
    if (r == rank_.index()) continue;
    peer.sends = newWaiter(r, true);
    peer.receives = newWaiter(r, false);
    receive(r, kHeadTag, &peer.envelope, sizeof peer.envelope);
  }
}

std::unique_ptr<Waiter> GlooLink::newWaiter(std::size_t peer, bool sending) {
  return std::make_unique<Waiter>([this, peer, sending](std::optional<std::string> failure) {
    const std::lock_guard lock(doneMutex_);
    done_.push_back({peer, sending, std::move(failure)});
    waker_.wake();
  });
}

void GlooLink::lose(std::size_t peer, const std::string& failure) {
  if (std::exchange(peers_[peer].ended, true)) return;
  const JobRank rank(static_cast<int>(peer));
  events_.lost(rank, saysLost(failure) ? lostSentence(rank) : "messages with rank " + std::to_string(peer) + " failed (" + failure + ")");
}

void GlooLink::send(std::size_t peer, int tag, const void* data, std::size_t bytes) {
  std::vector<at::Tensor> view = viewOf(data, bytes);
  peers_[peer].sends->add(group_->send(view, static_cast<int>(peer), tag));
}

void GlooLink::receive(std::size_t peer, int tag, void* data, std::size_t bytes) {
  try {
    std::vector<at::Tensor> view = viewOf(data, bytes);
    peers_[peer].receives->add(group_->recv(view, static_cast<int>(peer), tag));
  } catch (const std::exception& error) {
    lose(peer, shortened(error.what()));
  }
}

bool GlooLink::start(JobRank to, const BlockHead& head, HeldBuffer data) {
  Peer& peer = peers_[to.index()];
  if (peer.ended) return true;
  const std::size_t bytes = data.buffer.bytes;
  Outgoing& block = peer.outgoing.emplace_back();
  block.envelope = std::make_unique<Envelope>(Envelope{head, bytes});
  block.data = std::move(data);
  block.operations = bytes > 0 ? 2 : 1;
  try {
    send(to.index(), kHeadTag, block.envelope.get(), sizeof *block.envelope);
    if (bytes > 0) send(to.index(), kDataTag, block.data.buffer.data, bytes);
  } catch (const std::exception& error) {
    lose(to.index(), shortened(error.what()));
    return false;
  }
  return true;
}

bool GlooLink::progress() {
  std::vector<Done> done;
  {
    const std::lock_guard lock(doneMutex_);
    done.swap(done_);
  }
  for (const Done& operation : done) {
    Peer& peer = peers_[operation.peer];
    if (peer.ended) continue;
    if (operation.failure) {
      lose(operation.peer, *operation.failure);
    } else if (!operation.sending) {
      peer.readsData ? takeData(operation.peer) : take(operation.peer);
    } else if (--peer.outgoing.front().operations == 0) {
      peer.outgoing.pop_front();
    }
  }
  return !done.empty();
}

/// An envelope came.
void GlooLink::take(std::size_t rank) {
  Peer& peer = peers_[rank];
  const std::uint64_t bytes = peer.envelope.bytes;
  if (peer.envelope.head.from != rank) return lose(rank, "it sent a block in the name of another");
  if (bytes == 0) {
    events_.arrived(peer.envelope.head, {});
    return receive(rank, kHeadTag, &peer.envelope, sizeof peer.envelope);
  }
  peer.isPlaced = bytes >= kInlinePart;
  if (peer.isPlaced) {
    peer.data = events_.place(peer.envelope.head, bytes);
    if (peer.data.owner == nullptr) return;  // nothing more is read from it: what follows cannot be told apart
  } else {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    peer.data = {{memory->data(), bytes}, memory};
  }
  peer.readsData = true;
  receive(rank, kDataTag, peer.data.buffer.data, bytes);
}

/// The data after an envelope came.
void GlooLink::takeData(std::size_t rank) {
  Peer& peer = peers_[rank];
  peer.readsData = false;
  HeldBuffer data = std::exchange(peer.data, {});
  if (peer.isPlaced) {
    events_.placed(peer.envelope.head, std::move(data));
  } else {
    events_.arrived(peer.envelope.head, {data.buffer.data, data.buffer.bytes});
  }
  receive(rank, kHeadTag, &peer.envelope, sizeof peer.envelope);
}

bool GlooLink::arm() {
  waker_.clear();
  const std::lock_guard lock(doneMutex_);
  return done_.empty();
}

/// Gloo ends connections only all at once: what is in flight keeps its memory until then.
void GlooLink::drop(JobRank rank) {
  Peer& peer = peers_[rank.index()];
  peer.ended = true;
  if (peer.sends) peer.sends->stop();
  if (peer.receives) peer.receives->stop();
}

void GlooLink::leave(milliseconds longest) {
  if (!group_) return;
  const auto isSent = [](const Peer& peer) { return peer.ended || peer.outgoing.empty(); };
  for (const auto end = Clock::now() + longest; !std::ranges::all_of(peers_, isSent) && Clock::now() < end;) {
    if (!progress()) std::this_thread::yield();
  }
  for (Peer& peer : peers_) {
    peer.ended = true;
    peer.sends.reset();
    peer.receives.reset();
  }
  group_.reset();  // closes the connections: peers notice
}

}  // namespace

MessageLink connectGlooLink(const Rendezvous& rendezvous, const KeyValueStore& store, LinkEvents events) {
  return linkOf(std::make_shared<GlooLink>(rendezvous, store, std::move(events)));
}

}  // namespace pw
