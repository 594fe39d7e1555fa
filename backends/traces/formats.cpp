#include "backends/traces/formats.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "backends/traces/readers/chakra.h"
#include "backends/traces/readers/tables.h"
#include "schedules/error.h"
#include "simulator/trace/trace_csv.h"

namespace pw {
namespace {

/// Whether a line of a log begins here: `[2025-01-01 10:00:00] iteration`, `[rank0]: times`.
bool isBracketed(std::string_view text) {
  const std::size_t end = text.find_first_of("]\n\"{,");
  return text.size() > 1 && std::isalnum(static_cast<unsigned char>(text[1])) != 0 && end != std::string_view::npos && text[end] == ']' &&
         end + 1 < text.size() && (text[end + 1] == ' ' || text[end + 1] == ':');
}

/// A run store and a study are databases too.
bool isNsightExport(const std::string& path) {
  try {
    const TableFile tables(path, {});
    return tables.hasTable("NVTX_EVENTS") || (tables.hasTable("StringIds") && !tables.hasTable("run"));
  } catch (const UsageError&) {  // damaged: whoever opens it says so
    return false;
  }
}

bool isDumpOfPrimus(const std::string& path, const std::string& head) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (!name.starts_with("pp_rank_") && name != "config.json") return false;
  std::error_code ignored;
  return head.find("traceEvents") == std::string::npos &&
         std::filesystem::exists(std::filesystem::path(path).parent_path() / "pp_rank_0.json", ignored);
}

std::vector<std::string_view> endingsOf(TraceFormat format) {
  std::vector<std::string_view> endings;
  std::string_view text = factsOf(format).endings;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    endings.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return endings;
}

bool holdsTraces(const std::string& folder) {
  std::error_code problem;
  for (std::filesystem::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (std::ranges::any_of(kFolderFormats, [&](TraceFormat format) { return hasEnding(name, format); })) return true;
  }
  return static_cast<bool>(problem);  // whoever reads it says why it cannot
}

}  // namespace

bool hasEnding(std::string_view name, TraceFormat format) {
  return std::ranges::any_of(endingsOf(format), [&](std::string_view ending) { return name.ends_with(ending); });
}

std::vector<std::string> traceEndings(std::span<const TraceFormat> formats) {
  std::vector<std::string> endings;
  for (const TraceFormat format : formats) {
    for (const std::string_view ending : endingsOf(format)) {
      if (std::ranges::find(endings, ending) == endings.end()) endings.emplace_back(ending);
    }
  }
  return endings;
}

std::string headOfTrace(const std::string& path) {
  constexpr std::size_t kEnough = 4096;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat facts {};
  if (file < 0) return {};
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(file);
    return {};
  }
  gzFile zipped = gzdopen(file, "rb");  // which closes the file, and reads one that is not compressed as it is
  if (zipped == nullptr) {
    close(file);
    return {};
  }
  std::string text(kEnough, '\0');
  const int got = gzread(zipped, text.data(), static_cast<unsigned>(text.size()));
  text.resize(static_cast<std::size_t>(std::max(0, got)));
  gzclose(zipped);
  return text;
}

std::optional<TraceFormat> traceFormatOf(const std::string& path) {
  const std::string head = headOfTrace(path);
  if (head.starts_with("SQLite format 3")) return isNsightExport(path) ? std::optional(TraceFormat::Nsight) : std::nullopt;
  if (head.find(kSpanCsvHead.substr(0, 16)) <= 3) return TraceFormat::SpanCsv;
  const std::size_t mark = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  const bool json =
      mark != std::string::npos && (head[mark] == '{' || (head[mark] == '[' && !isBracketed(std::string_view(head).substr(mark))));
  if (isChakraJson(head)) return TraceFormat::ChakraJson;
  if (json && isDumpOfPrimus(path, head)) return TraceFormat::Primus;
  if (json) return TraceFormat::Chrome;
  if (isChakra(head)) return TraceFormat::Chakra;
  return std::nullopt;
}

bool isCertainlyTrace(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return holdsTraces(path);
  const std::optional<TraceFormat> format = traceFormatOf(path);
  if (format != TraceFormat::Chrome) return format.has_value();
  const std::string head = headOfTrace(path);
  const auto holds = [&](std::string_view key) { return head.find(key) != std::string::npos; };
  return holds("\"traceEvents\"") || holds("\"schemaVersion\"") || holds("\"deviceProperties\"") || holds("\"ph\"");
}

}  // namespace pw
