#include "backends/host/contents.h"

#include <elf.h>
#include <zip.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPiece = 64 << 10, kPieces = 64;

struct ZipCloser {
  void operator()(zip_t* zip) const { zip_discard(zip); }
};

std::string read(std::ifstream& file, std::uint64_t at, std::uint64_t count) {
  std::string bytes(static_cast<std::size_t>(count), '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(at));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return bytes;
}

/// All of a small file, else pieces at equal distances, the first and the last included.
std::string sampled(const std::string& path) {
  std::error_code problem;
  if (!fs::exists(path, problem)) throw UsageError(fmt::format("{} does not exist; check the path.", path));
  const std::uint64_t size = fs::file_size(path, problem);
  std::ifstream file(path, std::ios::binary);
  if (problem || !file) throw UsageError(fmt::format("{} cannot be read; check its permissions.", path));
  Sha256 digest;
  digest.addField(std::to_string(size));
  const bool isSmall = size <= kPiece * kPieces;
  for (std::uint64_t i = 0; i < (isSmall ? 1 : kPieces); ++i)
    digest.addField(read(file, isSmall ? 0 : (size - kPiece) / (kPieces - 1) * i, isSmall ? size : kPiece));
  if (!isSmall) digest.addField(read(file, size - kPiece, kPiece));
  return digest.finish();
}

/// Below the top folder, which torch.save names after the file.
std::string_view belowTop(std::string_view name) { return name.substr(std::min(name.size(), name.find('/') + 1)); }

bool holdsTensors(std::string_view name) {
  return (name.starts_with("data/weights/") || name.starts_with("data/constants/")) && !name.ends_with(".json");
}

/// A note's build id in one program header's bytes; empty without.
std::string buildIdIn(std::string_view notes) {
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr header;
    std::memcpy(&header, notes.data(), sizeof header);
    const std::size_t name = sizeof header, bytes = name + (std::size_t{header.n_namesz} + 3) / 4 * 4,
                      end = bytes + (std::size_t{header.n_descsz} + 3) / 4 * 4;
    if (end > notes.size()) break;
    if (header.n_type == NT_GNU_BUILD_ID && notes.substr(name, 4) == std::string_view("GNU\0", 4))
      return std::string(notes.substr(bytes, header.n_descsz));
    notes.remove_prefix(end);
  }
  return "";
}

std::string buildIdOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string start = read(file, 0, sizeof(Elf64_Ehdr));
  if (start.size() < sizeof(Elf64_Ehdr) || !start.starts_with(ELFMAG) || start[EI_CLASS] != ELFCLASS64) return "";
  Elf64_Ehdr elf;
  std::memcpy(&elf, start.data(), sizeof elf);
  for (unsigned i = 0; i < elf.e_phnum; ++i) {
    Elf64_Phdr program;
    const std::string bytes = read(file, elf.e_phoff + std::uint64_t{i} * elf.e_phentsize, sizeof program);
    if (bytes.size() < sizeof program) return "";
    std::memcpy(&program, bytes.data(), sizeof program);
    if (program.p_type != PT_NOTE || program.p_filesz > kPiece) continue;
    if (std::string id = buildIdIn(read(file, program.p_offset, program.p_filesz)); !id.empty()) return id;
  }
  return "";
}

}  // namespace

std::string contentsOf(const std::string& path, bool weightsOnly) {
  int code = 0;
  const std::unique_ptr<zip_t, ZipCloser> zip(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (zip == nullptr) return hex(sampled(path)).substr(0, 32);
  Sha256 digest;
  bool checked = true;  // whether the archive's writer kept checksums: torch can be told not to
  const zip_int64_t entries = zip_get_num_entries(zip.get(), 0);
  for (zip_int64_t i = 0; i < entries; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(zip.get(), static_cast<zip_uint64_t>(i), 0, &stat) != 0) continue;
    const std::string_view name = belowTop(stat.name);
    if (weightsOnly ? !holdsTensors(name) : name.starts_with(".data/")) continue;  // the latter: of the act of saving
    checked = checked && (stat.crc != 0 || stat.size == 0);
    digest.addField(name).addField(std::to_string(stat.size)).addField(std::to_string(stat.crc));
  }
  if (!checked) digest.add(sampled(path));
  return hex(digest.finish()).substr(0, 32);
}

std::string buildOf(const std::string& executable) {
  const fs::path folder = fs::path(executable).parent_path();
  std::vector<std::string> files;
  for (const fs::path& place : {folder, folder / ".." / "lib"}) {
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(place, absent)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("libpw_") && name.ends_with(".so")) files.push_back(entry.path().string());
    }
  }
  std::ranges::sort(files, {}, [](const std::string& file) { return fs::path(file).filename(); });
  files.insert(files.begin(), executable);
  Sha256 digest;
  for (const std::string& file : files) {
    const std::string id = buildIdOf(file);
    digest.addField(file == executable ? "" : fs::path(file).filename().string()).addField(id.empty() ? sampled(file) : id);
  }
  return hex(digest.finish()).substr(0, 16);
}

}  // namespace pw
