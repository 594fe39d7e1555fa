#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/nccl_ids.h"
#include "backends/messages/communicator.h"
#include "simulator/model/model_graph.h"

// CUDA's stream and event and NCCL's communicator: their cudaStream_t, cudaEvent_t and ncclComm_t point to them.
struct CUstream_st;
struct CUevent_st;
struct ncclComm;

namespace pw {

/// Throws Error when CUDA failed; `result` is a cudaError_t, `what` as in `make a stream`.
void checkCuda(int result, std::string_view what);

/// Whether everything before an event is done. Throws Error when the device failed.
[[nodiscard]] bool isReached(CUevent_st* event);

/// Whether NCCL has collectives for elements of this type.
[[nodiscard]] bool supportsCollectives(DType dtype);

/// A pool of reusable events, as creating one costs some microseconds. They are destroyed with the pool.
class CudaEvents {
 public:
  CudaEvents() = default;
  ~CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  [[nodiscard]] CUevent_st* take();
  /// It may still be waited for: a wait refers to what was recorded before the wait.
  void giveBack(CUevent_st* event);

 private:
  std::vector<CUevent_st*> free_;
};

class NcclChannel;

/// An operation of a channel: a message, or an in-place collective.
struct NcclOperation {
  NcclChannel* channel = nullptr;
  Buffer buffer;
  std::optional<Collective> collective{};
  DType dtype = DType::UInt8;
  CUevent_st* ready = nullptr;  ///< the compute it must come after; null: none
  CUevent_st *begin = nullptr, *end = nullptr;
  std::uint64_t position = 0;  ///< its number within the channel, from 1
  bool onStream = false, done = false;
};

/// An NCCL communicator and a high-priority stream on which operations run in order, as NCCL matches them by order. Only `abort` blocks:
/// operations that NCCL has not completed are advanced by `progress`. For one thread at a time.
class NcclChannel {
 public:
  /// `events` must outlive it.
  NcclChannel(NcclMembers members, JobRank self, CudaEvents& events);
  /// Aborts open operations.
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  [[nodiscard]] bool needsId() const { return waits_ == Waits::Id; }
  void connect(const NcclId& id);
  /// The operation must not move in memory until it is forgotten.
  void add(NcclOperation& operation);
  /// Advances what waits for NCCL. Throws Error when it failed.
  void progress();
  /// Whether NCCL is working on something that `progress` has to follow up.
  [[nodiscard]] bool needsProgress() const;
  /// Updates which operations are done. Throws Error when one failed.
  void poll();
  /// The final `poll`, without querying NCCL.
  void drain() noexcept;
  /// Forgets operations on the stream: they will not be queried again.
  void forgetStarted();
  /// Ends all open operations immediately.
  void abort() noexcept;
  /// Starts ncclCommFinalize; false if that is not possible. Poll `hasLeft` until all ranks have left, or that failed.
  [[nodiscard]] bool leave();
  [[nodiscard]] bool hasLeft();

  /// `rank 0 and rank 1`, `ranks 0, 1 and 3`.
  [[nodiscard]] std::string between() const;
  /// `; the oldest open operation is send 12 to rank 1, of 4096 bytes`, where there is one.
  [[nodiscard]] std::string openOperation() const;

 private:
  /// What the next operation waits for.
  enum class Waits : std::uint8_t {
    Id,          ///< the unique id
    Connection,  ///< NCCL, to connect
    Nothing,
    Start,  ///< NCCL, to put the first operation of `queued` onto the stream
  };
  [[nodiscard]] bool isSender() const { return place_ == 0; }
  void start();
  void finishStart();
  // Results are NCCL's (ncclResult_t).
  [[nodiscard]] int submit(const NcclOperation& operation) const;
  [[nodiscard]] bool seesDone(NcclOperation& operation) const;
  [[nodiscard]] int state() const;
  [[nodiscard]] bool inProgress(int result) const;

  NcclMembers members_;
  int place_ = 0;  ///< of this rank among the members
  CudaEvents& events_;
  std::string name_;  ///< NCCL's own messages show it
  Waits waits_ = Waits::Id;
  ncclComm* communicator_ = nullptr;
  CUstream_st* stream_ = nullptr;
  std::uint64_t operations_ = 0;           ///< so far
  std::deque<NcclOperation*> queued_;      ///< not on the stream yet
  std::deque<NcclOperation*> unfinished_;  ///< not seen to be done, in their order
};

}  // namespace pw
