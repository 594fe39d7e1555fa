#include "simulator/timeline/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "schedules/units.h"
#include "schedules/wide.h"
#include "simulator/report/metrics.h"
#include "simulator/trace/trace.h"

namespace pw {
namespace {

constexpr std::int64_t kSmallestDrawing = 10;
constexpr std::int64_t kTickDistance = 10;  ///< columns: a tick, up to seven digits, and some line between
constexpr std::string_view kBubble = "·";
constexpr std::string_view kReset = "\x1b[0m";

/// How a kind is drawn: a letter at the start of a block, then its fill. A fill is one column wide, whatever its number of bytes.
struct Look {
  SpanKind kind = SpanKind::Forward;
  std::string_view letter;
  std::string_view fill;
  std::string_view colour;
  std::string_view word;
};

/// Everything else is bubble: waits, and messages, which have their own lanes.
constexpr std::array<Look, 8> kLooks{{
    {SpanKind::Forward, "F", "░", "\x1b[30;46m", "forward"},
    {SpanKind::Backward, "B", "▓", "\x1b[30;43m", "backward"},
    {SpanKind::BackwardInput, "I", "▓", "\x1b[30;43m", "backward, inputs"},
    {SpanKind::BackwardWeight, "W", "▒", "\x1b[30;42m", "backward, weights"},
    {SpanKind::ReduceGrad, "R", "R", "\x1b[30;47m", "reduce gradients"},
    {SpanKind::Optimizer, "O", "O", "\x1b[30;45m", "optimizer"},
    {SpanKind::Load, "L", "L", "\x1b[30;47m", "load inputs or parameters"},
    {SpanKind::Store, "S", "S", "\x1b[30;47m", "store to the host"},
}};

/// A slot: a forward and a backward at once.
constexpr Look kSlotLook{SpanKind::Forward, "F&B", "▚", "\x1b[30;46m", "overlapped"};

const Look* lookOf(SpanKind kind) {
  const auto* look = std::find_if(kLooks.begin(), kLooks.end(), [&](const Look& l) { return l.kind == kind; });
  return look == kLooks.end() ? nullptr : look;
}

/// Times and columns: column c shows [c · span / columns, (c + 1) · span / columns).
struct Scale {
  Ns span = 0;
  std::int64_t columns = 0;

