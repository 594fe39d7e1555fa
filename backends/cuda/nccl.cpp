#include "backends/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backends/cuda/device.h"
#include "backends/cuda/nccl_channel.h"
#include "backends/cuda/nccl_ids.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a channel waits for its peers at its end, when all its operations are done.
constexpr std::chrono::seconds kLeaving{5};

/// Poll interval for a channel that waits for NCCL while this rank does something else.
constexpr std::chrono::microseconds kLook{20};

/// Poll interval for the deadline.
constexpr std::chrono::milliseconds kWatch{50};

/// Used by one thread. A second thread progresses what waits for NCCL while the first one is blocked waiting for its GPU, which may in turn
/// wait for a peer that needs this very message. If that takes longer than the deadline, it ends all operations: the first thread may be
/// blocked inside a CUDA call that returns only when they have ended.
class NcclLinks {
 public:
  NcclLinks(Communicator& host, std::chrono::milliseconds deadline, cudaStream_t compute, std::function<Ns(void*)> timeOf)
      : self_(host.rank()), deadline_(deadline), compute_(compute), timeOf_(std::move(timeOf)), ids_(host) {
    checkCuda(cudaGetDevice(&device_), "name the GPU");
    mover_ = std::jthread([this](const std::stop_token& stop) { moveUntil(stop); });
  }
  ~NcclLinks();
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;

  std::uint64_t send(JobRank to, Buffer buffer) { return begin({false, {self_, to}}, {.buffer = buffer}, true); }
  std::uint64_t receive(JobRank from, Buffer buffer) { return begin({false, {from, self_}}, {.buffer = buffer}, false); }
  std::optional<std::uint64_t> startCollective(Collective what, std::span<const JobRank> group, DType dtype, Buffer buffer);
  MessageState stateOf(std::uint64_t id);
  bool isDone(std::uint64_t id);
  void order(std::uint64_t id);
  std::pair<Ns, Ns> times(std::uint64_t id);
  void forget();
  void abort();

 private:
  std::uint64_t begin(const NcclMembers& members, const NcclOperation& what, bool afterCompute);
  NcclChannel& open(const NcclMembers& members);
  [[nodiscard]] bool needsProgress() const;
  void moveUntil(const std::stop_token& stop);
  void watch();
  void requireOpen() const;
  void advance();
  void abortAll();
  void close();
  void giveBack(const NcclOperation& operation);

  JobRank self_;
  std::chrono::milliseconds deadline_;
  cudaStream_t compute_;
  std::function<Ns(void*)> timeOf_;
  NcclIds ids_;  ///< the host's transport is the calling thread's
  int device_ = 0;
  std::mutex mutex_;  ///< of all below
  std::condition_variable_any moving_;
  CudaEvents events_;
  std::unordered_map<std::uint64_t, NcclOperation> operations_;
  std::map<NcclMembers, NcclChannel> channels_;
  std::uint64_t next_ = 1;
  std::string failure_;                    ///< found by the progress thread
  Clock::time_point came_ = Clock::now();  ///< when the first thread last called
  bool aborted_ = false;
  std::jthread mover_;
};

/// The channel, made at first use.
NcclChannel& NcclLinks::open(const NcclMembers& members) {
  const auto [found, isNew] = channels_.try_emplace(members, members, self_, events_);
  NcclChannel& channel = found->second;
  if (!isNew) return channel;
  if (members.ranks.front() != self_) {
    ids_.want(members);
    return channel;
  }
  ncclUniqueId made;
  const ncclResult_t result = ncclGetUniqueId(&made);
  if (result != ncclSuccess)
    throw Error("NCCL could not make a unique id (" + std::string(ncclGetErrorString(result)) + "); set NCCL_DEBUG=WARN");
  NcclId id;
  static_assert(sizeof made == sizeof id);
  std::memcpy(id.data(), &made, sizeof made);
  ids_.give(members, id);
  channel.connect(id);
  return channel;
}

