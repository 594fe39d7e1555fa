#include "backends/cuda_nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backends/cuda_device.h"
#include "backends/transport.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

/// A link's unique id comes by this tag: from the sender of its messages to their receiver.
constexpr std::uint32_t kIdTag = 0x7FFF4000;

/// How long the peers of a link are waited for at its end: all its messages are done by then.
constexpr std::chrono::seconds kLeaving{5};

/// How often a link that waits for NCCL is looked at when this rank does something else.
constexpr std::chrono::microseconds kLook{20};

/// In a link's communicator.
constexpr int kSender = 0, kReceiver = 1;

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(std::string("CUDA could not ") + what + " (" + cudaGetErrorString(result) + "); see dmesg, and start the job again");
}

/// What a link is waiting for before it can begin the next operation.
enum class State : std::uint8_t {
  Id,          ///< the sender's message with the unique id
  Connection,  ///< NCCL, to connect
  Nothing,
  Start,       ///< NCCL, to put the first operation of `queued` onto the stream
};

/// One direction between this rank and another.
struct Link {
  Rank peer;
  bool sending = false;
  State waits = State::Id;
  ncclUniqueId id{};
  std::optional<Communicator::Ticket> idTicket;  ///< while the message with the id is under way
  std::string name;                              ///< NCCL's own messages show it
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  std::uint64_t operations = 0;          ///< so far
  std::deque<std::uint64_t> queued;      ///< not on the stream yet
  std::deque<std::uint64_t> unfinished;  ///< not seen to be done, in their order
};

struct Operation {
  Link* link = nullptr;
  Buffer buffer;
  std::uint64_t position = 0;   ///< in its link's order, from 1
  cudaEvent_t ready = nullptr;  ///< of a send: what compute must have done
  cudaEvent_t begin = nullptr, end = nullptr;
  bool onStream = false, done = false;
};

/// Used by one thread. One of its own takes what waits for NCCL further when that thread does not come by, because it waits for its GPU: which may
/// wait for a peer that waits for this very message.
class NcclLinks {
 public:
  NcclLinks(Communicator& host, std::chrono::milliseconds deadline, cudaStream_t compute, std::function<Ns(void*)> timeOf)
      : host_(host), deadline_(deadline), compute_(compute), timeOf_(std::move(timeOf)) {
    check(cudaGetDevice(&device_), "name the GPU");
    mover_ = std::jthread([this](const std::stop_token& stop) { moveUntil(stop); });
  }
  ~NcclLinks();
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;

  std::uint64_t begin(Rank peer, bool sending, Buffer buffer);
  bool isDone(std::uint64_t id);
  void order(std::uint64_t id);
  std::pair<Ns, Ns> times(std::uint64_t id);
  void forget();
  void abort();

 private:
  cudaEvent_t takeEvent();
  void giveBack(const Operation& operation);
  Link& open(Rank peer, bool sending);
  void connect(Link& link);
  void start(Link& link);
  void finishStart(Link& link);
  void takeId(Link& link);
  void move(Link& link);
  [[nodiscard]] bool isMoving() const;
  void moveUntil(const std::stop_token& stop);
  void advance();
  bool seesDone(Operation& operation);
  void abortAll();
  void close();
  [[nodiscard]] bool inProgress(const Link& link, ncclResult_t result) const;
  void require(const Link& link, ncclResult_t result) const { static_cast<void>(inProgress(link, result)); }
  [[nodiscard]] std::string openOperation(const Link& link) const;
  [[nodiscard]] std::string between(const Link& link) const;

  Communicator& host_;
  std::chrono::milliseconds deadline_;
  cudaStream_t compute_;
  std::function<Ns(void*)> timeOf_;
  int device_ = 0;
  std::mutex mutex_;  ///< of all below
  std::condition_variable_any moving_;
  std::vector<cudaEvent_t> events_;              ///< to be used again
  std::map<std::pair<Rank, bool>, Link> links_;  ///< by peer and whether this rank sends
  std::unordered_map<std::uint64_t, Operation> operations_;
  std::uint64_t next_ = 1;
  std::string failure_;  ///< that the mover found
  bool aborted_ = false;
  std::jthread mover_;
};

