#include "backends/messages/device.h"

#include <cstring>
#include <memory>

#include "backends/messages/buffer_math.h"

namespace pw {
namespace {

HeldBuffer allocate(std::size_t bytes) {
  const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  return {{memory.get(), bytes}, memory};
}

void copy(Buffer into, Buffer from) {
  if (from.bytes > 0) std::memcpy(into.data, from.data, from.bytes);
}

}  // namespace

Ns monotonicNow() {
  return Ns(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

const Device& hostDevice() {
  static const Device host{
      .allocate = &allocate,
      .copy = &copy,
      .addInto = &addInto,
      .sumOfSquares = [](DType dtype, Buffer buffer, std::chrono::milliseconds) { return sumOfSquares(dtype, buffer); },
      .timestamp = [] { return Timestamp{monotonicNow().value}; },
      .timeOf = [](Timestamp timestamp) { return Ns{timestamp.number}; },
      .forgetTimestamps = [] {},
      .finish = [](std::chrono::milliseconds, const std::function<void()>&) {},
  };
  return host;
}

}  // namespace pw
