#include "backends/torch/stage/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>

namespace pw {
namespace {

std::atomic<std::int64_t>& alive() {
  static std::atomic<std::int64_t> bytes{0};
  return bytes;
}

std::atomic<std::int64_t>& peak() {
  static std::atomic<std::int64_t> bytes{0};
  return bytes;
}

void count(std::int64_t bytes) {
  const std::int64_t now = alive().fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t most = peak().load(std::memory_order_relaxed);
  while (now > most && !peak().compare_exchange_weak(most, now, std::memory_order_relaxed)) {}
}

void release(void* memory) {
  if (memory == nullptr) return;
  alive().fetch_sub(static_cast<std::int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  c10::free_cpu(memory);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* memory = c10::alloc_cpu(bytes);
    if (memory != nullptr) count(static_cast<std::int64_t>(malloc_usable_size(memory)));
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t count) const override { default_copy_data(destination, source, count); }
};

}  // namespace

void installCountingAllocator() {
  static CountingAllocator allocator;
  static const bool installed = [] {
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    c10::SetAllocator(c10::DeviceType::CPU, &allocator, 1);
    return true;
  }();
  static_cast<void>(installed);
}

Bytes tensorBytesAlive() { return Bytes(alive().load(std::memory_order_relaxed)); }

Bytes takePeakBytes() {
  static_cast<void>(mostTensorBytes());
  return Bytes(peak().exchange(tensorBytesAlive().value, std::memory_order_relaxed));
}

Bytes mostTensorBytes() {
  static std::atomic<std::int64_t> most{0};
  const std::int64_t now = peak().load(std::memory_order_relaxed);
  std::int64_t before = most.load(std::memory_order_relaxed);
  while (now > before && !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) {}
  return Bytes(std::max(now, before));
}

}  // namespace pw
