#include "simulator/timeline/tikz.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "simulator/timeline/figure_looks.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

constexpr double kTexPoints = 72.27 / 25.4;  ///< of a mm
constexpr std::size_t kPathParts = 50;       ///< of one command, so that TeX's memory suffices

/// Text without a meaning for TeX.
std::string texText(std::string_view text) {
  std::string safe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    switch (c) {
      case '\\': safe += "\\textbackslash{}"; break;
      case '{':
      case '}':
      case '%':
      case '#':
      case '$':
      case '&':
      case '_':
        safe += '\\';
        safe += c;
        break;
      case '~': safe += "\\textasciitilde{}"; break;
      case '^': safe += "\\textasciicircum{}"; break;
      case '<': safe += "\\textless{}"; break;
      case '>': safe += "\\textgreater{}"; break;
      case '|': safe += "\\textbar{}"; break;
      case '"': safe += "''"; break;
      default:
        if (text.substr(i).starts_with("µ")) {
          safe += "$\\mu$";
          i += std::string_view("µ").size() - 1;
        } else {
          safe += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
        }
    }
  }
  return safe;
}

/// With three digits at most, without zeros at their end.
std::string texNumber(double value) {
  std::string text = fmt::format("{:.3f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string pair(const FigurePoint& point) { return fmt::format("({},{})", texNumber(point.x), texNumber(point.y)); }
std::string rectangle(const FigureBox& box) {
  return fmt::format("{} rectangle ++{}", pair({box.x, box.y}), pair({box.width, box.height}));
}

/// The name of a kind in colours and styles: letters only.
std::string_view nameInTex(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward: return "pwF";
    case SpanKind::Backward: return "pwB";
    case SpanKind::BackwardInput: return "pwI";
    case SpanKind::BackwardWeight: return "pwW";
    case SpanKind::SendForward: return "pwSendF";
    case SpanKind::SendBackward: return "pwSendB";
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return "pwWait";
    case SpanKind::ReduceGrad: return "pwReduce";
    case SpanKind::Optimizer: return "pwOptimizer";
    case SpanKind::Load: return "pwLoad";
    case SpanKind::Store: return "pwStore";
  }
  return {};
}

std::string_view texFamily(std::string_view font) {
  const std::string_view kind = texFontOf(font);
  return kind == "monospace" ? "\\ttfamily" : kind == "serif" ? "\\rmfamily" : "\\sffamily";
}

class Picture {
 public:
  explicit Picture(const Figure& figure) : figure_(figure) {}
  std::string draw() &&;

 private:
  void preamble();
  void colours();
  void begin();
  void block(const FigureBlock& block);
  void hatch(const FigureBox& box, Hatch hatch);
  void merged(const FigureMerged& merged);
  void text(const FigureText& text);
  template <class... Values>
  void line(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_ += '\n';
  }
  [[nodiscard]] FigureLook look(SpanKind kind) const { return lookOf(kind, figure_.greyscale); }

  const Figure& figure_;
  std::string text_;
};

/// A space at the end of a line would be part of the picture or of the document; within tikzpicture it is not. Outside a document LaTeX has
/// not met \begin{document} yet, and \@nodocument is not \relax.
void Picture::preamble() {
  text_ =
      "% Drawn by Pipewright. This file compiles on its own; a document that loads tikz takes it with \\input.\n"
      "\\expandafter\\ifx\\csname @nodocument\\endcsname\\relax\n"
      "  \\def\\pipewrightEnd{}%\n"
      "\\else\n"
      "  \\documentclass[border=0pt]{standalone}\n"
      "  \\usepackage[T1]{fontenc}\n"
      "  \\IfFileExists{lmodern.sty}{\\usepackage{lmodern}}{}\n"
      "  \\usepackage{tikz}\n"
      "  \\def\\pipewrightEnd{\\end{document}}\n"
      "  \\begin{document}\n"
      "\\fi\n";
}

void Picture::colours() {
  std::array<bool, kSpanKinds> used{};
  for (const FigureBlock& block : figure_.blocks) used[static_cast<std::size_t>(block.kind)] = true;
  for (const FigureMerged& merged : figure_.merged) used[static_cast<std::size_t>(merged.kind)] = true;
  const auto define = [&](std::string_view name, std::uint32_t rgb) { line("\\definecolor{{{}}}{{HTML}}{{{:06X}}}", name, rgb); };
  for (std::size_t k = 0; k < kSpanKinds; ++k) {
    const auto kind = static_cast<SpanKind>(k);
    if (!used[k]) continue;
    define(nameInTex(kind), look(kind).fill);
    define(fmt::format("{}Text", nameInTex(kind)), look(kind).text);
  }
  const FigureColours colours = coloursOf(figure_.greyscale);
  define("pwLane", colours.lane);
  define("pwLine", colours.line);
  define("pwText", colours.text);
  define("pwNote", colours.note);
  define("pwMemory", colours.memory);
  define("pwHatch", colours.hatch);
}

void Picture::begin() {
  const std::string_view family = texFamily(figure_.font);
  const auto font = [&](double mm, std::string_view series) {
    return fmt::format("{{{}{}\\fontsize{{{}}}{{{}}}\\selectfont}}", family, series, texNumber(mm * kTexPoints),
                       texNumber(1.2 * mm * kTexPoints));
  };
  line("\\begin{{tikzpicture}}[x=1mm,y=-1mm,inner sep=0pt,outer sep=0pt,");
  line("  pwTitle/.style={{text=pwText,font={}}},", font(textSize(figure_, TextRole::Title), "\\bfseries"));
  line("  pwLaneTitle/.style={{text=pwText,font={}}},", font(textSize(figure_, TextRole::Heading), "\\bfseries"));
  line("  pwRank/.style={{text=pwText,font={}}},", font(textSize(figure_, TextRole::Name), ""));
  line("  pwNote/.style={{text=pwNote,font={}}},", font(textSize(figure_, TextRole::Note), ""));
  line("  pwLabel/.style={{anchor=base,font={}}},", font(labelSize(figure_), ""));
  line("  pwRuler/.style={{draw=pwLine,line width=0.1mm}},");
  line("  pwFrame/.style={{draw=pwNote,line width=0.1mm}},");
  line("  pwHatched/.style={{draw=pwHatch,line width={}mm}}]", texNumber(kHatchLine));
}

void Picture::hatch(const FigureBox& box, Hatch hatch) {
  const std::vector<FigureSegment> lines = hatchLines(box, hatch);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i % kPathParts == 0) text_ += "\\path[pwHatched]";
    text_ += fmt::format(" {}--{}", pair(lines[i].from), pair(lines[i].to));
    if ((i + 1) % kPathParts == 0 || i + 1 == lines.size()) text_ += ";\n";
  }
}