std::uint64_t NcclLinks::begin(const NcclMembers& members, const NcclOperation& what, bool afterCompute) {
  std::unique_lock lock(mutex_);
  requireOpen();
  const std::uint64_t id = next_++;
  NcclOperation& operation = operations_.emplace(id, what).first->second;
  if (afterCompute) {
    operation.ready = events_.take();
    came_ = Clock::now();
    lock.unlock();  // the call waits while the stream is full
    checkCuda(cudaEventRecord(operation.ready, compute_), "record an event");
    lock.lock();
    requireOpen();
  }
  NcclChannel& channel = open(members);
  channel.add(operation);
  advance();
  return id;
}

std::optional<std::uint64_t> NcclLinks::startCollective(Collective what, std::span<const JobRank> group, DType dtype, Buffer buffer) {
  assert(group.size() >= 2 && std::ranges::is_sorted(group) && std::ranges::find(group, self_) != group.end());
  if (!supportsCollectives(dtype)) return std::nullopt;
  assert(buffer.bytes % widthOf(dtype) == 0);
  return begin({true, {group.begin(), group.end()}}, {.buffer = buffer, .collective = what, .dtype = dtype}, true);
}

/// Whether NCCL will complete something without further calls.
bool NcclLinks::needsProgress() const {
  return !aborted_ && std::ranges::any_of(channels_, [](const auto& entry) { return entry.second.needsProgress(); });
}

void NcclLinks::moveUntil(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  try {
    checkCuda(cudaSetDevice(device_), "take a GPU for a thread");
    Clock::time_point watched = Clock::now();
    while (!stop.stop_requested()) {
      const bool moves = moving_.wait_for(lock, stop, kWatch, [this] { return needsProgress(); });
      if (Clock::now() - watched >= kWatch) {  // also while something connects, which may take for ever
        watch();
        watched = Clock::now();
      }
      if (!moves) continue;
      for (auto& [members, channel] : channels_) channel.progress();
      lock.unlock();
      std::this_thread::sleep_for(kLook);
      lock.lock();
    }
  } catch (const Error& error) {
    if (failure_.empty()) failure_ = error.what();
    abortAll();  // what is on the streams would wait for ever, and whoever waits for a stream with it
  }
}

/// Ends operations that are in flight for longer than the deadline while nobody polls them.
void NcclLinks::watch() {
  if (aborted_ || Clock::now() - came_ < deadline_) return;
  for (auto& [members, channel] : channels_) {
    channel.poll();
    if (const std::string open = channel.openOperation(); failure_.empty() && !open.empty()) {
      failure_ = "NCCL had not finished a message or collective between " + channel.between() + " " + inWords(deadline_) +
                 " after it was posted" + open + "; check whether another rank hangs, or raise --timeout";
    }
  }
  if (!failure_.empty()) abortAll();
}

void NcclLinks::requireOpen() const {
  if (!failure_.empty()) throw Error(failure_);
  if (aborted_) throw Error(leftSentence());
}

void NcclLinks::advance() {
  requireOpen();
  came_ = Clock::now();
  ids_.advance();
  for (auto& [members, channel] : channels_) {
    if (channel.needsId()) {
      if (const auto id = ids_.take(members)) channel.connect(*id);
    }
    channel.progress();
  }
  if (needsProgress()) moving_.notify_one();
}

MessageState NcclLinks::stateOf(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = operations_.find(id);
  if (found == operations_.end()) return MessageState::Unknown;
  const NcclOperation& operation = found->second;
  if (operation.done) return MessageState::Done;
  if (!operation.onStream) return MessageState::Waiting;
  return !aborted_ && isReached(operation.end) ? MessageState::Done : MessageState::Moving;
}

bool NcclLinks::isDone(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  advance();
  const NcclOperation& operation = operations_.at(id);
  operation.channel->poll();
  return operation.done;
}

