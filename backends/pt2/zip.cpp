#include "backends/pt2/zip.h"

#include <fmt/format.h>
#include <zip.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "schedules/error.h"

namespace pw::pt2 {
namespace {

// Record signatures and fixed sizes of PKWARE's APPNOTE 6.3.10, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16.
constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocator64Signature = 0x07064b50;
constexpr std::int64_t kLocalSize = 30;
constexpr std::size_t kCentralSize = 46;
constexpr std::size_t kEndSize = 22;
constexpr std::int64_t kEnd64Size = 56;
constexpr std::size_t kLocator64Size = 20;
constexpr std::int64_t kLongestComment = 65535;
constexpr std::uint16_t kZip64Extra = 1;

/// Little-endian integer of `size` bytes; the caller has checked the range.
std::uint64_t little(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = size; i > 0; --i) {
    value = value << 8U | static_cast<unsigned char>(bytes[at + i - 1]);
  }
  return value;
}

/// An entry as the central directory has it.
struct DirectoryEntry {
  std::string name;
  std::uint64_t flags = 0;
  std::uint64_t method = 0;
  std::uint64_t compressed = 0;
  std::uint64_t bytes = 0;
  std::uint64_t local = 0;
};

struct DirectoryPlace {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t count = 0;
};

/// Random access to the file with every range checked.
class ZipFile {
 public:
  /// `kind`: what the file should be, for messages. Places are from the file's start plus `begin`.
  ZipFile(const std::string& path, std::string_view kind, std::uint64_t begin = 0,
          std::uint64_t most = std::numeric_limits<std::uint64_t>::max())
      : path_(path), kind_(kind), begin_(begin) {
    std::error_code ignored;
    const std::filesystem::file_status status = std::filesystem::status(path, ignored);
    if (!std::filesystem::exists(status)) {
      throw UsageError(fmt::format("{} does not exist; check the path", path));
    }
    if (!std::filesystem::is_regular_file(status)) {
      throw UsageError(fmt::format("{} is not a file; give a {}", path, kind));
    }
    stream_.open(path, std::ios::binary);
    stream_.seekg(0, std::ios::end);
    const std::streamoff end = stream_ ? static_cast<std::streamoff>(stream_.tellg()) : -1;
    if (end < 0) {
      throw UsageError(fmt::format("{} cannot be read; check its permissions", path));
    }
    size_ = std::min(static_cast<std::uint64_t>(end) - std::min(begin, static_cast<std::uint64_t>(end)), most);
  }

  [[nodiscard]] std::uint64_t size() const { return size_; }

  [[nodiscard]] std::string read(std::uint64_t offset, std::uint64_t count) {
    if (offset > size_ || count > size_ - offset) {
      cutShort();
    }
    std::string bytes(static_cast<std::size_t>(count), '\0');
    stream_.clear();
    stream_.seekg(static_cast<std::streamoff>(begin_ + offset));
    stream_.read(bytes.data(), static_cast<std::streamsize>(count));
    if (!stream_) {
      throw UsageError(fmt::format("{} cannot be read at byte {}", path_, offset));
    }
    return bytes;
  }

  [[noreturn]] void cutShort() const {
    throw UsageError(fmt::format("{} is not a complete zip archive: it is truncated or damaged; copy or export it again", path_));
  }

  [[nodiscard]] DirectoryPlace findDirectory() {
    const std::uint64_t wanted = std::min<std::uint64_t>(size_, kEndSize + kLongestComment + kLocator64Size);
    const std::string tail = read(size_ - wanted, wanted);
    if (tail.size() < kEndSize) {
      throw UsageError(fmt::format("{} is not a {}: it is too small to be a zip file; give one", path_, kind_));
    }
    std::size_t at = tail.size() - kEndSize + 1;
    bool found = false;
    while (!found && at > 0) {
      --at;
      found = little(tail, at, 4) == kEndSignature && at + kEndSize + little(tail, at + 20, 2) == tail.size();
    }
    if (!found) {
      throw UsageError(fmt::format("{} is not a {}: it is not a zip file, or truncated; give one", path_, kind_));
    }
    if (at >= kLocator64Size && little(tail, at - kLocator64Size, 4) == kLocator64Signature) {
      const std::string record = read(little(tail, at - kLocator64Size + 8, 8), kEnd64Size);
      if (little(record, 0, 4) != kEnd64Signature) {
        cutShort();
      }
      return {little(record, 48, 8), little(record, 40, 8), little(record, 32, 8)};
    }
    return {little(tail, at + 16, 4), little(tail, at + 12, 4), little(tail, at + 10, 2)};
  }

