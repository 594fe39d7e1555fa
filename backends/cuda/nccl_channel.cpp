#include "backends/cuda/nccl_channel.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "schedules/error.h"

namespace pw {
namespace {

/// `send 12 to rank 1`, `all-reduce 3`.
std::string nameOf(const NcclOperation& operation, bool sending, const NcclMembers& members) {
  const std::string position = std::to_string(operation.position);
  if (!operation.collective) {
    const std::string peer = std::to_string(members.ranks[sending ? 1 : 0].value);
    return sending ? "send " + position + " to rank " + peer : "receive " + position + " from rank " + peer;
  }
  switch (*operation.collective) {
    case Collective::AllReduce: return "all-reduce " + position;
    case Collective::ReduceScatter: return "reduce-scatter " + position;
    case Collective::AllGather: return "all-gather " + position;
  }
  return "";
}

/// NCCL's element type for reductions; nothing if it has none.
std::optional<ncclDataType_t> ncclTypeOf(DType dtype) {
  switch (dtype) {
    case DType::UInt8: return ncclUint8;
    case DType::Int8: return ncclInt8;
    case DType::Int32: return ncclInt32;
    case DType::Int64: return ncclInt64;
    case DType::Float16: return ncclFloat16;
    case DType::BFloat16: return ncclBfloat16;
    case DType::Float32: return ncclFloat32;
    case DType::Float64: return ncclFloat64;
    case DType::Unknown:
    case DType::Int16:
    case DType::Float8:
    case DType::Bool:
    case DType::ComplexHalf:
    case DType::ComplexFloat:
    case DType::ComplexDouble: return std::nullopt;
  }
  return std::nullopt;
}

/// A collective on some elements, from the point of view of one rank of the communicator.
struct Pieces {
  std::byte* data;
  std::size_t elements, bytesEach, ranks, place;
  ncclDataType_t type;

  [[nodiscard]] std::size_t first(std::size_t k) const { return k * elements / ranks; }
  [[nodiscard]] std::byte* piece(std::size_t k) const { return data + first(k) * bytesEach; }
};

/// Pieces of different sizes, which NCCL's own scatter and gather do not support: one call per piece, all in one group.
ncclResult_t submitEach(Collective what, const Pieces& all, ncclComm_t communicator, cudaStream_t stream) {
  ncclResult_t failure = ncclGroupStart();
  if (failure != ncclSuccess) return failure;
  for (std::size_t k = 0; k < all.ranks; ++k) {
    const std::size_t count = all.first(k + 1) - all.first(k);
    if (count == 0) continue;
    std::byte* const piece = all.piece(k);
    const int root = static_cast<int>(k);
    const ncclResult_t result = what == Collective::ReduceScatter
                                    ? ncclReduce(piece, piece, count, all.type, ncclSum, root, communicator, stream)
                                    : ncclBroadcast(piece, piece, count, all.type, root, communicator, stream);
    if (result != ncclSuccess && result != ncclInProgress && failure == ncclSuccess) failure = result;
  }
  const ncclResult_t ended = ncclGroupEnd();  // also after a failure: the group belongs to the thread
  return failure == ncclSuccess ? ended : failure;
}

ncclResult_t submitCollective(Collective what, const Pieces& all, ncclComm_t communicator, cudaStream_t stream) {
  if (what == Collective::AllReduce) return ncclAllReduce(all.data, all.data, all.elements, all.type, ncclSum, communicator, stream);
  if (all.elements % all.ranks != 0) return submitEach(what, all, communicator, stream);
  const std::size_t each = all.elements / all.ranks;
  std::byte* const own = all.piece(all.place);
  return what == Collective::ReduceScatter ? ncclReduceScatter(all.data, own, each, all.type, ncclSum, communicator, stream)
                                           : ncclAllGather(own, all.data, each, all.type, communicator, stream);
}

}  // namespace

void checkCuda(int result, std::string_view what) {
  if (result == cudaSuccess) return;
  throw Error("CUDA could not " + std::string(what) + " (" + cudaGetErrorString(static_cast<cudaError_t>(result)) +
              "); see dmesg, and start the job again");
}

bool isReached(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state != cudaErrorNotReady) {
    checkCuda(state, "end a message");
    return true;
  }
  static_cast<void>(cudaGetLastError());  // otherwise the next check for a kernel's failure would find this
  return false;
}