std::string NcclLinks::between(const Link& link) const {
  const int own = host_.rank().value, other = link.peer.value;
  return "rank " + std::to_string(link.sending ? own : other) + " and rank " + std::to_string(link.sending ? other : own);
}

/// `; the oldest open operation is send 12 to rank 1, of 4096 bytes`, where there is one.
std::string NcclLinks::openOperation(const Link& link) const {
  if (link.unfinished.empty()) return "";
  const Operation& oldest = operations_.at(link.unfinished.front());
  const std::string what = (link.sending ? "send " : "receive ") + std::to_string(oldest.position) + (link.sending ? " to rank " : " from rank ");
  const char* const where = oldest.onStream ? "" : ", which has not begun";
  return "; the oldest open operation is " + what + std::to_string(link.peer.value) + ", of " + std::to_string(oldest.buffer.bytes) + " bytes" + where;
}

/// Whether NCCL is still at it. Throws when it failed.
bool NcclLinks::inProgress(const Link& link, ncclResult_t result) const {
  if (result == ncclSuccess) return false;
  if (result == ncclInProgress) return true;
  // NCCL's own sentence where it has one.
  const char* const last = link.communicator == nullptr ? nullptr : ncclGetLastError(link.communicator);
  const std::string reason = last == nullptr || *last == '\0' ? ncclGetErrorString(result) : last;
  throw Error("NCCL failed between " + between(link) + " (" + reason.substr(0, reason.find('\n')) + ")" + openOperation(link) +
              "; see the other rank's message, or set NCCL_DEBUG=WARN");
}

cudaEvent_t NcclLinks::takeEvent() {
  cudaEvent_t event = nullptr;
  if (events_.empty()) {
    check(cudaEventCreateWithFlags(&event, cudaEventDefault), "make an event");
    return event;
  }
  event = events_.back();
  events_.pop_back();
  return event;
}

/// Its events may still be waited for: a wait means what was recorded before it.
void NcclLinks::giveBack(const Operation& operation) {
  for (const cudaEvent_t event : {operation.ready, operation.begin, operation.end}) {
    if (event != nullptr) events_.push_back(event);
  }
}

/// The link, made when it is first asked for.
Link& NcclLinks::open(Rank peer, bool sending) {
  const auto [found, isNew] = links_.try_emplace({peer, sending});
  Link& link = found->second;
  if (!isNew) return link;
  link.peer = peer;
  link.sending = sending;
  link.name = sending ? "to rank " + std::to_string(peer.value) : "from rank " + std::to_string(peer.value);
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "read the priorities of streams");
  check(cudaStreamCreateWithPriority(&link.stream, cudaStreamNonBlocking, greatest), "make a stream");
  const Buffer id{reinterpret_cast<std::byte*>(&link.id), sizeof link.id};
  if (!sending) {
    link.idTicket = host_.receive(peer, kIdTag, id);
    return link;
  }
  require(link, ncclGetUniqueId(&link.id));
  link.idTicket = host_.send(peer, kIdTag, id);
  connect(link);
  return link;
}

void NcclLinks::connect(Link& link) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = link.name.c_str();
  link.waits = State::Connection;
  require(link, ncclCommInitRankConfig(&link.communicator, 2, link.id, link.sending ? kSender : kReceiver, &config));
}

std::uint64_t NcclLinks::begin(Rank peer, bool sending, Buffer buffer) {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Error(leftSentence());
  Link& link = open(peer, sending);
  const std::uint64_t id = next_++;
  Operation& operation = operations_[id];
  operation.link = &link;
  operation.buffer = buffer;
  operation.position = ++link.operations;
  if (sending) {
    operation.ready = takeEvent();
    check(cudaEventRecord(operation.ready, compute_), "record an event");
  }
  link.queued.push_back(id);
  link.unfinished.push_back(id);
  advance();
  return id;
}

