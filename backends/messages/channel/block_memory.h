#pragma once

#include <cstddef>
#include <memory>

#include "backends/messages/channel/shared_memory.h"
#include "backends/messages/communicator.h"

namespace pw {

inline constexpr std::size_t kPartAlignment = 64;  ///< [bytes] of parts, as LibTorch's own memory

/// Memory for large parts of messages, aligned to 64 bytes, that is used again once its last owner is gone: fresh pages cost more time than
/// moving a message does (64 MB: 16,384 page faults). Any thread may give memory back, also after the BlockMemory is gone.
class BlockMemory {
 public:
  /// Keeps at most `keep` bytes that nobody uses. `shared`: blocks of SharedMemory::kUnit and more come from there while it has room; may
  /// be null.
  explicit BlockMemory(std::size_t keep, std::shared_ptr<SharedMemory> shared = nullptr);
  /// Throws std::bad_alloc where the system has none.
  [[nodiscard]] HeldBuffer take(std::size_t bytes) const;
  /// Bytes that are kept for later.
  [[nodiscard]] std::size_t kept() const;

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace pw
