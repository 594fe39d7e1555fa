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

constexpr std::size_t kHugePage = SharedMemory::kUnit;  ///< blocks of at least this are made of huge pages, if the system allows, and kept

/// Gives memory back to where it is from.
struct GiveBack {
  std::shared_ptr<SharedMemory> shared;  ///< null: malloc
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const { shared ? shared->put(memory, bytes) : std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, GiveBack>;

Memory fresh(std::size_t bytes, const std::shared_ptr<SharedMemory>& shared) {
  const bool huge = bytes >= kHugePage;
  if (huge && shared) {
    if (Memory memory(shared->take(bytes), {shared, bytes}); memory) return memory;
  }
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(huge ? kHugePage : kPartAlignment, bytes)));
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
  const std::shared_ptr<SharedMemory> shared;
  std::mutex mutex;
  std::vector<Block> blocks;  ///< the one that was given back last is last
  std::size_t bytes = 0;      ///< of all

  Shelf(std::size_t most, std::shared_ptr<SharedMemory> memory) : keep(most), shared(std::move(memory)) {}

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

BlockMemory::BlockMemory(std::size_t keep, std::shared_ptr<SharedMemory> shared)
    : shelf_(std::make_shared<Shelf>(keep, std::move(shared))) {}

HeldBuffer BlockMemory::take(std::size_t bytes) const {
  const std::size_t unit = bytes >= kHugePage ? kHugePage : kPartAlignment;
  if (bytes > ~std::size_t{0} - unit) throw std::bad_alloc();
  const std::size_t size = std::max(unit, (bytes + unit - 1) / unit * unit);
  Memory memory = size >= kHugePage ? shelf_->find(size) : nullptr;
  if (!memory) memory = fresh(size, shelf_->shared);
  const GiveBack giveBack = memory.get_deleter();
  std::byte* data = memory.release();
  std::shared_ptr<void> owner(
      data, [shelf = shelf_, size, giveBack](void* given) { shelf->put(Memory(static_cast<std::byte*>(given), giveBack), size); });
  return {{data, bytes}, std::move(owner)};
}

std::size_t BlockMemory::kept() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->bytes;
}

}  // namespace pw