/// Asks NCCL for the first operation that is queued.
void NcclLinks::start(Link& link) {
  Operation& operation = operations_.at(link.queued.front());
  operation.begin = takeEvent();
  operation.end = takeEvent();
  if (link.sending) check(cudaStreamWaitEvent(link.stream, operation.ready, 0), "wait for an event");
  check(cudaEventRecord(operation.begin, link.stream), "record an event");
  link.waits = State::Start;
  const Buffer buffer = operation.buffer;
  const ncclResult_t result = link.sending ? ncclSend(buffer.data, buffer.bytes, ncclUint8, kReceiver, link.communicator, link.stream)
                                           : ncclRecv(buffer.data, buffer.bytes, ncclUint8, kSender, link.communicator, link.stream);
  if (!inProgress(link, result)) finishStart(link);
}

/// The operation is on the stream: another thread may have put it there, so nothing could follow it before.
void NcclLinks::finishStart(Link& link) {
  Operation& operation = operations_.at(link.queued.front());
  check(cudaEventRecord(operation.end, link.stream), "record an event");
  operation.onStream = true;
  link.queued.pop_front();
  link.waits = State::Nothing;
}

/// The host's transport is the calling thread's.
void NcclLinks::takeId(Link& link) {
  if (!link.idTicket || !host_.isDone(*link.idTicket).value_or(false)) return;
  const auto ticket = *std::exchange(link.idTicket, std::nullopt);
  host_.wait(ticket);
  if (link.waits == State::Id) connect(link);
}

void NcclLinks::move(Link& link) {
  if (link.waits == State::Connection || link.waits == State::Start) {
    ncclResult_t state = ncclSuccess;
    require(link, ncclCommGetAsyncError(link.communicator, &state));
    if (inProgress(link, state)) return;
    link.waits == State::Start ? finishStart(link) : static_cast<void>(link.waits = State::Nothing);
  }
  while (link.waits == State::Nothing && !link.queued.empty()) start(link);
}

/// Whether NCCL will be done with something without being told more.
bool NcclLinks::isMoving() const {
  const auto waits = [](const auto& entry) { return entry.second.waits == State::Connection || entry.second.waits == State::Start; };
  return !aborted_ && std::ranges::any_of(links_, waits);
}

void NcclLinks::moveUntil(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  try {
    check(cudaSetDevice(device_), "take a GPU for a thread");
    while (moving_.wait(lock, stop, [this] { return isMoving(); }) && !stop.stop_requested()) {
      for (auto& [direction, link] : links_) move(link);
      lock.unlock();
      std::this_thread::sleep_for(kLook);
      lock.lock();
    }
  } catch (const Error& error) {
    failure_ = error.what();
  }
}

void NcclLinks::advance() {
  if (aborted_) throw Error(leftSentence());
  if (!failure_.empty()) throw Error(failure_);
  for (auto& [direction, link] : links_) {
    takeId(link);
    move(link);
  }
  if (isMoving()) moving_.notify_one();
}

bool NcclLinks::seesDone(Operation& operation) {
  if (operation.done || !operation.onStream) return operation.done;
  const cudaError_t state = cudaEventQuery(operation.end);
  if (state != cudaErrorNotReady) {
    check(state, "end a message");
    operation.done = true;
    return true;
  }
  if (operation.link->waits == State::Nothing) {
    ncclResult_t failure = ncclSuccess;
    require(*operation.link, ncclCommGetAsyncError(operation.link->communicator, &failure));
    require(*operation.link, failure);
  }
  return false;
}

bool NcclLinks::isDone(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  advance();
  Operation& operation = operations_.at(id);
  auto& unfinished = operation.link->unfinished;
  while (!unfinished.empty() && seesDone(operations_.at(unfinished.front()))) unfinished.pop_front();
  return operation.done;
}

