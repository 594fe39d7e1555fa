#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedules/ids.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Contiguous memory of someone else's.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Memory together with who keeps it alive: copies share it.
struct HeldBuffer {
  Buffer buffer;
  std::shared_ptr<void> owner;
};

/// How far an operation is, as far as a transport can tell.
enum class MessageState : std::uint8_t {
  Unknown,
  Waiting,  ///< asked for: the peer has not met it, or it has not begun
  Moving,
  Done,
};

/// What a group of ranks makes of a buffer that all of them have, in `ranks` pieces: piece k is elements [k · n / ranks, (k + 1) · n /
/// ranks).
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
  /// Names a started operation until it was waited for.
  using Request = std::uint64_t;

  virtual ~Communicator() = default;
  [[nodiscard]] virtual Rank rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Starts sending; returns at once. The buffer must stay as it is until `wait` returned.
  virtual Request send(Rank to, std::uint32_t tag, Buffer buffer) = 0;
  /// Starts receiving exactly `buffer.bytes`; returns at once.
  virtual Request receive(Rank from, std::uint32_t tag, Buffer buffer) = 0;
  /// Blocks until the operation is done.
  virtual void wait(Request request) = 0;
  /// Whether the operation is done, so that `wait` would return at once; nothing where the transport cannot tell without waiting (Gloo).
  [[nodiscard]] virtual std::optional<bool> isDone(Request request) = 0;
  /// Blocks until one of these operations is done and returns its position (the first, of several); it must still be waited for. Throws
  /// UsageError where the transport cannot tell.
  [[nodiscard]] virtual std::size_t waitAny(std::span<const Request> requests) = 0;
  /// Lets messages under way move on; returns at once. Costs well under a microsecond when there is nothing to do, so that it can be called
  /// between the operators of a stage.
  virtual void progress() = 0;
  /// Throws Error where messages are known not to come any more, as the job failed; for who waits for something else. Not all transports
  /// tell.
  virtual void requireAlive() {}
  /// When the message of a request began to move and when it was here, on the host's monotonic clock, where the transport moves it after
  /// the calls return (a GPU's). From `wait` and the device's end of work (`Device::finish`) to the second barrier after it; nothing
  /// elsewhere.
  [[nodiscard]] virtual std::optional<std::pair<Ns, Ns>> timesOf(Request /*request*/) { return std::nullopt; }
  /// How far an operation is that was not waited for, for the report of a failure; also after `abort`, as it was before.
  [[nodiscard]] virtual MessageState stateOf(Request request) noexcept;
  /// Begins a collective on a device's memory, in place, where the transport has some of its own (NCCL); nothing elsewhere, and for
  /// elements it cannot sum: then messages do it. `group`: two or more ranks, ascending, this one among them; all of them call it in the
  /// same order, and no other way round with another group of the same ranks. The buffer must stay as it is until `wait` returned, which
  /// puts compute behind it; that, and `isDone`, need that all of the group have called it.
  [[nodiscard]] virtual std::optional<Request> startCollective(Collective what, std::span<const Rank> group, DType dtype, Buffer buffer);
  /// All ranks meet.
  virtual void barrier() = 0;
  /// Wakes all waits of this rank with an error and closes connections; called on failure so that peers notice soon.
  virtual void abort() noexcept = 0;

  /// Takes memory that an operation nobody waits for any more may still write into or read: it stays as long as the communicator.
  void keep(HeldBuffer buffer) { kept_.push_back(std::move(buffer)); }

 private:
  std::vector<HeldBuffer> kept_;  ///< goes after what derives from this
};

}  // namespace pw