  [[nodiscard]] std::vector<DirectoryEntry> readDirectory() {
    const DirectoryPlace place = findDirectory();
    const std::string bytes = read(place.offset, place.size);
    std::vector<DirectoryEntry> entries;
    std::size_t at = 0;
    while (entries.size() < place.count) {
      if (bytes.size() - at < kCentralSize || little(bytes, at, 4) != kCentralSignature) {
        cutShort();
      }
      const std::size_t nameSize = little(bytes, at + 28, 2);
      const std::size_t extraSize = little(bytes, at + 30, 2);
      const std::size_t whole = kCentralSize + nameSize + extraSize + little(bytes, at + 32, 2);
      if (bytes.size() - at < whole) {
        cutShort();
      }
      DirectoryEntry entry{bytes.substr(at + kCentralSize, nameSize),
                           little(bytes, at + 8, 2),
                           little(bytes, at + 10, 2),
                           little(bytes, at + 20, 4),
                           little(bytes, at + 24, 4),
                           little(bytes, at + 42, 4)};
      widen(entry, std::string_view(bytes).substr(at + kCentralSize + nameSize, extraSize));
      entries.push_back(std::move(entry));
      at += whole;
    }
    return entries;
  }

  /// Where the entry's data starts, after checking the local header against the directory.
  [[nodiscard]] ZipEntry locate(const DirectoryEntry& entry) {
    const std::string header = read(entry.local, kLocalSize);
    const std::uint64_t nameSize = little(header, 26, 2);
    const std::uint64_t start = entry.local + static_cast<std::uint64_t>(kLocalSize) + nameSize + little(header, 28, 2);
    const bool agrees = little(header, 0, 4) == kLocalSignature && little(header, 8, 2) == entry.method && nameSize == entry.name.size() &&
                        read(entry.local + kLocalSize, nameSize) == entry.name;
    if (!agrees) {
      throw UsageError(fmt::format("{} is damaged: the header of its entry {} is not where the directory says; copy or export it again",
                                   path_, printable(entry.name)));
    }
    if (entry.method != ZIP_CM_STORE || (entry.flags & 1U) != 0 || entry.compressed != entry.bytes) {
      throw UsageError(
          fmt::format("{} holds a compressed or encrypted entry {}; torch stores entries uncompressed, so do not repack the archive", path_,
                      printable(entry.name)));
    }
    if (start > size_ || entry.bytes > size_ - start) {
      cutShort();
    }
    return {static_cast<std::int64_t>(begin_ + start), static_cast<std::int64_t>(entry.bytes)};
  }

  /// A name from the file for a message: control characters and non-ASCII become `?`.
  [[nodiscard]] static std::string printable(std::string_view name) {
    std::string text(name.substr(0, 120));
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
  }

 private:
  /// Takes the 64-bit sizes and offset where the 32-bit fields are saturated (APPNOTE 4.5.3).
  void widen(DirectoryEntry& entry, std::string_view extra) const {
    constexpr std::uint64_t kSaturated = 0xffffffff;
    while (extra.size() >= 4) {
      const std::size_t size = little(extra, 2, 2);
      if (extra.size() - 4 < size) {
        cutShort();
      }
      if (little(extra, 0, 2) == kZip64Extra) {
        std::string_view fields = extra.substr(4, size);
        for (std::uint64_t* field : {&entry.bytes, &entry.compressed, &entry.local}) {
          if (*field == kSaturated) {
            if (fields.size() < 8) {
              cutShort();
            }
            *field = little(fields, 0, 8);
            fields.remove_prefix(8);
          }
        }
      }
      extra.remove_prefix(4 + size);
    }
    if (entry.bytes > size_ || entry.local > size_) {
      cutShort();
    }
  }