void NcclLinks::order(std::uint64_t id) {
  std::unique_lock lock(mutex_);
  const Operation& operation = operations_.at(id);
  const auto until = Clock::now() + deadline_;
  for (advance(); !operation.onStream; advance()) {
    if (Clock::now() >= until) {
      throw Error("NCCL did not connect " + between(*operation.link) + " within " + inWords(deadline_) + openOperation(*operation.link) +
                  "; see whether the other rank hangs, or allow more with --timeout");
    }
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  check(cudaStreamWaitEvent(compute_, operation.end, 0), "wait for an event");
}

std::pair<Ns, Ns> NcclLinks::times(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const Operation& operation = operations_.at(id);
  assert(operation.onStream);
  return {timeOf_(operation.begin), timeOf_(operation.end)};
}

/// What is not on a stream yet is kept until it is.
void NcclLinks::forget() {
  const std::lock_guard lock(mutex_);
  for (auto& [direction, link] : links_) {
    std::erase_if(link.unfinished, [&](std::uint64_t id) { return operations_.at(id).onStream; });
  }
  std::erase_if(operations_, [&](const auto& entry) {
    const Operation& operation = entry.second;
    if (!operation.onStream) return false;
    giveBack(operation);
    return true;
  });
}

void NcclLinks::abort() {
  const std::lock_guard lock(mutex_);
  abortAll();
}

void NcclLinks::abortAll() {
  aborted_ = true;
  for (auto& [direction, link] : links_) {
    if (link.communicator != nullptr) static_cast<void>(ncclCommAbort(std::exchange(link.communicator, nullptr)));
  }
}

/// Ends the links in peace with their peers, all at once; those that do not end in time are left to be aborted.
void NcclLinks::close() {
  std::vector<Link*> closing;
  for (auto& [direction, link] : links_) {
    if (link.waits != State::Nothing) continue;
    const ncclResult_t result = ncclCommFinalize(link.communicator);
    if (result == ncclSuccess || result == ncclInProgress) closing.push_back(&link);
  }
  for (const auto until = Clock::now() + std::min<Clock::duration>(deadline_, kLeaving); !closing.empty() && Clock::now() < until; std::this_thread::yield()) {
    std::erase_if(closing, [](Link* link) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(link->communicator, &state);
      if (asked == ncclSuccess && state == ncclInProgress) return false;
      if (asked == ncclSuccess && state == ncclSuccess) static_cast<void>(ncclCommDestroy(std::exchange(link->communicator, nullptr)));
      return true;
    });
  }
}

NcclLinks::~NcclLinks() {
  mover_.request_stop();
  mover_.join();
  if (!aborted_ && failure_.empty()) close();
  abortAll();
  for (const auto& [id, operation] : operations_) giveBack(operation);
  for (const cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  for (auto& [direction, link] : links_) static_cast<void>(cudaStreamDestroy(link.stream));
}

}  // namespace

DeviceLinks ncclLinks(Communicator& host, std::chrono::milliseconds deadline, void* computeStream, std::function<Ns(void* event)> timeOf) {
  const auto links = std::make_shared<NcclLinks>(host, deadline, static_cast<cudaStream_t>(computeStream), std::move(timeOf));
  DeviceLinks calls;
  calls.holds = &isOnDevice;
  calls.send = [links](Rank to, Buffer buffer) { return links->begin(to, true, buffer); };
  calls.receive = [links](Rank from, Buffer buffer) { return links->begin(from, false, buffer); };
  calls.isDone = [links](std::uint64_t operation) { return links->isDone(operation); };
  calls.order = [links](std::uint64_t operation) { links->order(operation); };
  calls.times = [links](std::uint64_t operation) { return links->times(operation); };
  calls.forget = [links] { links->forget(); };
  calls.abort = [links] { links->abort(); };
  return calls;
}

}  // namespace pw