bool supportsCollectives(DType dtype) { return ncclTypeOf(dtype).has_value(); }

CudaEvents::~CudaEvents() {
  for (const cudaEvent_t event : free_) static_cast<void>(cudaEventDestroy(event));
}

cudaEvent_t CudaEvents::take() {
  cudaEvent_t event = nullptr;
  if (free_.empty()) {
    checkCuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "make an event");
    return event;
  }
  event = free_.back();
  free_.pop_back();
  return event;
}

void CudaEvents::giveBack(cudaEvent_t event) {
  if (event != nullptr) free_.push_back(event);
}

NcclChannel::NcclChannel(NcclMembers members, JobRank self, CudaEvents& events) : members_(std::move(members)), events_(events) {
  place_ = static_cast<int>(std::ranges::find(members_.ranks, self) - members_.ranks.begin());
  assert(place_ < static_cast<int>(members_.ranks.size()));
  name_ = "among " + between();
  if (!members_.collective) name_ = (isSender() ? "to rank " : "from rank ") + std::to_string(members_.ranks[isSender() ? 1 : 0].value);
  int least = 0, greatest = 0;
  checkCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "read the priorities of streams");
  checkCuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "make a stream");
}

NcclChannel::~NcclChannel() {
  abort();
  static_cast<void>(cudaStreamDestroy(stream_));
}

std::string NcclChannel::between() const {
  const std::vector<JobRank>& ranks = members_.ranks;
  if (ranks.size() == 2) return "rank " + std::to_string(ranks[0].value) + " and rank " + std::to_string(ranks[1].value);
  std::string text = "ranks " + std::to_string(ranks.front().value);
  for (std::size_t i = 1; i < ranks.size(); ++i) text += (i + 1 < ranks.size() ? ", " : " and ") + std::to_string(ranks[i].value);
  return text;
}

std::string NcclChannel::openOperation() const {
  if (unfinished_.empty()) return "";
  const NcclOperation& oldest = *unfinished_.front();
  return "; the oldest open operation is " + nameOf(oldest, isSender(), members_) + ", of " + std::to_string(oldest.buffer.bytes) +
         " bytes" + (oldest.onStream ? "" : ", which has not begun");
}

/// NCCL's state for all operations enqueued so far.
int NcclChannel::state() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t status = ncclCommGetAsyncError(communicator_, &state);
  return status == ncclSuccess ? state : status;
}

/// Whether NCCL is still busy. Throws when it failed.
bool NcclChannel::inProgress(int result) const {
  if (result == ncclSuccess) return false;
  if (result == ncclInProgress) return true;
  // NCCL's own message, if it has one.
  const char* const last = communicator_ == nullptr ? nullptr : ncclGetLastError(communicator_);
  const std::string reason = last == nullptr || *last == '\0' ? ncclGetErrorString(static_cast<ncclResult_t>(result)) : last;
  throw Error("NCCL failed between " + between() + " (" + reason.substr(0, reason.find('\n')) + ")" + openOperation() +
              "; see the other rank's message, or set NCCL_DEBUG=WARN");
}

void NcclChannel::connect(const NcclId& id) {
  ncclUniqueId theirs;
  static_assert(sizeof theirs == sizeof id);
  std::memcpy(&theirs, id.data(), sizeof theirs);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name_.c_str();
  waits_ = Waits::Connection;
  static_cast<void>(inProgress(ncclCommInitRankConfig(&communicator_, static_cast<int>(members_.ranks.size()), theirs, place_, &config)));
}

