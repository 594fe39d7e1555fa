#include "simulator/timeline/figure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/timeline/columns.h"
#include "simulator/timeline/figure_looks.h"
#include "simulator/timeline/figure_spans.h"
#include "simulator/timeline/figure_text.h"
#include "simulator/timeline/memory_curve.h"
#include "simulator/timeline/time_ruler.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

constexpr double kPage = 230;                                 ///< height that rows of automatic height fill at most [mm]
constexpr double kLeastRow = 0.8, kLeastLength = 10;          ///< of a row's height, of the time axis [mm]
constexpr double kRowGap = 0.2, kBelow = 0.2, kMemory = 0.7;  ///< between rows, of messages, of the memory's curve, in rows
constexpr std::size_t kTitleLines = 3;

class Layout {
 public:
  Layout(const std::vector<FigureLane>& lanes, const FigureStyle& style, const FigureFrame& frame);
  Figure draw() &&;

 private:
  void chooseRanks(const std::vector<FigureLane>& lanes);
  void take(const FigureLane& given);
  void measure();
  void chooseBlocks();
  void chooseLabels();
  std::ptrdiff_t labelKinds(std::array<std::vector<double>, kSpanKinds>& widths);
  [[nodiscard]] bool hasRoom(std::string_view label, double room) const;
  void title();
  void lane(const FigureSpans& lane, bool first);
  void ruler(double from, double to, bool labelled);
  void row(const FigureSpans& lane, Rank rank);
  void strip(const std::vector<const Span*>& spans, const FigureBox& box);
  void block(const Span& span, double y, double height);
  void memory(const FigureSpans& lane, Rank rank, const FigureBox& box);
  void legend();
  void summary();
  void text(double x, double y, TextRole role, TextAlign align, std::string words);
  [[nodiscard]] double width(std::string_view words, TextRole role) const {
    return textWidth(words, textSize(figure_, role), style_.font == "monospace");
  }
  [[nodiscard]] double x(Ns time) const {
    return left_ + static_cast<double>(std::clamp(time, times_.from, times_.to) - times_.from) /
                       static_cast<double>(times_.to - times_.from) * length_;
  }
  /// Below the time axis, or from the margin on where that is short.
  [[nodiscard]] double legendLeft() const { return style_.width - left_ < 16 * em_ ? frame_.margin : left_; }
  [[nodiscard]] double widthOf(const Span& span) const { return x(span.end) - x(span.start); }
  [[nodiscard]] std::string labelOf(const Span& span) const;

  const FigureStyle& style_;
  const FigureFrame& frame_;
  Figure figure_;
  std::vector<Rank> ranks_;
  std::vector<FigureSpans> lanes_;
  TimeRange times_{0, 1};
  Bytes peak_ = 0;                          ///< of the chosen ranks in all lanes
  BlockLabels labels_ = BlockLabels::None;  ///< that there is room for
  bool severalStages_ = false, below_ = false;
  std::array<bool, kSpanKinds> labelled_{};
  double em_ = 0;  ///< the font's size [mm]
  double left_ = 0, length_ = 0, row_ = 0, strip_ = 0, curve_ = 0, gap_ = 0, y_ = 0;
  double narrowest_ = 0, column_ = 0;
};

Layout::Layout(const std::vector<FigureLane>& lanes, const FigureStyle& style, const FigureFrame& frame) : style_(style), frame_(frame) {
  figure_.width = style.width;
  figure_.title = style.title;
  figure_.font = style.font;
  figure_.fontSize = style.fontSize;
  figure_.greyscale = style.greyscale;
  em_ = textSize(figure_, TextRole::Name);
  chooseRanks(lanes);
  times_.to = endOf(lanes);
  if (style.times) {
    if (style.times->from >= times_.to)
      throw UsageError(fmt::format("the time range begins at {}, but the step ends at {}", formatDuration(style.times->from),
                                   formatDuration(times_.to)));
    times_ = {style.times->from, std::min(style.times->to, times_.to)};
  }
  for (const FigureLane& given : lanes) take(given);
  measure();
  chooseBlocks();
  chooseLabels();
}

