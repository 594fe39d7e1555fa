#include "backends/messages/channel/block_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace pw {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = 2 << 20;  ///< blocks of at least this are made of huge pages, if the system allows, and kept

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

Memory fresh(std::size_t bytes) {
  const bool huge = bytes >= kHugePage;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(huge ? kHugePage : kAlignment, bytes)));
  if (!memory) throw std::bad_alloc();
  if (huge) ::madvise(memory.get(), bytes, MADV_HUGEPAGE);  // a hint
  return memory;
}

}  // namespace

struct BlockMemory::Shelf {
  struct Block {
    Memory memory;
    std::size_t bytes = 0;
  };
  const std::size_t keep;
  std::mutex mutex;
  std::vector<Block> blocks;  ///< the one that was given back last is last
  std::size_t bytes = 0;      ///< of all

  explicit Shelf(std::size_t most) : keep(most) {}

  /// A block of this size that is already there.
  Memory find(std::size_t wanted) {
    const std::lock_guard lock(mutex);
    const auto found = std::find_if(blocks.rbegin(), blocks.rend(), [&](const Block& block) { return block.bytes == wanted; });
    if (found == blocks.rend()) return nullptr;
    Memory memory = std::move(found->memory);
    blocks.erase(std::next(found).base());
    bytes -= wanted;
    return memory;
  }

  /// Makes room by freeing the blocks that were not used for longest.
  void put(Memory memory, std::size_t size) {
    if (size < kHugePage || size > keep) return;
    std::vector<Block> freed;  // after the mutex is unlocked
    const std::lock_guard lock(mutex);
    while (bytes + size > keep) {
      bytes -= blocks.front().bytes;
      freed.push_back(std::move(blocks.front()));
      blocks.erase(blocks.begin());
    }
    blocks.push_back({std::move(memory), size});
    bytes += size;
  }
};

BlockMemory::BlockMemory(std::size_t keep) : shelf_(std::make_shared<Shelf>(keep)) {}

HeldBuffer BlockMemory::take(std::size_t bytes) const {
  const std::size_t unit = bytes >= kHugePage ? kHugePage : kAlignment;
  if (bytes > ~std::size_t{0} - unit) throw std::bad_alloc();
  const std::size_t size = std::max(unit, (bytes + unit - 1) / unit * unit);
  Memory memory = size >= kHugePage ? shelf_->find(size) : nullptr;
  if (!memory) memory = fresh(size);
  std::byte* data = memory.release();
  std::shared_ptr<void> owner(data, [shelf = shelf_, size](void* given) { shelf->put(Memory(static_cast<std::byte*>(given)), size); });
  return {{data, bytes}, std::move(owner)};
}

std::size_t BlockMemory::kept() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->bytes;
}

}  // namespace pw