void Picture::block(const FigureBlock& block) {
  const std::string_view kind = nameInTex(block.kind);
  line("\\fill[{}] {};", kind, rectangle(block.box));
  const Hatch lines = look(block.kind).hatch;
  hatch(block.box, lines);
  if (block.label.empty()) return;
  if (lines != Hatch::None) line("\\path[fill={}] {};", kind, rectangle(plateOf(figure_, block)));
  line("\\node[pwLabel,text={}Text] at {} {{{}}};", kind, pair(labelPoint(figure_, block)), texText(block.label));
}

void Picture::merged(const FigureMerged& merged) {
  for (std::size_t i = 0; i < merged.boxes.size(); ++i) {
    if (i % kPathParts == 0) text_ += fmt::format("\\path[fill={}]", nameInTex(merged.kind));
    text_ += " " + rectangle(merged.boxes[i]);
    if ((i + 1) % kPathParts == 0 || i + 1 == merged.boxes.size()) text_ += ";\n";
  }
}

void Picture::text(const FigureText& text) {
  std::string_view role, align;
  switch (text.role) {
    case TextRole::Title: role = "pwTitle"; break;
    case TextRole::Heading: role = "pwLaneTitle"; break;
    case TextRole::Name: role = "pwRank"; break;
    case TextRole::Note: role = "pwNote"; break;
  }
  switch (text.align) {
    case TextAlign::Left: align = "base west"; break;
    case TextAlign::Middle: align = "base"; break;
    case TextAlign::Right: align = "base east"; break;
  }
  line("\\node[{},anchor={}] at {} {{{}}};", role, align, pair(text.at), texText(text.text));
}

std::string Picture::draw() && {
  preamble();
  begin();
  colours();
  line("\\useasboundingbox (0,0) rectangle ({},{});", texNumber(figure_.width), texNumber(figure_.height));
  for (const FigureBox& box : figure_.lanes) line("\\path[fill=pwLane] {};", rectangle(box));
  for (const FigureSegment& l : figure_.lines) line("\\path[pwRuler] {}--{};", pair(l.from), pair(l.to));
  for (const FigureCurve& curve : figure_.memory) {
    if (curve.outline.empty()) continue;
    text_ += "\\path[fill=pwMemory]";
    for (const FigurePoint& point : curve.outline) text_ += fmt::format(" {}--", pair(point));
    text_ += " cycle;\n";
  }
  for (const FigureMerged& m : figure_.merged) merged(m);
  for (const FigureBlock& b : figure_.blocks) block(b);
  if (figure_.greyscale) {
    for (const FigureBox& box : figure_.lanes) line("\\path[pwFrame] {};", rectangle(box));
  }
  for (const FigureSwatch& swatch : figure_.swatches) {
    line("\\path[fill={}] {};", swatch.kind ? nameInTex(*swatch.kind) : "pwLane", rectangle(swatch.box));
    if (swatch.kind) hatch(swatch.box, look(*swatch.kind).hatch);
    if (figure_.greyscale) line("\\path[pwFrame] {};", rectangle(swatch.box));
  }
  for (const FigureText& t : figure_.texts) text(t);
  text_ += "\\end{tikzpicture}%\n\\pipewrightEnd\n";
  return std::move(text_);
}

}  // namespace

std::string toTikz(const Figure& figure) { return Picture(figure).draw(); }

std::string_view texFontOf(std::string_view font) {
  const auto says = [font](std::string_view word) { return font.find(word) != std::string_view::npos; };
  if (font == "monospace" || says("Mono") || says("Courier")) return "monospace";
  return font == "serif" || says("Times") || says("Roman") ? "serif" : "sans-serif";
}

}  // namespace pw
