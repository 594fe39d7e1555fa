#include "simulator/trace/trace_csv.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/text/number_text.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

constexpr std::size_t kColumns = 8;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  ///< of a message
constexpr std::int64_t kMostTime = 4'000'000'000'000'000;   ///< 46 days

/// A line of the table while it is read.
struct Line {
  std::array<std::string_view, kColumns> cells;
  std::size_t number = 0;
  std::string_view source;

  [[noreturn]] void refuse(const std::string& what) const {
    throw UsageError(fmt::format("{} line {}: {}; the columns are {}", source, number, what, kSpanCsvHead));
  }

  [[nodiscard]] std::int64_t whole(std::size_t column, std::int64_t least, std::int64_t most) const {
    const std::string_view cell = cells[column];
    const auto value = numberOf<std::int64_t>(cell);
    if (!value || *value < least || *value > most)
      refuse(fmt::format("\"{}\" is not an integer from {} to {}", cell.substr(0, 40), least, most));
    return *value;
  }
  template <class Id>
  [[nodiscard]] Id id(std::size_t column, std::int64_t least, std::int64_t limit) const {
    return Id(static_cast<std::int32_t>(whole(column, least, limit - 1)));
  }

  [[nodiscard]] SpanKind kind() const {
    if (const auto kind = valueNamed<SpanKind>(cells[1])) return *kind;
    refuse(fmt::format("\"{}\" is not a kind of span", cells[1].substr(0, 40)));
  }
};

/// Removes the first line from the text and returns it without its line end.
std::string_view takeLine(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

Line cellsOf(std::string_view line, std::size_t number, std::string_view source) {
  Line cells{{}, number, source};
  for (std::size_t c = 0; c < kColumns; ++c) {
    const std::size_t comma = line.find(',');
    if ((comma == std::string_view::npos) != (c + 1 == kColumns)) cells.refuse(fmt::format("it does not have {} cells", kColumns));
    cells.cells[c] = line.substr(0, comma);
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
  }
  return cells;
}

}  // namespace

std::string toSpanCsv(const Trace& trace) {
  std::string text(kSpanCsvHead);
  text += '\n';
  const auto out = std::back_inserter(text);
  for (const Span& s : trace.spans) {
    fmt::format_to(out, "{},{},{},{},{},{},{},{}\n", s.rank.value, nameOf(s.kind), s.stage.value, s.microbatch.value, s.peer.value,
                   s.bytes.value, s.start.value, s.end.value);
  }
  return text;
}

Trace parseSpanCsv(std::string_view text, std::string_view source) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (takeLine(text) != kSpanCsvHead)
    throw UsageError(fmt::format("{} is not a table of spans: its first line is not {}", source, kSpanCsvHead));
  Trace trace;
  for (std::size_t number = 2; !text.empty(); ++number) {
    const std::string_view line = takeLine(text);
    if (line.empty()) continue;
    const Line cells = cellsOf(line, number, source);
    const Span span{cells.id<Rank>(0, 0, kMaxRanks),           cells.kind(),
                    cells.id<Stage>(2, -1, kMaxStages),        cells.id<Microbatch>(3, -1, kMaxMicrobatches),
                    cells.id<Rank>(4, 0, kMaxRanks),           Bytes(cells.whole(5, 0, kMostBytes)),
                    Ns(cells.whole(6, -kMostTime, kMostTime)), Ns(cells.whole(7, -kMostTime, kMostTime))};
    if (span.end < span.start) cells.refuse("the span ends before it starts");
    if (isCompute(span.kind) && span.stage.value < 0) cells.refuse("an action needs its stage");
    trace.ranks = std::max({trace.ranks, span.rank.value + 1, span.peer.value + 1});
    trace.spans.push_back(span);
  }
  if (trace.spans.empty()) throw UsageError(fmt::format("{} contains no span; one line per span must follow the header", source));
  normalize(trace);
  if (!isSummable(trace))
    throw UsageError(fmt::format("{} has times too long to add up; use nanoseconds from the start of the step", source));
  return trace;
}

}  // namespace pw
