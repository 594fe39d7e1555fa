#include "backends/traces/import.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "backends/host/paths.h"
#include "backends/traces/events.h"
#include "backends/traces/ndtimeline.h"
#include "schedules/error.h"
#include "simulator/trace/trace_csv.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestTable = std::uintmax_t{1} << 30;
constexpr std::size_t kMostFiles = 4096;

/// Orders `rank10` after `rank9`.
bool naturallyBefore(const std::string& a, const std::string& b) {
  std::size_t i = 0, j = 0;
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  const auto runOf = [&](const std::string& text, std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && isDigit(text[end])) ++end;
    std::size_t first = at;
    while (first + 1 < end && text[first] == '0') ++first;
    return std::pair{text.substr(first, end - first), end};
  };
  while (i < a.size() && j < b.size()) {
    if (isDigit(a[i]) && isDigit(b[j])) {
      const auto [x, xEnd] = runOf(a, i);
      const auto [y, yEnd] = runOf(b, j);
      if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
      i = xEnd;
      j = yEnd;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j || (a.size() - i == b.size() - j && a < b);
}

std::string startOf(const std::string& path) {
  constexpr std::size_t kEnough = 4096;
  std::ifstream file(path, std::ios::binary);
  std::string text(kEnough, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

/// The folder of a Primus dump a path belongs to; empty where it does not.
std::string primusFolder(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return fs::exists(path / "pp_rank_0.json", ignored) ? path.string() : "";
  const std::string name = path.filename().string();
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const bool ofDump = name == "config.json" || (name.starts_with("pp_rank_") && name.ends_with(".json"));
  if (!ofDump || !fs::exists(folder / "pp_rank_0.json", ignored)) return "";
  const std::string text = startOf((folder / "pp_rank_0.json").string());
  return text.find("traceEvents") == std::string::npos ? folder.string() : "";
}

/// The paths, and for a folder the traces in it.
std::vector<std::string> filesOf(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code problem;
    if (!fs::is_directory(path, problem)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (fs::directory_iterator at(path, problem), end; !problem && at != end && inside.size() <= kMostFiles; at.increment(problem)) {
      const std::string name = at->path().filename().string();
      if (name.ends_with(".json") || name.ends_with(".json.gz")) inside.push_back(at->path().string());
    }
    if (problem) throw UsageError(fmt::format("{} cannot be read: {}; check its permissions", path, problem.message()));
    if (inside.empty())
      throw UsageError(fmt::format("{} holds no .json or .json.gz file; open the folder that torch.profiler or Primus wrote", path));
    std::sort(inside.begin(), inside.end(), naturallyBefore);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  if (files.size() > kMostFiles)
    throw UsageError(fmt::format("{} files are more than {}; open those of one pipeline", files.size(), kMostFiles));
  return files;
}

std::string titleOf(const std::string& path) {
  const fs::path clean = fs::path(path).lexically_normal();
  return (clean.has_filename() ? clean.filename() : clean.parent_path().filename()).string();
}

ImportedTrace readTable(const std::string& path) {
  std::error_code problem;
  if (fs::file_size(path, problem) > kLargestTable)
    throw UsageError(fmt::format("{} is a table of more than 1 GiB; export the trace as Chrome JSON instead", path));
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Trace trace = parseSpanCsv(text, path);
  ImportedTrace result;
  const std::size_t cut = cutOverlaps(trace.spans, trace.ranks);
  if (cut > 0)
    result.notes.push_back(fmt::format("{} cut or left out, because they lie over others of the same rank.", countedEvents(cut, "action")));
  result.steps.push_back({"trace", std::move(trace)});
  return result;
}

}  // namespace

std::optional<ImportedTrace> importTrace(const std::vector<std::string>& paths, const ImportProgress& progress) {
  if (paths.empty()) throw UsageError("no trace was named; give a file or a folder");
  const std::string folder = primusFolder(paths.front());
  if (!folder.empty()) {
    ImportedTrace result = readPrimus(folder);
    result.title = titleOf(absolutePath(folder));
    return result;
  }
  if (paths.size() == 1 && startOf(paths.front()).find(kSpanCsvHead.substr(0, 16)) <= 3) {
    ImportedTrace result = readTable(paths.front());
    result.title = titleOf(paths.front());
    return result;
  }
  const std::vector<std::string> names = filesOf(paths);
  std::uint64_t all = 0, before = 0;
  for (const std::string& name : names) {
    std::error_code missing;
    const std::uintmax_t size = fs::file_size(name, missing);
    all += missing ? 0 : size;
  }
  if (isNdTimeline(names.front())) {
    std::vector<std::uint64_t> read(names.size());
    const auto events = readNdFiles(names, [&](std::size_t file, std::uint64_t bytes) {
      read[file] = bytes;
      return !progress || progress(std::min(std::accumulate(read.begin(), read.end(), std::uint64_t{0}), all), all);
    });
    return events ? std::optional(ndSteps(*events, titleOf(paths.front()))) : std::nullopt;
  }
  std::vector<FileEvents> files;
  for (const std::string& name : names) {
    const auto advance = [&](std::uint64_t bytes) { return !progress || progress(std::min(before + bytes, all), all); };
    std::optional<FileEvents> file = readChromeFile(name, advance);
    if (!file) return std::nullopt;
    files.push_back(std::move(*file));
    std::error_code missing;
    const std::uintmax_t size = fs::file_size(name, missing);
    before += missing ? 0 : size;
  }
  ImportedTrace result = assemble(std::move(files), titleOf(paths.front()));
  return result;
}

}  // namespace pw
