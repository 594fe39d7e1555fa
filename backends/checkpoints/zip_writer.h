#pragma once

// Internal to the checkpoint writer: a zip file of stored entries, as torch reads it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/host/part_file.h"

namespace pw {

/// Writes a zip file entry by entry (PKWARE's APPNOTE 6.3.10, with the 64-bit extensions where they are needed). Entries are stored as they
/// are, their data on multiples of 64 bytes from the file's start. A temporary file next to `path` is used until `finish` replaces `path`,
/// so that there is always a complete file of that name; without `finish` it is removed. Throws Error naming the path and the system's
/// reason, a full disk for example.
class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path);

  void add(const std::string& name, const std::byte* bytes, std::size_t count);
  void add(const std::string& name, std::string_view text);
  struct Extent {
    std::uint64_t offset = 0, bytes = 0;
  };
  /// Ends the current archive; entries added later go into another one after it in the file. Returns the extent of the ended one.
  Extent endArchive();
  /// Ends the last archive if it has entries, syncs the file to disk, and replaces `path`.
  void finish();

 private:
  struct Entry {
    std::string name;
    std::uint64_t offset = 0, bytes = 0;
    std::uint32_t checksum = 0;
  };

  [[noreturn]] void fail(const std::string& what, int reason) const;
  void write(const void* bytes, std::size_t count);
  void writeDirectory();
  /// Bounds the amount of unsynced data, so that no single wait grows with the file.
  void settle();

  std::string path_;
  PartFile part_;
  std::uint64_t size_ = 0, settled_ = 0;
  std::uint64_t begin_ = 0;  ///< of the archive that is being written; its own places count from there
  std::vector<Entry> entries_;
};

}  // namespace pw
