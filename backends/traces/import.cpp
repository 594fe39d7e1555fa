#include "backends/traces/import.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/host/files.h"
#include "backends/host/paths.h"
#include "backends/traces/events/events.h"
#include "backends/traces/events/spans.h"
#include "backends/traces/formats.h"
#include "backends/traces/names/patterns.h"
#include "backends/traces/readers/chakra.h"
#include "backends/traces/readers/ndtimeline.h"
#include "backends/traces/readers/ndtimeline_steps.h"
#include "backends/traces/readers/readers.h"
#include "backends/traces/recovery/assemble.h"
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

/// The folder of a Primus dump a path belongs to; empty where it does not.
std::string primusFolder(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return fs::exists(path / "pp_rank_0.json", ignored) ? path.string() : "";
  const std::string name = path.filename().string();
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const bool ofDump = name == "config.json" || (name.starts_with("pp_rank_") && name.ends_with(".json"));
  if (!ofDump || !fs::exists(folder / "pp_rank_0.json", ignored)) return "";
  const std::string text = headOfTrace((folder / "pp_rank_0.json").string());
  return text.find("traceEvents") == std::string::npos ? folder.string() : "";
}

/// Without other JSON files that lie beside traces: settings, tables of results.
std::vector<std::string> tracesAmong(const std::vector<std::string>& files, std::vector<std::string>& notes) {
  std::vector<std::string> traces;
  std::string others;
  for (const std::string& file : files) {
    if (traceFormatOf(file) != TraceFormat::Chrome || isCertainlyTrace(file)) {
      traces.push_back(file);
    } else {
      others += (others.empty() ? "" : ", ") + fs::path(file).filename().string();
    }
  }
  if (others.empty() || std::ranges::none_of(traces, isCertainlyTrace)) return files;
  notes.push_back(fmt::format("Of the folder's files these are no traces, and were not read: {}.", others));
  return traces;
}

/// The traces in a folder: of one format, the first in their order that has any.
std::vector<std::string> filesIn(const std::string& folder, std::vector<std::string>& notes) {
  std::vector<std::string> all;
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end && all.size() <= kMostFiles; at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (std::ranges::any_of(kFolderFormats, [&](TraceFormat format) { return hasEnding(name, format); }))
      all.push_back(at->path().string());
  }
  if (problem) throw UsageError(fmt::format("{} cannot be read: {}; check its permissions", folder, problem.message()));
  std::sort(all.begin(), all.end(), naturallyBefore);
  for (const TraceFormat format : kFolderFormats) {
    std::vector<std::string> inside;
    std::ranges::copy_if(all, std::back_inserter(inside), [&](const std::string& name) { return hasEnding(name, format); });
    if (inside.empty()) continue;
    if (inside.size() < all.size())
      notes.push_back(fmt::format("Of the folder's files only {}s were read; open the others by themselves.", factsOf(format).name));
    return tracesAmong(inside, notes);
  }
  throw UsageError(fmt::format("{} holds no trace ({}); open the folder that torch.profiler, Primus, Nsight Systems or Chakra wrote",
                               folder, fmt::join(traceEndings(kFolderFormats), " ")));
}

/// The paths, and for a folder the traces in it.
std::vector<std::string> filesOf(const std::vector<std::string>& paths, std::vector<std::string>& notes) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code problem;
    if (!fs::is_directory(path, problem)) {
      files.push_back(path);
      continue;
    }
    const std::vector<std::string> inside = filesIn(path, notes);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  if (files.size() > kMostFiles)
    throw UsageError(fmt::format("{} files are more than {}; open those of one pipeline", files.size(), kMostFiles));
  return files;
}

constexpr std::string_view kNdTimeline = "NDTimeline";

/// What tells recordings apart that files of another kind cannot be part of; empty for traces of processes, which are put together.
std::string recordingOf(const std::string& path) {
  if (const std::string folder = primusFolder(path); !folder.empty()) return folder;
  if (traceFormatOf(path) == TraceFormat::SpanCsv) return path;
  std::vector<std::string> ignored;
  const std::string first = filesOf({path}, ignored).front();
  return traceFormatOf(first) == TraceFormat::Chrome && isNdTimeline(first) ? std::string(kNdTimeline) : std::string();
}

std::string titleOf(const std::string& path) {
  const fs::path clean = fs::path(path).lexically_normal();
  return (clean.has_filename() ? clean.filename() : clean.parent_path().filename()).string();
}

std::uint64_t sizeOf(const std::string& path) {
  std::error_code missing;
  const std::uintmax_t size = fs::file_size(path, missing);
  return missing ? 0 : size;
}

