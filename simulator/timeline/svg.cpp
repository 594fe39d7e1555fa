#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/report/metrics.h"
#include "simulator/timeline/svg.h"

namespace pw {
namespace {

constexpr std::size_t kMostBlocks = 12'000;
constexpr double kMostColumns = 150'000;  ///< of merged spans, over all ranks
constexpr double kNarrowest = 0.5;        ///< a block drawn alone [pixels]
constexpr double kMargin = 12, kLabels = 64, kShares = 84, kTitleHeight = 26, kRulerHeight = 24;
constexpr double kCharacter = 6.2;  ///< width of a character at the smaller font size
constexpr std::size_t kKinds = 12;

struct Look {
  std::string_view fill, text, word;
};

/// By SpanKind. Waits are not drawn.
constexpr std::array<Look, kKinds> kLooks{{
    {"#56b4e9", "#000", "forward"},
    {"#0072b2", "#fff", "backward"},
    {"#009e73", "#000", "backward, inputs"},
    {"#e69f00", "#000", "backward, weights"},
    {"#cc79a7", "#000", "message forward"},
    {"#9d5d80", "#fff", "message backward"},
    {"", "", ""},
    {"", "", ""},
    {"#d0c13b", "#000", "reduce gradients"},
    {"#f0e442", "#000", "optimizer"},
    {"#999999", "#000", "load from the host"},
    {"#bbbbbb", "#000", "store to the host"},
}};

bool isMessage(const Span& span) { return span.kind == SpanKind::SendForward || span.kind == SpanKind::SendBackward; }
bool isDrawn(const Span& span) { return span.kind != SpanKind::WaitForward && span.kind != SpanKind::WaitBackward; }
/// On the strip below its rank's lane.
bool isBelow(const Span& span) { return isMessage(span) || isBeside(span); }

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

/// Coordinates with two digits at most, without zeros at their end.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

struct Scale {
  Ns end = 1;
  double left = 0, width = 1;
  [[nodiscard]] double pixels(Ns time) const { return static_cast<double>(time) / static_cast<double>(end) * width; }
  [[nodiscard]] double x(Ns time) const { return left + pixels(time); }
};

/// The step of the ruler: 1, 2 or 5 times a power of ten, at most `count` of them.
Ns rulerStep(Ns end, std::int64_t count) {
  Ns step = 1;
  while (end / step > count) {
    for (const Ns factor : {2, 5, 10}) {
      if (end / (step * factor) <= count) return step * factor;
    }
    step *= 10;
  }
  return step;
}

class Drawing {
 public:
  Drawing(const Trace& trace, const SvgOptions& options);
  std::string draw() &&;

 private:
  void chooseBlocks();
  void header();
  void ruler();
  void lane(int rank);
  void strip(const std::vector<const Span*>& spans, double y, double height);
  void block(const Span& span, double y, double height);
  void merged(const std::vector<const Span*>& spans, double y, double height);
  void legend();
  [[nodiscard]] double widthOf(const Span& span) const { return scale_.pixels(span.end - span.start); }
  [[nodiscard]] double laneY(int rank) const { return top_ + static_cast<double>(rank) * (lane_ + below_ + gap_); }
  [[nodiscard]] std::string labelOf(const Span& span) const;