void NcclLinks::order(std::uint64_t id) {
  std::unique_lock lock(mutex_);
  const NcclOperation& operation = operations_.at(id);
  const auto until = Clock::now() + deadline_;
  for (advance(); !operation.onStream; advance()) {
    if (Clock::now() >= until) {
      throw Error("NCCL did not connect " + operation.channel->between() + " within " + inWords(deadline_) +
                  operation.channel->openOperation() + "; check whether another rank hangs, or raise --timeout");
    }
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  const cudaEvent_t end = operation.end;
  lock.unlock();  // the call waits while the stream is full
  checkCuda(cudaStreamWaitEvent(compute_, end, 0), "wait for an event");
}

std::pair<Ns, Ns> NcclLinks::times(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const NcclOperation& operation = operations_.at(id);
  assert(operation.onStream);
  return {timeOf_(operation.begin), timeOf_(operation.end)};
}

void NcclLinks::giveBack(const NcclOperation& operation) {
  for (const cudaEvent_t event : {operation.ready, operation.begin, operation.end}) events_.giveBack(event);
}

/// Operations that are not on a stream yet are kept until they are.
void NcclLinks::forget() {
  const std::lock_guard lock(mutex_);
  for (auto& [members, channel] : channels_) channel.forgetStarted();
  std::erase_if(operations_, [&](const auto& entry) {
    if (!entry.second.onStream) return false;
    giveBack(entry.second);
    return true;
  });
}

void NcclLinks::abort() {
  const std::lock_guard lock(mutex_);
  abortAll();
}

void NcclLinks::abortAll() {
  if (!aborted_) {
    for (auto& [members, channel] : channels_) channel.drain();
  }
  aborted_ = true;
  // As one group: an abort waits for its communicator's operations on a stream, which may come after compute that comes after a receive of
  // another communicator.
  static_cast<void>(ncclGroupStart());
  for (auto& [members, channel] : channels_) channel.abort();
  static_cast<void>(ncclGroupEnd());
}

/// Finalizes all channels together with their peers; those that do not finish in time are left to be aborted.
void NcclLinks::close() {
  std::vector<NcclChannel*> leaving;
  for (auto& [members, channel] : channels_) {
    if (channel.leave()) leaving.push_back(&channel);
  }
  const auto until = Clock::now() + std::min<Clock::duration>(deadline_, kLeaving);
  for (; !leaving.empty() && Clock::now() < until; std::this_thread::yield()) {
    std::erase_if(leaving, [](NcclChannel* channel) { return channel->hasLeft(); });
  }
}

NcclLinks::~NcclLinks() {
  mover_.request_stop();
  mover_.join();
  if (!aborted_ && failure_.empty()) close();
  abortAll();
  for (const auto& [id, operation] : operations_) giveBack(operation);
}

}  // namespace

DeviceLinks ncclLinks(Communicator& host, std::chrono::milliseconds deadline, void* computeStream, std::function<Ns(void* event)> timeOf) {
  const auto links = std::make_shared<NcclLinks>(host, deadline, static_cast<cudaStream_t>(computeStream), std::move(timeOf));
  DeviceLinks calls;
  calls.holds = &isOnDevice;
  calls.send = [links](JobRank to, Buffer buffer) { return links->send(to, buffer); };
  calls.receive = [links](JobRank from, Buffer buffer) { return links->receive(from, buffer); };
  calls.startCollective = [links](Collective what, std::span<const JobRank> group, DType dtype, Buffer buffer) {
    return links->startCollective(what, group, dtype, buffer);
  };
  calls.stateOf = [links](std::uint64_t operation) { return links->stateOf(operation); };
  calls.isDone = [links](std::uint64_t operation) { return links->isDone(operation); };
  calls.order = [links](std::uint64_t operation) { links->order(operation); };
  calls.times = [links](std::uint64_t operation) { return links->times(operation); };
  calls.forget = [links] { links->forget(); };
  calls.abort = [links] { links->abort(); };
  return calls;
}

}  // namespace pw
