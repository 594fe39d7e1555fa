#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "backends/messages/communicator.h"
#include "backends/messages/device.h"

namespace pw {

/// Transfers of device memory between ranks, as NCCL or a test's fake provides them. Between two ranks and in one direction, the k-th
/// `send` of one matches the k-th `receive` of the other, independently of other pairs and of the other direction. All operations but
/// `abort` are enqueued and done later.
struct DeviceLinks {
  /// Whether an address lies in the device's memory.
  std::function<bool(const void* address)> holds;
  /// Sends the contents that the buffer has when all compute enqueued so far is done; the buffer must not change until the operation is
  /// done.
  std::function<std::uint64_t(JobRank to, Buffer buffer)> send;
  /// May write to the buffer at once, whatever compute is still pending on that memory: see Device::allocate.
  std::function<std::uint64_t(JobRank from, Buffer buffer)> receive;
  /// As Communicator::startCollective, after all compute enqueued so far; nothing if the links have no such collective. May be empty.
  std::function<std::optional<std::uint64_t>(Collective what, std::span<const JobRank> group, DType dtype, Buffer buffer)> startCollective;
  /// The state of an operation, without polling it; after `abort`, the state before it. May be empty: nothing is known.
  std::function<MessageState(std::uint64_t operation)> stateOf;
  /// Whether an operation is done. Throws Error when the link failed.
  std::function<bool(std::uint64_t operation)> isDone;
  /// Orders compute that is enqueued from now on after the operation.
  std::function<void(std::uint64_t operation)> order;
  /// When an operation began and ended on the host's monotonic clock; once it and `device.finish` are done, until `forget`.
  std::function<std::pair<Ns, Ns>(std::uint64_t operation)> times;
  /// Forgets all operations so far: they will not be queried again.
  std::function<void()> forget;
  /// Ends all pending operations immediately.
  std::function<void()> abort;
};

/// Messages by tag over links without tags (NCCL matches by order alone): each message is announced to its receiver over `host`, and
/// receives are started in the order of announcements, once the send is known to have been started; so no order of sends and receives can
/// block a link. In every call a rank reads the announcements of peers from which it has requested a message that is not announced yet. A
/// message that arrives before it is requested is received into memory from `device.allocate`, from which it is copied on request, and
/// which is kept until the next barrier. Buffers on the host, and empty ones, go over `host` unchanged: a message must be on the device at
/// both ends or at neither.
///
/// `wait` for a receive returns when compute is ordered after it, for a send when the buffer is free, for a collective when all of its
/// group have joined and compute is ordered after it. `isDone` and `waitAny`: of a receive, once its message is announced; of a collective,
/// once all have come. `timesOf`: for device messages and collectives. A barrier waits for `device.finish` and forgets the operations,
/// unless messages are in flight across it. Announcements take `kAnnouncementTags`. Every wait ends at the deadline
/// with an Error naming the peer; while device messages are in flight it yields the core but does not sleep. The first device message
/// throws UsageError if `host` cannot tell which message has arrived (Gloo).
[[nodiscard]] std::unique_ptr<Communicator> communicatorOver(std::unique_ptr<Communicator> host, const Device& device, DeviceLinks links,
                                                             std::chrono::milliseconds deadline);

}  // namespace pw