void Layout::chooseRanks(const std::vector<FigureLane>& lanes) {
  int count = 0;
  for (const FigureLane& given : lanes) count = std::max(count, given.trace->ranks);
  for (const RankRange& range : style_.ranks) {
    if (range.last.value >= count)
      throw UsageError(fmt::format("there is no rank {}; ranks are 0 to {}", range.last.value, std::max(0, count - 1)));
  }
  for (std::int32_t rank = 0; rank < count; ++rank) {
    if (includes(style_, Rank(rank))) ranks_.emplace_back(rank);
  }
  if (ranks_.size() * lanes.size() > frame_.mostRows)
    throw UsageError(fmt::format("a figure of {} rows would not be readable; choose ranks so that there are at most {}",
                                 ranks_.size() * lanes.size(), frame_.mostRows));
}

void Layout::take(const FigureLane& given) {
  FigureSpans spans = spansOf(given, style_, times_);
  severalStages_ = severalStages_ || spans.severalStages;
  if (style_.memory) peak_ = std::max(peak_, spans.peak);
  for (const auto& row : spans.rows)
    below_ = below_ || std::ranges::any_of(row, [](const Span* span) { return isBelow(*span) && span->end > span->start; });
  lanes_.push_back(std::move(spans));
}

/// How much room each part has.
void Layout::measure() {
  double labels = frame_.labels, shares = frame_.shares;
  if (labels == 0) {
    for (const Rank rank : ranks_) labels = std::max(labels, width(fmt::format("{} {}", style_.rankLabel, rank.value), TextRole::Name));
    labels += 0.5 * em_;
  }
  if (shares == 0 && style_.busy) shares = width("100 % busy", TextRole::Note) + 0.5 * em_;
  if (shares == 0 && peak_ > 0) shares = width(formatSize(peak_), TextRole::Note) + 0.5 * em_;
  left_ = frame_.margin + labels;
  length_ = style_.width - left_ - shares - frame_.margin;
  if (length_ < kLeastLength)
    throw UsageError(
        fmt::format("{:g} mm are too narrow for the ranks' names and a time axis; use a wider figure or a smaller font", style_.width));
  const double parts = 1 + kRowGap + (below_ ? kBelow : 0) + (peak_ > 0 ? kMemory + kRowGap / 2 : 0);
  const auto rows = static_cast<double>(std::max<std::size_t>(1, ranks_.size() * lanes_.size()));
  row_ = style_.rowHeight > 0 ? style_.rowHeight : std::clamp(kPage / rows / parts, kLeastRow, 1.5 * em_);
  gap_ = kRowGap * row_;
  strip_ = below_ ? kBelow * row_ : 0;
  curve_ = peak_ > 0 ? kMemory * row_ : 0;
  column_ = std::max(frame_.narrowest, length_ * std::max(1.0, rows) * 2 / frame_.mostColumns);
}

/// The widest blocks are drawn individually.
void Layout::chooseBlocks() {
  narrowest_ = frame_.narrowest;
  std::vector<double> widths;
  for (const FigureSpans& lane : lanes_) {
    for (const auto& spans : lane.rows) {
      for (const Span* span : spans) {
        if (widthOf(*span) >= narrowest_) widths.push_back(widthOf(*span));
      }
    }
  }
  if (widths.size() <= frame_.mostBlocks) return;
  const auto last = widths.begin() + static_cast<std::ptrdiff_t>(frame_.mostBlocks);
  std::nth_element(widths.begin(), last, widths.end(), std::greater<>());
  narrowest_ = std::nextafter(*last, 2 * *last) * (1 + 1e-9);  // spans of equal width are merged together
}