  [[nodiscard]] std::int64_t columnOf(Ns time) const { return static_cast<std::int64_t>(Wide{time.value} * columns / span.value); }
};

Ns lastEnd(const Trace& trace) {
  Ns end = 0;
  for (const Span& span : trace.spans) {
    if (lookOf(span.kind) != nullptr) end = std::max(end, span.end);
  }
  return end;
}

Scale scaleOf(const Trace& trace, const TextOptions& options, std::int64_t room) {
  if (options.span > 0) return {options.span, room};
  const Ns end = lastEnd(trace);
  Ns unit = 0;
  for (const Span& span : trace.spans) {
    if (lookOf(span.kind) != nullptr) unit = Ns(std::gcd(unit.value, std::gcd(span.start.value, span.end.value)));
  }
  if (unit == 0 || end < unit || end / unit > room) return {end, room};
  return {end, room / (end / unit) * (end / unit)};
}

/// The backward that is one slot with this forward, or null. Spans of one rank and time stand next to each other.
const Span* slotPartner(const Trace& trace, const Span& span) {
  const auto next = static_cast<std::size_t>(&span - trace.spans.data()) + 1;
  return next < trace.spans.size() && isSlot(span, trace.spans[next]) ? &trace.spans[next] : nullptr;
}

/// The span that fills most of each column: of a rank's reductions (`beside`) or of its compute lane; null is bubble. For a slot it is the
/// forward.
std::vector<const Span*> columnsOf(const Trace& trace, Rank rank, const Scale& scale, bool beside) {
  const auto columns = static_cast<std::size_t>(scale.columns);
  std::vector<const Span*> shown(columns, nullptr);
  std::vector<Wide> most(columns, 0), covered(columns, 0);
  for (const Span& span : trace.spans) {
    if (span.rank != rank || lookOf(span.kind) == nullptr || isBeside(span) != beside) continue;
    if (&span != trace.spans.data() && isSlot(*(&span - 1), span)) continue;
    // In units of 1 / columns ns, where a column is `scale.span` long, so that nothing is rounded.
    const Wide begin = Wide{std::clamp<Ns>(span.start, 0, scale.span).value} * scale.columns;
    const Wide end = Wide{std::clamp<Ns>(span.end, 0, scale.span).value} * scale.columns;
    for (Wide at = begin; at < end;) {
      const Wide column = at / scale.span.value;
      const Wide part = std::min(end, (column + 1) * scale.span.value) - at;
      const auto c = static_cast<std::size_t>(column);
      covered[c] += part;
      if (part > most[c]) {
        most[c] = part;
        shown[c] = &span;
      }
      at += part;
    }
  }
  for (std::size_t c = 0; c < columns; ++c) {
    if (scale.span.value - covered[c] > most[c]) shown[c] = nullptr;
  }
  return shown;
}

/// What a rank does in each column; where it idles, the reduction that runs meanwhile.
std::vector<const Span*> shownOf(const Trace& trace, Rank rank, const Scale& scale) {
  std::vector<const Span*> shown = columnsOf(trace, rank, scale, false);
  const std::vector<const Span*> beside = columnsOf(trace, rank, scale, true);
  for (std::size_t c = 0; c < shown.size(); ++c) {
    if (shown[c] == nullptr) shown[c] = beside[c];
  }
  return shown;
}

/// Text for a block `width` columns wide: the longest of stage + letter + microbatch, letter + microbatch and letter that fits, then fill.
std::string block(const Span& span, const Look& look, std::size_t width, bool showStage) {
  std::string text(look.letter);
  if (span.microbatch.value >= 0) {
    const std::string number = fmt::format("{}{}", look.letter, span.microbatch.value);
    const std::string full = fmt::format("{}{}", span.stage.value, number);
    if (number.size() <= width) text = number;
    if (showStage && full.size() <= width) text = full;
  }
  for (std::size_t used = text.size(); used < width; ++used) text += look.fill;
  return text;
}

/// Text for a slot: the longest of both actions with stages, both with microbatches, and both letters that fits, then fill.
std::string slotBlock(const Span& f, const Span& b, std::size_t width, bool showStage) {
  std::string text(kSlotLook.letter.substr(0, width));
  const std::string numbers = fmt::format("F{}&B{}", f.microbatch.value, b.microbatch.value);
  const std::string full = fmt::format("{}F{}&{}B{}", f.stage.value, f.microbatch.value, b.stage.value, b.microbatch.value);
  if (numbers.size() <= width) text = numbers;
  if (showStage && full.size() <= width) text = full;
  for (std::size_t used = text.size(); used < width; ++used) text += kSlotLook.fill;
  return text;
}

std::string lane(const Trace& trace, const std::vector<const Span*>& shown, bool showStage, bool colour) {
  std::string text;
  for (std::size_t begin = 0; begin < shown.size();) {
    std::size_t end = begin + 1;
    while (end < shown.size() && shown[end] == shown[begin]) ++end;
    if (shown[begin] == nullptr) {
      for (std::size_t c = begin; c < end; ++c) text += kBubble;
    } else {
      const Look& look = *lookOf(shown[begin]->kind);
      const Span* partner = slotPartner(trace, *shown[begin]);
      if (colour) text += look.colour;
      text += partner != nullptr ? slotBlock(*shown[begin], *partner, end - begin, showStage)
                                 : block(*shown[begin], look, end - begin, showStage);
      if (colour) text += kReset;
    }
    begin = end;
  }
  return text;
}

struct ScaleUnit {
  Ns length = 1;
  std::string_view name = "ns";
};

ScaleUnit scaleUnitOf(Ns span) {
  if (span >= 10'000'000'000) return {1'000'000'000, "s"};
  if (span >= 1'000'000) return {1'000'000, "ms"};
  if (span >= 10'000) return {1'000, "µs"};
  return {};
}

/// `time` in units without trailing zeros: 2.5.
std::string inUnits(Ns time, Ns unit) {
  std::string text = fmt::format("{}", time / unit);
  Ns rest = time % unit;
  if (rest > 0) text += '.';
  while (rest > 0) {
    rest *= 10;
    text += static_cast<char>('0' + rest / unit);
    rest %= unit;
  }
  return text;
}

/// The time scale: `┬` is above the column where the time written next to it begins. Steps are 1, 2 or 5 times a power of ten.
std::string ruler(const Scale& scale, const ScaleUnit& unit) {
  Ns step = 1;
  for (int i = 0; Wide{step.value} * scale.columns < Wide{scale.span.value} * kTickDistance; ++i)
    step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  std::string text = "0";
  std::int64_t width = 1;
  for (Ns tick = step; scale.columnOf(tick) < scale.columns; tick += step) {
    const std::string number = inUnits(tick, unit.length);
    const std::int64_t at = scale.columnOf(tick);
    if (at + static_cast<std::int64_t>(number.size()) >= scale.columns) break;
    for (; width < at; ++width) text += "─";
    text += "┬" + number;
    width += 1 + static_cast<std::int64_t>(number.size());
  }
  for (; width < scale.columns; ++width) text += "─";
  return text;
}

/// Whether some rank computes more than one stage, so that blocks need their stage.
bool severalStages(const Trace& trace) {
  std::vector<std::int32_t> stageOf(static_cast<std::size_t>(std::max(0, trace.ranks)), -1);
  for (const Span& span : trace.spans) {
    if (!isCompute(span.kind) || span.rank.value < 0 || span.rank.index() >= stageOf.size()) continue;
    std::int32_t& stage = stageOf[span.rank.index()];
    if (stage >= 0 && stage != span.stage.value) return true;
    stage = span.stage.value;
  }
  return false;
}

std::string legend(const Trace& trace, const Metrics& metrics, bool colour) {
  std::string text = fmt::format("makespan {}, bubble {:.1f} %:", formatDuration(metrics.makespan), 100.0 * metrics.bubbleFraction);
  for (const Look& look : kLooks) {
    const bool used = std::any_of(trace.spans.begin(), trace.spans.end(), [&](const Span& s) { return s.kind == look.kind; });
    if (!used) continue;
    const std::string sample = look.letter == look.fill ? std::string(look.letter) : fmt::format("{}{}", look.letter, look.fill);
    text += colour ? fmt::format("  {}{}{} {}", look.colour, sample, kReset, look.word) : fmt::format("  {} {}", sample, look.word);
  }
  const bool slots = std::any_of(trace.spans.begin(), trace.spans.end(), [&](const Span& s) { return slotPartner(trace, s) != nullptr; });
  if (slots) text += fmt::format("  {}{} {}", kSlotLook.letter, kSlotLook.fill, kSlotLook.word);
  return text + fmt::format("  {} bubble{}\n", kBubble, severalStages(trace) ? "  2F0 stage 2, microbatch 0" : "");
}

}  // namespace

std::string toText(const Trace& trace, const TextOptions& options) {
  const std::size_t digits = fmt::format("{}", std::max(0, trace.ranks - 1)).size();
  const std::size_t label = std::string_view("rank ").size() + digits;
  constexpr std::string_view kBusy = " 100 % busy";
  const auto frame = static_cast<std::int64_t>(label + std::string_view(" ||").size() + kBusy.size());
  const Scale scale = scaleOf(trace, options, std::max(kSmallestDrawing, options.columns - frame));
  if (scale.span <= 0 || trace.ranks < 1) return "no actions\n";

  const Metrics metrics = metricsOf(trace);
  const ScaleUnit unit = scaleUnitOf(scale.span);
  const bool showStage = severalStages(trace);
  const std::size_t pad = label - (unit.length == 1 || unit.length == 1'000 || unit.length == 1'000'000 ? 2 : 1);  // characters, not bytes
  std::string text = fmt::format("{}{} ┌{}┐\n", std::string(pad, ' '), unit.name, ruler(scale, unit));
  for (const RankMetrics& rank : metrics.ranks) {
    const double busy = metrics.makespan > 0 ? 100.0 * static_cast<double>(rank.busy) / static_cast<double>(metrics.makespan) : 0.0;
    text += fmt::format("rank {:>{}} │{}│ {:3.0f} % busy\n", rank.rank.value, digits,
                        lane(trace, shownOf(trace, rank.rank, scale), showStage, options.colour), busy);
  }
  return text + legend(trace, metrics, options.colour);
}

}  // namespace pw
