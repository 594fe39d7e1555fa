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

/// How a device's memory moves between ranks: what NCCL does, and what a test's fake does. Between two ranks and in one direction, the k-th
/// `send` of the one meets the k-th `receive` of the other, whatever other pairs and the other direction do. All but `abort` are asked for
/// and done later.
struct DeviceLinks {
  /// Whether an address lies in the device's memory.
  std::function<bool(const void* address)> holds;
  /// Sends what the buffer holds when all that compute was asked for so far is done; the buffer must stay until the operation is done.
  std::function<std::uint64_t(Rank to, Buffer buffer)> send;
  /// Writes to the buffer at once, whatever compute still does with that memory: see Device::allocate.
  std::function<std::uint64_t(Rank from, Buffer buffer)> receive;
  /// As Communicator::startCollective, when all that compute was asked for so far is done; nothing where the links cannot. May be empty.
  std::function<std::optional<std::uint64_t>(Collective what, std::span<const Rank> group, DType dtype, Buffer buffer)> startCollective;
  /// How far an operation is, without asking more than that; also after `abort`, as it was before. May be empty: nothing is known.
  std::function<MessageState(std::uint64_t operation)> stateOf;
  /// Whether an operation is done. Throws Error when the link failed.
  std::function<bool(std::uint64_t operation)> isDone;
  /// Compute that is asked for from now on begins when the operation is done.
  std::function<void(std::uint64_t operation)> order;
  /// When an operation began and ended on the host's monotonic clock; once it and `device.finish` are done, until `forget`.
  std::function<std::pair<Ns, Ns>(std::uint64_t operation)> times;
  /// Operations so far will not be asked about any more.
  std::function<void()> forget;
  /// Ends all that is under way, at once.
  std::function<void()> abort;
};

/// Messages by tag over links that know none (NCCL matches by order alone): each message is announced to its receiver over `host`, and a
/// receive is begun in the order of announcements, once its send is known to be under way; so no order of sends and receives can block a
/// link. A rank reads a peer's announcements, in every call, while it has asked that peer for a message that is not announced; what comes
/// before it was asked for is received into memory of `device.allocate`, which is copied from when it is asked for and kept until the next
/// barrier. Buffers on the host, and empty ones, go over `host` as they are: a message must lie on the device at both of its ends or at
/// none.
///
/// `wait` of a receive returns when compute is ordered behind it, of a send when the buffer is free, of a collective when all of its group
/// have come and compute is ordered behind it. `isDone` and `waitAny`: of a receive, once its message is announced; of a collective, once
/// all have come. `timesOf`: of messages of the device and collectives. A barrier waits for `device.finish` and forgets the operations,
/// unless messages are under way across it. Tags from 0x7FFF0500 to 0x7FFF0600 are the announcements'. Every wait ends at the deadline with
/// an Error naming the peer; it offers its core to others but does not sleep while messages of the device are under way. The first message
/// of a device throws UsageError where `host` cannot tell what came (Gloo).
[[nodiscard]] std::unique_ptr<Communicator> communicatorOver(std::unique_ptr<Communicator> host, const Device& device, DeviceLinks links,
                                                             std::chrono::milliseconds deadline);

}  // namespace pw