  const Trace& trace_;
  const SvgOptions& options_;
  Metrics metrics_;
  Scale scale_;
  double top_ = 0, lane_ = 24, below_ = 0, gap_ = 6, height_ = 0;
  double narrowest_ = kNarrowest;  ///< spans of at least this width are drawn individually
  double column_ = kNarrowest;
  bool severalStages_ = false;
  std::array<bool, kKinds> used_{};
  std::vector<std::vector<const Span*>> ranks_;  ///< spans by rank, by start
  std::string text_;
};

Drawing::Drawing(const Trace& trace, const SvgOptions& options)
    : trace_(trace), options_(options), metrics_(metricsOf(trace)), ranks_(static_cast<std::size_t>(std::max(0, trace.ranks))) {
  const double width = std::clamp(options.width, 400, 10'000);
  scale_.left = kMargin + kLabels;
  scale_.width = width - scale_.left - kShares - kMargin;
  bool below = false;
  std::vector<std::int32_t> stageOf(ranks_.size(), -1);
  for (const Span& span : trace.spans) {
    if (!isDrawn(span) || span.rank.value < 0 || span.rank.value >= trace.ranks) continue;
    ranks_[span.rank.index()].push_back(&span);
    scale_.end = std::max(scale_.end, span.end);
    used_[static_cast<std::size_t>(span.kind)] = true;
    below = below || isBelow(span);
    if (!isCompute(span.kind)) continue;
    severalStages_ = severalStages_ || (stageOf[span.rank.index()] >= 0 && stageOf[span.rank.index()] != span.stage.value);
    stageOf[span.rank.index()] = span.stage.value;
  }
  if (trace.ranks > 64) lane_ = 10, gap_ = 2;
  below_ = below ? (trace.ranks > 64 ? 3 : 5) : 0;
  top_ = kMargin + (options.title.empty() ? 0 : kTitleHeight) + kRulerHeight;
  column_ = std::max(kNarrowest, scale_.width * std::max(1, trace.ranks) * 2 / kMostColumns);
  chooseBlocks();
}

/// The widest blocks are drawn individually.
void Drawing::chooseBlocks() {
  std::vector<double> widths;
  for (const auto& spans : ranks_) {
    for (const Span* span : spans) {
      if (widthOf(*span) >= kNarrowest) widths.push_back(widthOf(*span));
    }
  }
  if (widths.size() <= kMostBlocks) return;
  const auto last = widths.begin() + static_cast<std::ptrdiff_t>(kMostBlocks);
  std::nth_element(widths.begin(), last, widths.end(), std::greater<>());
  narrowest_ = std::nextafter(*last, 2 * *last);  // spans of equal width are merged together
}

std::string Drawing::labelOf(const Span& span) const {
  if (span.microbatch.value < 0)
    return span.stage.value < 0 ? std::string(nameOf(span.kind)) : fmt::format("{}{}", span.stage.value, nameOf(span.kind));
  return severalStages_ || isMessage(span) ? fmt::format("{}{}{}", span.stage.value, nameOf(span.kind), span.microbatch.value)
                                           : fmt::format("{}{}", nameOf(span.kind), span.microbatch.value);
}

/// What differs on a dark page: where the system prefers dark, and in the dark themes of JupyterLab and VS Code, whichever the system
/// prefers. A light theme of JupyterLab on a dark system stays light.
std::string darkStyles() {
  const auto rules = [](std::string_view page) {
    return fmt::format(
        "{0} .pipewright text:not([class^=w]){{fill:#ddd}}{0} .pipewright text.r{{fill:#aaa}}{0} .pipewright .g{{fill:#333a40}}"
        "{0} .pipewright .p{{fill:#1b1e21}}{0} .pipewright .l{{stroke:#4a5157}}",
        page);
  };
  return "@media(prefers-color-scheme:dark){" + rules("body:not([data-jp-theme-light=true]):not(.vscode-light)") + "}" +
         rules("[data-jp-theme-light=false]") + rules(".vscode-dark");
}

void Drawing::header() {
  const double width = scale_.left + scale_.width + kShares + kMargin;
  height_ = laneY(trace_.ranks) + 40;
  const std::string_view in = options_.inPage ? ".pipewright " : "";  // before each selector
  text_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\"{3}>\n"
      "<title>{2}</title>\n"
      "<style>{4}text{{font:12px sans-serif;fill:#222}}{4}.t{{font-size:15px;font-weight:600}}{4}.r{{fill:#555;font-size:11px}}"
      "{4}.m{{text-anchor:middle}}{4}.e{{text-anchor:end}}{4}.g{{fill:#eceff1}}{4}.p{{fill:#fff}}"
      "{4}.l{{stroke:#c4cbd0;stroke-width:1;shape-rendering:crispEdges}}",
      number(width), number(height_), escaped(options_.title.empty() ? "timeline" : options_.title),
      options_.inPage ? " class=\"pipewright\"" : "", in);
  if (options_.inPage) text_ += darkStyles();
  for (std::size_t k = 0; k < kKinds; ++k) {
    if (used_[k])
      text_ += fmt::format("{4}.k{0}{{fill:{1}}}{4}.w{2}{{fill:{3};font-size:11px;text-anchor:middle}}", k, kLooks[k].fill, k,
                           kLooks[k].text, in);
  }
  text_ += "</style>\n<rect class=\"p\" width=\"100%\" height=\"100%\"/>\n";
  if (!options_.title.empty())
    text_ += fmt::format("<text class=\"t\" x=\"{}\" y=\"{}\">{}</text>\n", number(kMargin), number(kMargin + 14), escaped(options_.title));
}

void Drawing::ruler() {
  const double y = top_ - 6;
  const Ns step = rulerStep(scale_.end, static_cast<std::int64_t>(scale_.width / 90));
  for (Ns time = 0; time <= scale_.end; time += step) {
    text_ +=
        fmt::format("<line class=\"l\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/><text class=\"r{4}\" x=\"{0}\" y=\"{3}\">{5}</text>\n",
                    number(scale_.x(time)), number(y), number(laneY(trace_.ranks) - gap_), number(y - 4), time == 0 ? "" : " m",
                    time == 0 ? "0" : formatDuration(time));
    if (time > scale_.end - step) break;
  }
}

void Drawing::block(const Span& span, double y, double height) {
  const auto kind = static_cast<std::size_t>(span.kind);
  const double x = scale_.x(span.start), width = widthOf(span);
  std::string what = fmt::format("{} {}, {} at {}", nameOf(span.kind), kLooks[kind].word, formatDuration(span.end - span.start),
                                 formatDuration(span.start));
  if (span.microbatch.value >= 0)
    what = fmt::format("{}{}{} {}", span.stage.value, nameOf(span.kind), span.microbatch.value, what.substr(nameOf(span.kind).size() + 1));
  if (isMessage(span)) what += fmt::format(", to rank {}, {}", span.peer.value, formatSize(span.bytes));
  // A hairline of background between neighbours, where there is room.
  const double gap = width > 4 ? 0.5 : 0;
  const std::string shape = fmt::format("<rect class=\"k{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", kind, number(x), number(y),
                                        number(std::max(width - gap, 0.3)), number(height));
  const std::string label = labelOf(span);
  if (height < 10 || width <= kCharacter * static_cast<double>(label.size()) + 2) {
    text_ += fmt::format("{}><title>{}</title></rect>\n", shape, what);
    return;
  }
  text_ += fmt::format("<g><title>{}</title>{}/><text class=\"w{}\" x=\"{}\" y=\"{}\">{}</text></g>\n", what, shape, kind,
                       number(x + width / 2), number(y + height / 2 + 4), label);
}

/// Where a kind is in a column of merged spans, in levels from the bottom of the lane.
struct Band {
  int from = 0, until = 0;
  bool operator==(const Band&) const = default;
};

/// A column is filled from the bottom by each kind's share of its time, so that the empty part is bubble. Adjacent equal columns become one
/// piece of a path; there is one path per kind.
void Drawing::merged(const std::vector<const Span*>& spans, double y, double height) {
  constexpr int kLevels = 24;
  const auto columns = static_cast<std::size_t>(std::ceil(scale_.width / column_));
  std::vector<std::array<float, kKinds>> shares(columns);
  bool any = false;
  for (const Span* span : spans) {
    if (widthOf(*span) >= narrowest_) continue;
    any = true;
    const double begin = scale_.pixels(span->start) / column_, end = scale_.pixels(span->end) / column_;
    const auto last = std::min(columns, static_cast<std::size_t>(end) + 1);
    for (auto c = static_cast<std::size_t>(begin); c < last; ++c) {
      const double share = std::min(end, static_cast<double>(c + 1)) - std::max(begin, static_cast<double>(c));
      shares[c][static_cast<std::size_t>(span->kind)] += static_cast<float>(std::max(share, 1e-6));
    }
  }
  if (!any) return;
  std::array<std::string, kKinds> paths;
  std::array<Band, kKinds> bands{};
  std::array<std::size_t, kKinds> starts{};
  for (std::size_t c = 0; c <= columns; ++c) {
    double sum = 0;
    for (std::size_t k = 0; k < kKinds; ++k) {
      const double share = c < columns ? static_cast<double>(shares[c][k]) : 0;
      Band band{static_cast<int>(std::lround(std::min(sum, 1.0) * kLevels)),
                static_cast<int>(std::lround(std::min(sum + share, 1.0) * kLevels))};
      if (share > 0 && sum == 0) band.until = std::max(band.until, 1);  // a single short action stays visible
      sum += share;
      if (band.from == band.until) band = {};
      if (band == bands[k]) continue;
      const Band& old = bands[k];
      if (old.until > old.from) {
        const double left = scale_.left + static_cast<double>(starts[k]) * column_,
                     right = std::min(scale_.left + static_cast<double>(c) * column_, scale_.left + scale_.width);
        fmt::format_to(std::back_inserter(paths[k]), "M{} {}h{}v{}H{}z", number(left), number(y + height - height * old.until / kLevels),
                       number(right - left), number(height * (old.until - old.from) / kLevels), number(left));
      }
      bands[k] = band;
      starts[k] = c;
    }
  }
  for (std::size_t k = 0; k < kKinds; ++k) {
    if (!paths[k].empty()) text_ += fmt::format("<path class=\"k{}\" d=\"{}\"/>\n", k, paths[k]);
  }
}

void Drawing::strip(const std::vector<const Span*>& spans, double y, double height) {
  merged(spans, y, height);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (widthOf(*spans[i]) < narrowest_) continue;
    const bool slot = i + 1 < spans.size() && isSlot(*spans[i], *spans[i + 1]);
    const bool second = i > 0 && isSlot(*spans[i - 1], *spans[i]);
    const double part = slot || second ? height / 2 : height;
    block(*spans[i], second ? y + part : y, part);
  }
}

void Drawing::lane(int rank) {
  const double y = laneY(rank);
  const auto r = static_cast<std::size_t>(rank);
  const double middle = y + lane_ / 2 + 4;
  if (lane_ > 12 || rank % 4 == 0)
    text_ += fmt::format("<text class=\"e\" x=\"{}\" y=\"{}\">rank {}</text>", number(scale_.left - 8), number(middle), rank);
  const double share =
      metrics_.makespan > 0 ? 100 * static_cast<double>(metrics_.ranks[r].busy) / static_cast<double>(metrics_.makespan) : 0;
  if (lane_ > 12)
    text_ += fmt::format("<text class=\"r\" x=\"{}\" y=\"{}\">{:.0f} % busy</text>", number(scale_.left + scale_.width + 8), number(middle),
                         share);
  text_ += '\n';
  std::vector<const Span*> compute, below;
  for (const Span* span : ranks_[r]) (isBelow(*span) ? below : compute).push_back(span);
  strip(compute, y, lane_);
  strip(below, y + lane_ + 1, below_ - 1);
}

void Drawing::legend() {
  double x = scale_.left;
  const double y = laneY(trace_.ranks) + 12;
  const auto entry = [&](std::string_view style, std::string_view word) {
    text_ += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"12\" height=\"12\"/><text class=\"r\" x=\"{}\" y=\"{}\">{}</text>\n",
                         style, number(x), number(y), number(x + 17), number(y + 10), word);
    x += 17 + kCharacter * static_cast<double>(word.size()) + 14;
  };
  for (std::size_t k = 0; k < kKinds; ++k) {
    if (used_[k]) entry(fmt::format("k{}", k), kLooks[k].word);
  }
  entry("g", "bubble");
  text_ += fmt::format("<text class=\"r\" x=\"{}\" y=\"{}\">makespan {}, bubble {:.1f} %</text>\n", number(scale_.left), number(y + 26),
                       formatDuration(metrics_.makespan), 100 * metrics_.bubbleFraction);
}

std::string Drawing::draw() && {
  header();
  for (int rank = 0; rank < trace_.ranks; ++rank) {
    text_ += fmt::format("<rect class=\"g\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", number(scale_.left), number(laneY(rank)),
                         number(scale_.width), number(lane_));
  }
  ruler();
  for (int rank = 0; rank < trace_.ranks; ++rank) lane(rank);
  legend();
  text_ += "</svg>\n";
  return std::move(text_);
}

}  // namespace

std::string toSvg(const Trace& trace, const SvgOptions& options) { return Drawing(trace, options).draw(); }

}  // namespace pw
