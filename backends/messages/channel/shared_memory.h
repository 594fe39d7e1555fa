#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "backends/host/fd.h"

namespace pw {

/// Where other processes find a SharedMemory, byte by byte as it is in memory. From another process everything in it may be wrong.
struct SharedMemoryName {
  std::uint64_t host = 0;  ///< a number of the running system and the container; 0: there is no such memory
  std::int32_t process = 0, descriptor = -1;
  std::uint64_t bytes = 0;
};

/// Address space of this process that others of the same user and host may write to (Linux: memfd_create). Pieces of it have memory while
/// they are in use. Any thread. Unlike other memory it stays one and the same in forked processes.
class SharedMemory {
 public:
  static constexpr std::size_t kUnit = 2 << 20;                 ///< [bytes] pieces are multiples of it
  static constexpr std::size_t kSpace = std::size_t{16} << 30;  ///< of addresses; memory is taken piece by piece

  /// Null where the system has none.
  [[nodiscard]] static std::shared_ptr<SharedMemory> make(std::size_t space = kSpace);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] const SharedMemoryName& name() const { return name_; }
  /// A piece, zeroed; null where there is no room or memory.
  [[nodiscard]] std::byte* take(std::size_t bytes);
  /// Gives a piece back to the system; not in a forked process.
  void put(const std::byte* piece, std::size_t bytes);
  /// Where an address lies in it; nothing for one that lies elsewhere.
  [[nodiscard]] std::optional<std::uint64_t> offsetOf(const std::byte* data) const;

 private:
  SharedMemory(Fd fd, std::byte* data, std::size_t bytes);

  Fd fd_;
  std::byte* data_;
  SharedMemoryName name_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  ///< by offset [bytes]
};

/// Another process's SharedMemory, to write to.
class SharedMemoryView {
 public:
  /// Null where that is none, or this process may not write to it.
  [[nodiscard]] static std::shared_ptr<const SharedMemoryView> open(const SharedMemoryName& name);
  ~SharedMemoryView();
  SharedMemoryView(const SharedMemoryView&) = delete;
  SharedMemoryView& operator=(const SharedMemoryView&) = delete;

  /// Null for a piece that lies outside.
  [[nodiscard]] std::byte* at(std::uint64_t offset, std::size_t bytes) const;

 private:
  SharedMemoryView(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace pw