/// The longest and largest labels with which the most kinds of actions have one.
void Layout::chooseLabels() {
  labels_ = style_.labels;
  labelled_.fill(true);
  if (frame_.labels > 0 || labels_ == BlockLabels::None) return;
  constexpr std::array<double, 4> kScales{1, 0.9, 0.8, 0.7};
  std::array<std::vector<double>, kSpanKinds> widths;
  for (const FigureSpans& lane : lanes_) {
    for (const auto& spans : lane.rows) {
      for (const Span* span : spans) {
        if (isCompute(span->kind) && widthOf(*span) >= narrowest_) widths[static_cast<std::size_t>(span->kind)].push_back(widthOf(*span));
      }
    }
  }
  const auto kinds = std::ranges::count_if(widths, [](const auto& list) { return !list.empty(); });
  std::ptrdiff_t most = -1;
  std::pair<BlockLabels, double> best{labels_, 1};
  for (const BlockLabels labels : {style_.labels, BlockLabels::Number}) {
    for (const double scale : kScales) {
      labels_ = labels;
      figure_.labelScale = scale;
      if (const auto count = labelKinds(widths); count > most) {
        most = count;
        best = {labels, scale};
      }
      if (most == kinds) return;
    }
  }
  std::tie(labels_, figure_.labelScale) = best;
  labelKinds(widths);
}

/// Kinds whose blocks are nearly all wide enough for their longest label have labels: not some of a row have one and the others none.
/// How many those are. `widths`: of the actions, by kind.
std::ptrdiff_t Layout::labelKinds(std::array<std::vector<double>, kSpanKinds>& widths) {
  std::array<std::string, kSpanKinds> longest;
  for (const FigureSpans& lane : lanes_) {
    for (const auto& spans : lane.rows) {
      for (const Span* span : spans) {
        if (widthOf(*span) < narrowest_) continue;
        std::string& label = longest[static_cast<std::size_t>(span->kind)];
        if (std::string own = labelOf(*span); own.size() > label.size()) label = std::move(own);
      }
    }
  }
  std::ptrdiff_t count = 0;
  for (std::size_t k = 0; k < kSpanKinds; ++k) {
    if (widths[k].empty()) continue;
    const auto narrow = widths[k].begin() + static_cast<std::ptrdiff_t>(widths[k].size() / 10);  // one in ten may have none
    std::ranges::nth_element(widths[k], narrow);
    labelled_[k] = hasRoom(longest[k], *narrow);
    count += static_cast<std::ptrdiff_t>(labelled_[k]);
  }
  return count;
}

bool Layout::hasRoom(std::string_view label, double room) const {
  return room > textWidth(label, labelSize(figure_), style_.font == "monospace") + 0.15;
}

std::string Layout::labelOf(const Span& span) const {
  if (labels_ == BlockLabels::None) return {};
  if (span.microbatch.value < 0) {
    if (labels_ == BlockLabels::Number) return {};
    return span.stage.value < 0 ? std::string(nameOf(span.kind)) : fmt::format("{}{}", span.stage.value, nameOf(span.kind));
  }
  if (labels_ == BlockLabels::Number) return fmt::format("{}", span.microbatch.value);
  return severalStages_ || isMessage(span.kind) ? fmt::format("{}{}{}", span.stage.value, nameOf(span.kind), span.microbatch.value)
                                                : fmt::format("{}{}", nameOf(span.kind), span.microbatch.value);
}

void Layout::text(double x, double y, TextRole role, TextAlign align, std::string words) {
  figure_.texts.push_back({{x, y}, role, align, std::move(words)});
}

void Layout::title() {
  const double size = textSize(figure_, TextRole::Title);
  for (std::string& line : wrapped(style_.title, size * 1.05, style_.width - 2 * frame_.margin, kTitleLines, style_.font == "monospace")) {
    text(frame_.margin, y_ + size, TextRole::Title, TextAlign::Left, std::move(line));
    y_ += 1.25 * size;
  }
  if (!style_.title.empty()) y_ += 0.4 * em_;
}

