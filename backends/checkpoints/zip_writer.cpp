#include "backends/checkpoints/zip_writer.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::uint64_t kSaturated = 0xffffffff, kManyEntries = 0xffff;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kChecksumPlace = 14;         ///< in a local header
constexpr std::uint64_t kUnsettled = 256U << 20U;  ///< bytes that may wait for the disk

/// Little-endian fields one after the other.
struct Fields {
  std::string bytes;

  Fields& put(std::uint64_t number, int width) {
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
    return *this;
  }
};

}  // namespace

ZipWriter::ZipWriter(const std::string& path) : path_(path), part_(path) {
  if (part_.descriptor() < 0) fail("cannot be written", errno);
}

void ZipWriter::fail(const std::string& what, int reason) const {
  const char* cure = reason == ENOSPC || reason == EDQUOT || reason == EFBIG ? "make room" : "check the folder and its permissions";
  throw Error(fmt::format("{} {}: {}; {}.", path_, what, std::strerror(reason), cure));
}

void ZipWriter::write(const void* bytes, std::size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(part_.descriptor(), at, std::min<std::size_t>(count, 1U << 30U));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("cannot be written", written < 0 ? errno : ENOSPC);
    at += written;
    count -= static_cast<std::size_t>(written);
    size_ += static_cast<std::uint64_t>(written);
  }
}

void ZipWriter::settle() {
  if (size_ - settled_ < kUnsettled) return;
  if (::fdatasync(part_.descriptor()) != 0) fail("cannot be written", errno);
  settled_ = size_;
}

void ZipWriter::add(const std::string& name, std::string_view text) {
  add(name, reinterpret_cast<const std::byte*>(text.data()), text.size());
}

void ZipWriter::add(const std::string& name, const std::byte* bytes, std::size_t count) {
  Entry entry{name, size_, count, 0};
  const bool isLarge = count >= kSaturated;
  Fields extra;
  if (isLarge) extra.put(1, 2).put(16, 2).put(count, 8).put(count, 8);
  const std::size_t begin = static_cast<std::size_t>(size_) + 30 + name.size() + extra.bytes.size() + 4;
  const std::size_t padding = (kAlignment - begin % kAlignment) % kAlignment;
  extra.put(0x4246, 2).put(padding, 2).bytes.append(padding, '\0');  // torch's own padding field, "FB"
  const std::uint64_t shown = isLarge ? kSaturated : count;
  Fields header;
  header.put(0x04034b50, 4).put(isLarge ? 45 : 20, 2).put(0x0800, 2).put(0, 2).put(0, 4).put(0, 4).put(shown, 4).put(shown, 4);
  header.put(name.size(), 2).put(extra.bytes.size(), 2);
  header.bytes += name + extra.bytes;
  write(header.bytes.data(), header.bytes.size());
  constexpr std::size_t kPiece = 1U << 18U;  // stays in the cache between the sum and the copy
  for (std::size_t done = 0; done < count; done += kPiece) {
    const std::size_t piece = std::min(kPiece, count - done);
    entry.checksum = static_cast<std::uint32_t>(crc32_z(entry.checksum, reinterpret_cast<const unsigned char*>(bytes) + done, piece));
    write(bytes + done, piece);
    settle();
  }
  Fields sum;
  sum.put(entry.checksum, 4);
  if (::pwrite(part_.descriptor(), sum.bytes.data(), 4, static_cast<off_t>(entry.offset + kChecksumPlace)) != 4)
    fail("cannot be written", errno);
  entries_.push_back(std::move(entry));
}

void ZipWriter::writeDirectory() {
  const std::uint64_t begin = size_ - begin_;
  for (const Entry& entry : entries_) {
    Fields extra, wide;
    if (entry.bytes >= kSaturated) wide.put(entry.bytes, 8).put(entry.bytes, 8);
    const std::uint64_t place = entry.offset - begin_;
    if (place >= kSaturated) wide.put(place, 8);
    if (!wide.bytes.empty()) extra.put(1, 2).put(wide.bytes.size(), 2).bytes += wide.bytes;
    const std::uint64_t shown = std::min(entry.bytes, kSaturated), version = wide.bytes.empty() ? 20 : 45;
    Fields header;
    header.put(0x02014b50, 4).put(version, 2).put(version, 2).put(0x0800, 2).put(0, 2).put(0, 4).put(entry.checksum, 4);
    header.put(shown, 4).put(shown, 4).put(entry.name.size(), 2).put(extra.bytes.size(), 2).put(0, 2).put(0, 2).put(0, 2).put(0, 4);
    header.put(std::min(place, kSaturated), 4);
    header.bytes += entry.name + extra.bytes;
    write(header.bytes.data(), header.bytes.size());
  }
  const std::uint64_t end = size_ - begin_, count = entries_.size();
  Fields tail;
  if (end >= kSaturated || count >= kManyEntries) {
    tail.put(0x06064b50, 4)
        .put(44, 8)
        .put(45, 2)
        .put(45, 2)
        .put(0, 4)
        .put(0, 4)
        .put(count, 8)
        .put(count, 8)
        .put(end - begin, 8)
        .put(begin, 8);
    tail.put(0x07064b50, 4).put(0, 4).put(end, 8).put(1, 4);
  }
  const std::uint64_t shown = std::min(count, kManyEntries);
  tail.put(0x06054b50, 4).put(0, 2).put(0, 2).put(shown, 2).put(shown, 2);
  tail.put(std::min(end - begin, kSaturated), 4).put(std::min(begin, kSaturated), 4).put(0, 2);
  write(tail.bytes.data(), tail.bytes.size());
}

ZipWriter::Extent ZipWriter::endArchive() {
  writeDirectory();
  entries_.clear();
  const Extent extent{begin_, size_ - begin_};
  begin_ = size_;
  return extent;
}

void ZipWriter::finish() {
  if (!entries_.empty()) endArchive();
  if (!part_.replaceDurably()) fail("cannot be replaced", errno);
}

}  // namespace pw
