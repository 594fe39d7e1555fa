#pragma once

// Internal to the archive reader: the entries of a zip file and the place of their bytes.

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace pw::pt2 {

/// A stored (uncompressed) entry: its bytes lie at `offset` from the file's start.
struct ZipEntry {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

/// What the reader needs of an archive.
struct Archive {
  std::string path;
  std::string top;                          ///< the folder all entries lie in
  std::map<std::string, ZipEntry> entries;  ///< by name below `top`: `models/model.json`

  [[nodiscard]] bool contains(const std::string& name) const { return entries.contains(name); }
};

/// Locates all entries of a torch.export archive. Reads the directory and each entry's header, no data. Throws UsageError for a file that
/// is missing, not a zip file, truncated, compressed, encrypted or not a torch.export archive.
[[nodiscard]] Archive openArchive(const std::string& path);

/// The same of an archive that `torch.save` wrote, by name below its top folder: `data.pkl`, `data/0`. It may be one of several in a file:
/// `bytes` from `begin` (neither negative); `readEntries` takes whole files only.
[[nodiscard]] Archive openSavedArchive(const std::string& path, std::int64_t begin = 0,
                                       std::int64_t bytes = std::numeric_limits<std::int64_t>::max());

/// The bytes of some entries, checksums verified, by name below the top folder; names the archive lacks are absent.
[[nodiscard]] std::map<std::string, std::string> readEntries(const Archive& archive, const std::initializer_list<const char*>& names);

}  // namespace pw::pt2