ImportedTrace readTable(const std::string& path) {
  if (sizeOf(path) > kLargestTable)
    throw UsageError(fmt::format("{} is a table of more than 1 GiB; export the trace as Chrome JSON instead", path));
  Trace trace = parseSpanCsv(readFile(path), path);
  ImportedTrace result;
  const std::size_t cut = cutOverlaps(trace.spans, trace.ranks);
  if (cut > 0)
    result.notes.push_back(fmt::format("{} cut or left out, because they lie over others of the same rank.", countedEvents(cut, "action")));
  result.steps.push_back({"trace", std::move(trace)});
  return result;
}

std::optional<FileEvents> readEvents(const std::string& path, const NamePatterns& patterns,
                                     const std::function<bool(std::uint64_t)>& advance) {
  const std::optional<TraceFormat> format = traceFormatOf(path);
  if (!format && headOfTrace(path).starts_with("SQLite format 3"))
    throw UsageError(
        fmt::format("{} is a database, but not a usable export of Nsight Systems; give a trace, or a run store with --store", path));
  switch (format.value_or(TraceFormat::Chrome)) {
    case TraceFormat::Nsight: return readNsightFile(path, patterns, advance);
    case TraceFormat::Chakra:
    case TraceFormat::ChakraJson: return readChakraFile(path, patterns, advance);
    case TraceFormat::Chrome:
    case TraceFormat::Primus:
    case TraceFormat::SpanCsv: return readChromeFile(path, patterns, advance);  // which says what it is not
  }
  return std::nullopt;
}

}  // namespace

std::optional<ImportedTrace> importTrace(const std::vector<std::string>& paths, const ImportProgress& progress,
                                         const ImportOptions& options) {
  if (paths.empty()) throw UsageError("no trace was named; give a file or a folder");
  const NamePatterns patterns =
      options.patterns.empty() ? NamePatterns() : NamePatterns::parse(readFile(options.patterns), options.patterns);
  const std::string folder = primusFolder(paths.front());
  const std::string recording = recordingOf(paths.front());
  const auto other = std::find_if(paths.begin() + 1, paths.end(), [&](const std::string& path) { return recordingOf(path) != recording; });
  if (other != paths.end()) throw UsageError(fmt::format("{} and {} are not of one recording; import them apart", paths.front(), *other));
  if (!folder.empty()) {
    ImportedTrace result = readPrimus(folder);
    result.title = titleOf(absolutePath(folder));
    return result;
  }
  if (paths.size() == 1 && traceFormatOf(paths.front()) == TraceFormat::SpanCsv) {
    ImportedTrace result = readTable(paths.front());
    result.title = titleOf(paths.front());
    return result;
  }
  std::vector<std::string> notes;
  const std::vector<std::string> names = filesOf(paths, notes);
  std::uint64_t all = 0, before = 0;
  for (const std::string& name : names) all += sizeOf(name);
  if (recording == kNdTimeline) {
    std::vector<std::uint64_t> read(names.size());
    auto events = readNdFiles(names, [&](std::size_t file, std::uint64_t bytes) {
      read[file] = bytes;
      return !progress || progress(std::min(std::accumulate(read.begin(), read.end(), std::uint64_t{0}), all), all);
    });
    return events ? std::optional(ndSteps(*std::move(events), names, titleOf(paths.front()))) : std::nullopt;
  }
  std::vector<FileEvents> files;
  for (const std::string& name : names) {
    const auto advance = [&](std::uint64_t bytes) { return !progress || progress(std::min(before + bytes, all), all); };
    std::optional<FileEvents> file = readEvents(name, patterns, advance);
    if (!file) return std::nullopt;
    files.push_back(std::move(*file));
    before += sizeOf(name);
  }
  ImportedTrace result = assemble(std::move(files), titleOf(paths.front()));
  result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
  return result;
}

MeasuredJob measuredOf(ImportedTrace imported) {
  MeasuredJob measured{imported.title, imported.replicas, imported.tensor, imported.timedMessages, {}, std::move(imported.notes)};
  measured.lacksLastStages = imported.lacksLastStages;
  for (ImportedStep& step : imported.steps)
    measured.steps.push_back({step.name, std::move(step.trace), std::move(step.operations), step.begin});
  const auto isOf = [](TimesOf times) { return [times](const MeasuredStep& step) { return step.name.starts_with(nameOf(times)); }; };
  if (std::ranges::all_of(measured.steps, isOf(TimesOf::Predicted))) {
    measured.times = TimesOf::Predicted;
    return measured;
  }
  std::erase_if(measured.steps, isOf(TimesOf::Predicted));
  if (std::ranges::all_of(measured.steps, isOf(TimesOf::Rehearsed))) measured.times = TimesOf::Rehearsed;
  return measured;
}

}  // namespace pw