  const std::string path_;
  const std::string kind_;
  const std::uint64_t begin_;  ///< of the archive within the file
  std::ifstream stream_;
  std::uint64_t size_ = 0;
};

struct ZipCloser {
  void operator()(zip_t* zip) const { zip_discard(zip); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

/// The folder that holds the entry whose name ends so; empty without one.
std::string topFolder(const std::vector<DirectoryEntry>& directory, std::string_view end) {
  std::string top;
  const auto slashes = std::count(end.begin(), end.end(), '/');
  for (const DirectoryEntry& entry : directory) {
    if (entry.name.ends_with(end) && std::count(entry.name.begin(), entry.name.end(), '/') == slashes) {
      top = entry.name.substr(0, entry.name.size() - end.size());
    }
  }
  return top;
}

Archive locateAll(ZipFile& file, const std::string& path, const std::string& top, const std::vector<DirectoryEntry>& directory) {
  Archive archive{path, top, {}};
  const std::string prefix = top + "/";
  for (const DirectoryEntry& entry : directory) {
    if (entry.name.starts_with(prefix) && !archive.entries.emplace(entry.name.substr(prefix.size()), file.locate(entry)).second) {
      throw UsageError(fmt::format("{} is damaged: it has two entries {}", path, ZipFile::printable(entry.name)));
    }
  }
  return archive;
}

}  // namespace

Archive openArchive(const std::string& path) {
  constexpr std::string_view kModel = "/models/model.json";
  ZipFile file(path, "torch.export archive");
  const std::vector<DirectoryEntry> directory = file.readDirectory();
  const std::string top = topFolder(directory, kModel);
  if (top.empty()) {
    throw UsageError(
        fmt::format("{} is a zip file but no torch.export archive: it has no models/model.json (torch.save and "
                    "AOTInductor files cannot be used); make one with resources/export_model.py",
                    path));
  }
  return locateAll(file, path, top, directory);
}

Archive openSavedArchive(const std::string& path, std::int64_t begin, std::int64_t bytes) {
  ZipFile file(path, "file of torch.save", static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(bytes));
  const std::vector<DirectoryEntry> directory = file.readDirectory();
  const std::string top = topFolder(directory, "/data.pkl");
  if (top.empty()) throw UsageError(fmt::format("{} is a zip file but not a file of torch.save: it has no data.pkl", path));
  return locateAll(file, path, top, directory);
}

std::map<std::string, std::string> readEntries(const Archive& archive, const std::initializer_list<const char*>& names) {
  int code = 0;
  const std::unique_ptr<zip_t, ZipCloser> zip(zip_open(archive.path.c_str(), ZIP_RDONLY, &code));
  if (zip == nullptr) {
    throw UsageError(fmt::format("{} is not a complete zip archive: it is truncated or damaged; copy or export it again", archive.path));
  }
  std::map<std::string, std::string> texts;
  for (const char* name : names) {
    const auto found = archive.entries.find(name);
    if (found == archive.entries.end()) {
      continue;
    }
    const std::string whole = archive.top + "/" + name;
    const std::unique_ptr<zip_file_t, ZipCloser> file(zip_fopen(zip.get(), whole.c_str(), 0));
    std::string text(static_cast<std::size_t>(found->second.bytes), '\0');
    char beyond = 0;  // the checksum is verified by the read that meets the end
    if (file == nullptr || zip_fread(file.get(), text.data(), text.size()) != found->second.bytes ||
        zip_fread(file.get(), &beyond, 1) != 0) {
      throw UsageError(
          fmt::format("{} is damaged: its entry {} cannot be read whole (a byte changed, or it is truncated); copy or "
                      "export it again",
                      archive.path, ZipFile::printable(whole)));
    }
    texts.emplace(name, std::move(text));
  }
  return texts;
}

}  // namespace pw::pt2