/// Lines at round times, with the times above them.
void Layout::ruler(double from, double to, bool labelled) {
  const TimeRuler ruler = rulerOf(
      times_, [&](std::string_view words) { return width(words, TextRole::Note); }, length_);
  for (const auto& [time, words] : ruler.ticks) {
    const double at = x(time);
    figure_.lines.push_back({{at, from}, {at, to}});
    if (!labelled) continue;
    const double half = width(words, TextRole::Note) / 2;
    const bool first = at - left_ < half;  // begins at its line, beside the ranks' names
    text(first ? at : std::min(at, style_.width - frame_.margin - half), from - 0.3 * em_, TextRole::Note,
         first ? TextAlign::Left : TextAlign::Middle, words);
  }
}

void Layout::lane(const FigureSpans& lane, bool first) {
  for (std::string& line : wrapped(lane.title, 1.05 * em_, style_.width - frame_.margin - left_, 1, style_.font == "monospace")) {
    y_ += first ? 1.1 * em_ : 1.7 * em_;
    text(left_, y_, TextRole::Heading, TextAlign::Left, std::move(line));
    y_ += first ? 0.2 * em_ : 0.4 * em_;
  }
  if (first) y_ += 1.3 * em_;
  const double begin = y_;
  y_ += 0.25 * em_;
  for (const Rank rank : ranks_) row(lane, rank);
  y_ -= gap_;
  ruler(begin, y_, first);
}

void Layout::row(const FigureSpans& lane, Rank rank) {
  const FigureBox box{left_, y_, length_, row_};
  figure_.lanes.push_back(box);
  const double middle = y_ + row_ / 2 + 0.36 * em_;
  const double step = row_ + strip_ + curve_ + gap_;
  const auto every = static_cast<std::int32_t>(std::ceil(1.05 * em_ / step));  // rows whose names do not overlap
  const bool named = rank.value % every == 0;
  if (named)
    text(left_ - 0.5 * em_, middle, TextRole::Name, TextAlign::Right,
         style_.rankLabel.empty() ? fmt::format("{}", rank.value) : fmt::format("{} {}", style_.rankLabel, rank.value));
  const bool known = rank.index() < lane.rows.size();
  if (named && style_.busy && known)
    text(left_ + length_ + 0.5 * em_, middle - 0.03 * em_, TextRole::Note, TextAlign::Left,
         fmt::format("{:.0f} % busy", 100 * lane.busy[rank.index()]));
  std::vector<const Span*> compute, below;
  if (known) {
    for (const Span* span : lane.rows[rank.index()]) (isBelow(*span) ? below : compute).push_back(span);
  }
  strip(compute, box);
  if (below_) strip(below, {left_, y_ + row_ + 0.04 * row_, length_, strip_ - 0.04 * row_});
  y_ += row_ + strip_;
  if (peak_ > 0 && known) memory(lane, rank, {left_, y_ + gap_ / 2, length_, curve_});
  y_ += (peak_ > 0 ? gap_ / 2 : 0) + curve_ + gap_;
}

void Layout::strip(const std::vector<const Span*>& spans, const FigureBox& box) {
  std::vector<NarrowSpan> narrow;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (spans[i]->end == spans[i]->start) continue;  // no width at any scale
    if (widthOf(*spans[i]) < narrowest_) {
      narrow.push_back({spans[i]->kind, x(spans[i]->start) - left_, x(spans[i]->end) - left_});
      continue;
    }
    const bool slot = i + 1 < spans.size() && isSlot(*spans[i], *spans[i + 1]);
    const bool second = i > 0 && isSlot(*spans[i - 1], *spans[i]);
    const double part = slot || second ? box.height / 2 : box.height;
    block(*spans[i], second ? box.y + part : box.y, part);
  }
  figure_.mergedSpans += narrow.size();
  for (FigureMerged& merged : mergeColumns(narrow, box, column_)) figure_.merged.push_back(std::move(merged));
}