void NcclChannel::add(NcclOperation& operation) {
  operation.channel = this;
  operation.position = ++operations_;
  queued_.push_back(&operation);
  unfinished_.push_back(&operation);
}

bool NcclChannel::needsProgress() const { return communicator_ != nullptr && (waits_ == Waits::Connection || waits_ == Waits::Start); }

void NcclChannel::progress() {
  if (needsProgress()) {
    if (inProgress(state())) return;
    waits_ == Waits::Start ? finishStart() : static_cast<void>(waits_ = Waits::Nothing);
  }
  while (waits_ == Waits::Nothing && !queued_.empty()) start();
}

/// Submits the first queued operation to NCCL.
void NcclChannel::start() {
  NcclOperation& operation = *queued_.front();
  operation.begin = events_.take();
  operation.end = events_.take();
  if (operation.ready != nullptr) checkCuda(cudaStreamWaitEvent(stream_, operation.ready, 0), "wait for an event");
  checkCuda(cudaEventRecord(operation.begin, stream_), "record an event");
  waits_ = Waits::Start;
  if (!inProgress(submit(operation))) finishStart();
}

/// The operation is on the stream now. One of NCCL's threads may have put it there, so nothing could be enqueued after it earlier.
void NcclChannel::finishStart() {
  NcclOperation& operation = *queued_.front();
  checkCuda(cudaEventRecord(operation.end, stream_), "record an event");
  operation.onStream = true;
  queued_.pop_front();
  waits_ = Waits::Nothing;
}

int NcclChannel::submit(const NcclOperation& operation) const {
  const Buffer buffer = operation.buffer;
  if (buffer.bytes == 0) return ncclSuccess;
  if (operation.collective) {
    const std::size_t bytesEach = widthOf(operation.dtype);
    const Pieces all{.data = buffer.data,
                     .elements = buffer.bytes / bytesEach,
                     .bytesEach = bytesEach,
                     .ranks = members_.ranks.size(),
                     .place = static_cast<std::size_t>(place_),
                     .type = ncclTypeOf(operation.dtype).value()};
    return submitCollective(*operation.collective, all, communicator_, stream_);
  }
  return isSender() ? ncclSend(buffer.data, buffer.bytes, ncclUint8, 1, communicator_, stream_)
                    : ncclRecv(buffer.data, buffer.bytes, ncclUint8, 0, communicator_, stream_);
}

bool NcclChannel::seesDone(NcclOperation& operation) const {
  if (!operation.onStream) return false;
  operation.done = isReached(operation.end);
  // While NCCL enqueues another operation, `progress` queries it.
  if (!operation.done && waits_ == Waits::Nothing) static_cast<void>(inProgress(state()));
  return operation.done;
}

void NcclChannel::poll() {
  while (!unfinished_.empty() && seesDone(*unfinished_.front())) unfinished_.pop_front();
}

void NcclChannel::drain() noexcept {
  for (NcclOperation* const operation : unfinished_) {
    if (operation->onStream && cudaEventQuery(operation->end) == cudaSuccess) operation->done = true;
  }
  static_cast<void>(cudaGetLastError());
}

void NcclChannel::forgetStarted() {
  std::erase_if(unfinished_, [](const NcclOperation* operation) { return operation->onStream; });
}

void NcclChannel::abort() noexcept {
  if (communicator_ != nullptr) static_cast<void>(ncclCommAbort(std::exchange(communicator_, nullptr)));
}

bool NcclChannel::leave() {
  if (waits_ != Waits::Nothing || communicator_ == nullptr) return false;
  const ncclResult_t result = ncclCommFinalize(communicator_);
  return result == ncclSuccess || result == ncclInProgress;
}

bool NcclChannel::hasLeft() {
  const int result = state();
  if (result == ncclInProgress) return false;
  if (result == ncclSuccess) static_cast<void>(ncclCommDestroy(std::exchange(communicator_, nullptr)));
  return true;
}

}  // namespace pw
