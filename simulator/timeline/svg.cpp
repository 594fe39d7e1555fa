#include "simulator/timeline/svg.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "simulator/timeline/figure_looks.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

constexpr std::size_t kMostScreenRows = 1'000'000;
constexpr double kPixels = 96 / 25.4;  ///< of a mm

std::string xmlText(std::string_view text) {
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

/// With two digits at most, without zeros at their end.
std::string svgNumber(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

/// A length as pixels.
std::string px(double mm) { return svgNumber(mm * kPixels); }

std::string colour(std::uint32_t rgb) { return fmt::format("#{:06x}", rgb); }

/// The family as a value of font-family.
std::string cssFamily(const std::string& font) {
  for (const std::string_view generic : {"sans-serif", "serif", "monospace"}) {
    if (font == generic) return font;
  }
  return fmt::format("'{}',sans-serif", font);
}

std::string shapeOf(const FigureBox& box) {
  return fmt::format("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", px(box.x), px(box.y), px(box.width), px(box.height));
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

class Drawing {
 public:
  Drawing(const Figure& figure, SvgUse use) : figure_(figure), use_(use) {}
  std::string draw() &&;

 private:
  void header();
  void styles();
  void block(const FigureBlock& block);
  void hatch(const FigureBox& box, Hatch hatch);
  void text(const FigureText& text);
  [[nodiscard]] FigureLook look(SpanKind kind) const { return lookOf(kind, figure_.greyscale); }

  const Figure& figure_;
  const SvgUse use_;
  std::string text_;
};

void Drawing::header() {
  const std::string width = px(figure_.width), height = px(figure_.height);
  const bool paper = use_ == SvgUse::Paper;
  text_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\"{}>\n"
      "<title>{}</title>\n",
      paper ? svgNumber(figure_.width) + "mm" : width, paper ? svgNumber(figure_.height) + "mm" : height, width, height,
      use_ == SvgUse::Page ? " class=\"pipewright\"" : "", xmlText(figure_.title.empty() ? "timeline" : figure_.title));
}

void Drawing::styles() {
  const std::string_view in = use_ == SvgUse::Page ? ".pipewright " : "";  // before each selector
  const FigureColours colours = coloursOf(figure_.greyscale);
  const auto size = [&](TextRole role) { return px(textSize(figure_, role)); };
  const std::array<std::pair<std::string_view, std::string>, 13> rules{{
      {"text", fmt::format("font:{}px {};fill:{}", size(TextRole::Name), cssFamily(figure_.font), colour(colours.text))},
      {".t", fmt::format("font-size:{}px;font-weight:600", size(TextRole::Title))},
      {".b", "font-weight:600"},
      {".r", fmt::format("fill:{};font-size:{}px", colour(colours.note), size(TextRole::Note))},
      {".m", "text-anchor:middle"},
      {".e", "text-anchor:end"},
      {".g", fmt::format("fill:{}", colour(colours.lane))},
      {".p", fmt::format("fill:{}", colour(colours.page))},
      {".y", fmt::format("fill:{}", colour(colours.memory))},
      {".l", fmt::format("stroke:{};stroke-width:{}{}", colour(colours.line), use_ == SvgUse::Paper ? "0.4" : "1",
                         use_ == SvgUse::Paper ? "" : ";shape-rendering:crispEdges")},
      {".o", fmt::format("fill:none;stroke:{};stroke-width:0.4", colour(colours.note))},
      {".h", fmt::format("fill:none;stroke:{};stroke-width:{}", colour(colours.hatch), px(kHatchLine))},
      {".w", fmt::format("font-size:{}px;text-anchor:middle", px(labelSize(figure_)))},
  }};
  text_ += "<style>";
  for (const auto& [selector, rule] : rules) text_ += fmt::format("{}{}{{{}}}", in, selector, rule);
  if (use_ == SvgUse::Page) text_ += darkStyles();
  std::array<bool, kSpanKinds> used{};
  for (const FigureBlock& block : figure_.blocks) used[static_cast<std::size_t>(block.kind)] = true;
  for (const FigureMerged& merged : figure_.merged) used[static_cast<std::size_t>(merged.kind)] = true;
  for (std::size_t k = 0; k < kSpanKinds; ++k) {
    const FigureLook look = this->look(static_cast<SpanKind>(k));
    if (used[k]) text_ += fmt::format("{0}.k{1}{{fill:{2}}}{0}.w{1}{{fill:{3}}}", in, k, colour(look.fill), colour(look.text));
  }
  text_ += "</style>\n<rect class=\"p\" width=\"100%\" height=\"100%\"/>\n";
}

void Drawing::hatch(const FigureBox& box, Hatch hatch) {
  const std::vector<FigureSegment> lines = hatchLines(box, hatch);
  if (lines.empty()) return;
  text_ += "<path class=\"h\" d=\"";
  for (const FigureSegment& line : lines)
    fmt::format_to(std::back_inserter(text_), "M{} {}L{} {}", px(line.from.x), px(line.from.y), px(line.to.x), px(line.to.y));
  text_ += "\"/>";
}

void Drawing::block(const FigureBlock& block) {
  const auto kind = static_cast<std::size_t>(block.kind);
  const std::string shape = fmt::format("<rect class=\"k{}\" {}", kind, shapeOf(block.box));
  const Hatch lines = look(block.kind).hatch;
  if (block.label.empty() && lines == Hatch::None) {
    text_ += fmt::format("{}><title>{}</title></rect>\n", shape, descriptionOf(block));
    return;
  }
  text_ += fmt::format("<g><title>{}</title>{}/>", descriptionOf(block), shape);
  hatch(block.box, lines);
  if (!block.label.empty()) {
    if (lines != Hatch::None) text_ += fmt::format("<rect class=\"k{}\" {}/>", kind, shapeOf(plateOf(figure_, block)));
    const FigurePoint at = labelPoint(figure_, block);
    text_ += fmt::format("<text class=\"w w{}\" x=\"{}\" y=\"{}\">{}</text>", kind, px(at.x), px(at.y), block.label);
  }
  text_ += "</g>\n";
}

void Drawing::text(const FigureText& text) {
  std::string_view role, align;
  switch (text.role) {
    case TextRole::Title: role = "t"; break;
    case TextRole::Heading: role = "b"; break;
    case TextRole::Name: role = ""; break;
    case TextRole::Note: role = "r"; break;
  }
  switch (text.align) {
    case TextAlign::Left: align = ""; break;
    case TextAlign::Middle: align = "m"; break;
    case TextAlign::Right: align = "e"; break;
  }
  const std::string name = fmt::format("{}{}{}", role, role.empty() || align.empty() ? "" : " ", align);
  text_ += fmt::format("<text{} x=\"{}\" y=\"{}\">{}</text>\n", name.empty() ? "" : fmt::format(" class=\"{}\"", name), px(text.at.x),
                       px(text.at.y), xmlText(text.text));
}

std::string Drawing::draw() && {
  header();
  styles();
  for (const FigureBox& box : figure_.lanes) text_ += fmt::format("<rect class=\"g\" {}/>\n", shapeOf(box));
  for (const FigureSegment& line : figure_.lines)
    text_ += fmt::format("<line class=\"l\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", px(line.from.x), px(line.to.x), px(line.from.y),
                         px(line.to.y));
  for (const FigureCurve& curve : figure_.memory) {
    if (curve.outline.empty()) continue;
    text_ += "<path class=\"y\" d=\"";
    for (std::size_t i = 0; i < curve.outline.size(); ++i)
      text_ += fmt::format("{}{} {}", i == 0 ? "M" : "L", px(curve.outline[i].x), px(curve.outline[i].y));
    text_ += "z\"/>\n";
  }
  for (const FigureMerged& merged : figure_.merged) {
    text_ += fmt::format("<path class=\"k{}\" d=\"", static_cast<std::size_t>(merged.kind));
    for (const FigureBox& box : merged.boxes)
      fmt::format_to(std::back_inserter(text_), "M{} {}h{}v{}H{}z", px(box.x), px(box.y), px(box.width), px(box.height), px(box.x));
    text_ += "\"/>\n";
  }
  for (const FigureBlock& b : figure_.blocks) block(b);
  if (figure_.greyscale) {
    for (const FigureBox& box : figure_.lanes) text_ += fmt::format("<rect class=\"o\" {}/>\n", shapeOf(box));
  }
  for (const FigureSwatch& swatch : figure_.swatches) {
    text_ +=
        fmt::format("<rect class=\"{}\" {}/>", swatch.kind ? fmt::format("k{}", static_cast<int>(*swatch.kind)) : "g", shapeOf(swatch.box));
    if (swatch.kind) hatch(swatch.box, look(*swatch.kind).hatch);
    if (figure_.greyscale) text_ += fmt::format("<rect class=\"o\" {}/>", shapeOf(swatch.box));
    text_ += '\n';
  }
  for (const FigureText& t : figure_.texts) text(t);
  text_ += "</svg>\n";
  return std::move(text_);
}

}  // namespace

std::string toSvg(const Figure& figure, SvgUse use) { return Drawing(figure, use).draw(); }

std::string toSvg(const Trace& trace, const SvgOptions& options) {
  const bool many = trace.ranks > 64;
  FigureStyle style;
  style.width = std::clamp(options.width, 400, 10'000) / kPixels;
  style.title = options.title;
  style.fontSize = 9;  // 12 pixels
  style.rowHeight = (many ? 10 : 24) / kPixels;
  style.labels = BlockLabels::Full;
  style.busy = style.summary = true;
  FigureFrame frame;
  frame.margin = 12 / kPixels;
  frame.labels = 64 / kPixels;
  frame.shares = 84 / kPixels;
  frame.narrowest = 0.5 / kPixels;
  frame.mostColumns = 75'000;
  frame.mostRows = kMostScreenRows;
  return toSvg(layOut({{&trace, ""}}, style, frame), options.inPage ? SvgUse::Page : SvgUse::Screen);
}

}  // namespace pw