void Layout::block(const Span& span, double y, double height) {
  const double full = widthOf(span);
  // A line of background between neighbours, where there is room: three quarters of a pixel of a screen, 0.6 pt on paper.
  const double gap = full > 0.3 ? std::min(0.199, 0.12 * full) : 0;
  FigureBlock block{{x(span.start), y, std::max(full - gap, 0.04), height}, span.kind, {}, &span};
  const double size = labelSize(figure_);
  std::string label = labelOf(span);
  if (labelled_[static_cast<std::size_t>(span.kind)] && height >= 0.9 * size && hasRoom(label, full)) block.label = std::move(label);
  figure_.blocks.push_back(std::move(block));
}

void Layout::memory(const FigureSpans& lane, Rank rank, const FigureBox& box) {
  figure_.memory.push_back({memoryCurve(*lane.trace, rank, times_, peak_, box)});
  if (!style_.busy || row_ + strip_ + curve_ > 2.2 * em_)
    text(left_ + length_ + 0.5 * em_, box.y + box.height, TextRole::Note, TextAlign::Left,
         formatSize(lane.metrics.ranks[rank.index()].peakBytes));
}

void Layout::legend() {
  const double size = textSize(figure_, TextRole::Note), swatch = 0.95 * size;
  const double begin = legendLeft();
  double at = begin;
  y_ += 0.9 * em_;
  const auto entry = [&](std::optional<SpanKind> kind, std::string_view word) {
    const double needed = 1.4 * size + width(word, TextRole::Note);
    if (at > begin && at + needed > style_.width - frame_.margin) {
      at = begin;
      y_ += 1.55 * size;
    }
    figure_.swatches.push_back({{at, y_, swatch, swatch}, kind});
    text(at + 1.4 * size, y_ + 0.83 * size, TextRole::Note, TextAlign::Left, std::string(word));
    at += needed + 1.1 * size;
  };
  std::array<bool, kSpanKinds> drawn{};  // not what takes no time, or is lost among wider ones
  for (const FigureBlock& block : figure_.blocks) drawn[static_cast<std::size_t>(block.kind)] = true;
  for (const FigureMerged& merged : figure_.merged) drawn[static_cast<std::size_t>(merged.kind)] = true;
  for (std::size_t k = 0; k < kSpanKinds; ++k) {
    if (drawn[k]) entry(static_cast<SpanKind>(k), wordOf(static_cast<SpanKind>(k)));
  }
  entry(std::nullopt, "bubble");
  y_ += swatch;
}

void Layout::summary() {
  constexpr std::size_t kLines = 2;
  const double size = textSize(figure_, TextRole::Note), from = legendLeft();
  y_ += style_.legend ? 0 : 0.4 * em_;
  for (const FigureSpans& lane : lanes_) {
    const std::string words = fmt::format("{}makespan {}, bubble {:.1f} %", lane.title.empty() ? "" : lane.title + ": ",
                                          formatDuration(lane.metrics.makespan), 100 * lane.metrics.bubbleFraction);
    for (std::string& line : wrapped(words, size, style_.width - frame_.margin - from, kLines, style_.font == "monospace")) {
      y_ += 1.5 * size;
      text(from, y_, TextRole::Note, TextAlign::Left, std::move(line));
    }
  }
}

Figure Layout::draw() && {
  y_ = frame_.margin;
  title();
  for (std::size_t i = 0; i < lanes_.size(); ++i) lane(lanes_[i], i == 0);
  if (style_.legend) legend();
  if (style_.summary) summary();
  figure_.height = y_ + std::max(frame_.margin, 0.3 * em_);
  return std::move(figure_);
}

}  // namespace

Figure layOut(const std::vector<FigureLane>& lanes, const FigureStyle& style, const FigureFrame& frame) {
  return Layout(lanes, style, frame).draw();
}

}  // namespace pw
