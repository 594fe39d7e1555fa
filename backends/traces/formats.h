#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

/// The files of traces that are read, each by one importer.
enum class TraceFormat : std::uint8_t { Chrome, Nsight, Chakra, ChakraJson, Primus, SpanCsv };

/// What is said of a format to people and to dialogs: the one list of what can be opened.
struct TraceFormatFacts {
  std::string_view name;     ///< `Kineto or Chrome trace`
  std::string_view writers;  ///< who writes it
  std::string_view endings;  ///< of its files' names, separated by blanks; the first is the usual one
};
constexpr TraceFormatFacts factsOf(TraceFormat format) {
  switch (format) {
    case TraceFormat::Chrome: return {"Kineto or Chrome trace", "torch.profiler, NDTimeline, Pipewright", ".json .json.gz"};
    case TraceFormat::Nsight: return {"Nsight Systems export", "nsys export --type sqlite", ".sqlite"};
    case TraceFormat::Chakra: return {"Chakra execution trace", "Chakra's converters and generators", ".et .et.gz"};
    case TraceFormat::ChakraJson: return {"Chakra execution trace as JSON", "Chakra's jsonizer and feeder", ".json .json.gz"};
    case TraceFormat::Primus: return {"Primus dump", "Primus with dump_pp_data", ".json"};
    case TraceFormat::SpanCsv: return {"table of spans", "pipewright export --to csv", ".csv"};
  }
  return {};
}
inline constexpr std::array kTraceFormats{TraceFormat::Chrome,     TraceFormat::Nsight, TraceFormat::Chakra,
                                          TraceFormat::ChakraJson, TraceFormat::Primus, TraceFormat::SpanCsv};

/// Of which a folder holds one file for each rank, or host.
inline constexpr std::array kFolderFormats{TraceFormat::Chrome, TraceFormat::Nsight, TraceFormat::Chakra};

/// Whether the name ends as those of a format's files do.
[[nodiscard]] bool hasEnding(std::string_view name, TraceFormat format);

/// Every ending of such traces' names once, as in a filter of a dialog: `.json`, `.json.gz`, `.sqlite`, …
[[nodiscard]] std::vector<std::string> traceEndings(std::span<const TraceFormat> formats = kTraceFormats);

/// The first bytes of a file, unpacked where it is compressed by gzip; empty where it cannot be read. At most 4096.
[[nodiscard]] std::string headOfTrace(const std::string& path);

/// The format of a file by its content, where that tells it apart from all else this program reads; JSON that is neither Chakra's nor a
/// dump's counts as Chrome's. Nothing for a folder and for a file that is none. Reads the first 4096 bytes, and the names of a database's
/// tables.
[[nodiscard]] std::optional<TraceFormat> traceFormatOf(const std::string& path);

/// Whether it is a trace and not some other JSON or CSV, by its first bytes alone; of a folder, whether any file is named like a trace.
[[nodiscard]] bool isCertainlyTrace(const std::string& path);

}  // namespace pw
