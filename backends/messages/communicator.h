#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedules/job_rank.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// A non-owning view of contiguous memory.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Memory together with the owner that keeps it alive; copies share it.
struct HeldBuffer {
  Buffer buffer;
  std::shared_ptr<void> owner;
};

/// The progress of an operation, as far as the transport can tell.
enum class MessageState : std::uint8_t {
  Unknown,
  Waiting,  ///< posted, but not matched by the peer or not started
  Moving,
  Done,
};

/// Collective operations of a group of ranks on a buffer that each of them has, in `ranks` pieces: piece k is elements [k · n / ranks, (k +
/// 1) · n / ranks).
enum class Collective : std::uint8_t {
  AllReduce,      ///< everywhere the sum of all
  ReduceScatter,  ///< at the group's k-th rank piece k of the sum; its other pieces are undefined
  AllGather,      ///< everywhere the k-th rank's piece k
};

/// Point-to-point messages and barriers between the ranks of one job. Messages match by (from, to, tag); a tag is used once per
/// step between two barriers. A Communicator is used by one thread. Every wait has a deadline: passing it, a lost peer or an
/// abort throws Error naming the peer.
class Communicator {
 public:
  /// Identifies a started operation until it has been waited for.
  using Request = std::uint64_t;

  virtual ~Communicator() = default;
  [[nodiscard]] virtual JobRank rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Starts sending; returns at once. The buffer must not change until `wait` has returned.
  virtual Request send(JobRank to, std::uint32_t tag, Buffer buffer) = 0;
  /// Starts receiving exactly `buffer.bytes`; returns at once.
  virtual Request receive(JobRank from, std::uint32_t tag, Buffer buffer) = 0;
  /// Blocks until the operation is done.
  virtual void wait(Request request) = 0;
  /// Whether the operation is done, so that `wait` would return at once; nothing where the transport cannot tell without waiting (Gloo's
  /// receives).
  [[nodiscard]] virtual std::optional<bool> isDone(Request request) = 0;
  /// Blocks until one of these operations is done and returns its position (the first, if several are); it must still be waited for. Throws
  /// UsageError where the transport cannot tell.
  [[nodiscard]] virtual std::size_t waitAny(std::span<const Request> requests) = 0;
  /// Progresses messages in flight; returns at once. Costs well under a microsecond when there is nothing to do, so that it can be called
  /// between the operators of a stage.
  virtual void progress() = 0;
  /// Throws Error if it is known that messages will never arrive, because the job failed; for use while waiting for something else. Not all
  /// transports can tell.
  virtual void requireAlive() {}
  /// When the transfer of a request's message began and ended, on the host's monotonic clock, for transports that transfer after the calls
  /// return (those of a GPU). From `wait` and the device's end of work (`Device::finish`) to the second barrier after it; nothing
  /// elsewhere.
  [[nodiscard]] virtual std::optional<std::pair<Ns, Ns>> timesOf(Request /*request*/) { return std::nullopt; }
  /// The state of an operation that was not waited for, for failure reports; after `abort`, the state before it.
  [[nodiscard]] virtual MessageState stateOf(Request request) noexcept;
  /// Starts a collective on device memory, in place, if the transport has collectives (NCCL). Nothing if it has none, or none for elements
  /// of this type; then messages must do the work. `group`: two or more ranks, ascending, including this one; all of them must call it in
  /// the same order, also relative to other groups that share ranks. The buffer must not be touched until `wait` has returned, after which
  /// compute is ordered after the collective; `wait` and `isDone` complete only when all of the group have called it.
  [[nodiscard]] virtual std::optional<Request> startCollective(Collective what, std::span<const JobRank> group, DType dtype, Buffer buffer);
  /// Blocks until all ranks have called it.
  virtual void barrier() = 0;
  /// Ends all waits of this rank with an error and closes connections; called on failure so that peers notice quickly.
  virtual void abort() noexcept = 0;

  /// Keeps memory alive as long as the communicator, for operations that are no longer waited for but may still access it.
  void keep(HeldBuffer buffer) { kept_.push_back(std::move(buffer)); }

 private:
  std::vector<HeldBuffer> kept_;  ///< destroyed after the members of derived classes
};

}  // namespace pw
