#include "simulator/timeline/figure_looks.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/timeline/figure_text.h"

namespace pw {
namespace {

constexpr double kMmPerPoint = 25.4 / 72;
constexpr double kSpacing = 0.8;  ///< between the lines of a hatching [mm]

/// Level (or upright) lines across the box.
void addStraight(std::vector<FigureSegment>& lines, const FigureBox& box, bool level) {
  const double begin = level ? box.y : box.x, end = begin + (level ? box.height : box.width);
  const auto first = std::llround(begin / kSpacing), last = std::llround(end / kSpacing);  // lines lie in the middle between multiples
  for (auto line = first; line < last; ++line) {
    const double at = (static_cast<double>(line) + 0.5) * kSpacing;
    if (level)
      lines.push_back({{box.x, at}, {box.x + box.width, at}});
    else
      lines.push_back({{at, box.y}, {at, box.y + box.height}});
  }
}

/// Lines at 45 degrees: x + y is the same on a rising one, x − y on a falling one, y pointing down.
void addSlanted(std::vector<FigureSegment>& lines, const FigureBox& box, bool rising) {
  constexpr double kStep = kSpacing * 1.414213562;
  const double right = box.x + box.width, bottom = box.y + box.height;
  const double first = rising ? box.x + box.y : box.x - bottom, last = rising ? right + bottom : right - box.y;
  for (auto line = std::llround(std::floor(first / kStep)) + 1; static_cast<double>(line) * kStep < last; ++line) {
    const double c = static_cast<double>(line) * kStep;
    const double x0 = std::max(box.x, rising ? c - bottom : c + box.y), x1 = std::min(right, rising ? c - box.y : c + bottom);
    if (x1 > x0) lines.push_back({{x0, rising ? c - x0 : x0 - c}, {x1, rising ? c - x1 : x1 - c}});
  }
}

FigureLook greyOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward: return {0xd9d9d9, 0, Hatch::None};
    case SpanKind::Backward: return {0x9e9e9e, 0, Hatch::None};
    case SpanKind::BackwardInput: return {0xc2c2c2, 0, Hatch::Rising};
    case SpanKind::BackwardWeight: return {0xf2f2f2, 0, Hatch::Falling};
    case SpanKind::SendForward: return {0x777777, 0xffffff, Hatch::None};
    case SpanKind::SendBackward: return {0x333333, 0xffffff, Hatch::None};
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return {0xffffff, 0, Hatch::None};
    case SpanKind::ReduceGrad: return {0xe6e6e6, 0, Hatch::Upright};
    case SpanKind::Optimizer: return {0xe6e6e6, 0, Hatch::Cross};
    case SpanKind::Load: return {0xcccccc, 0, Hatch::Level};
    case SpanKind::Store: return {0xb0b0b0, 0, Hatch::Level};
  }
  return {};
}

}  // namespace

FigureLook lookOf(SpanKind kind, bool greyscale) {
  if (greyscale) return greyOf(kind);
  switch (kind) {
    case SpanKind::Forward: return {0x56b4e9, 0, Hatch::None};
    case SpanKind::Backward: return {0x0072b2, 0xffffff, Hatch::None};
    case SpanKind::BackwardInput: return {0x009e73, 0, Hatch::None};
    case SpanKind::BackwardWeight: return {0xe69f00, 0, Hatch::None};
    case SpanKind::SendForward: return {0xcc79a7, 0, Hatch::None};
    case SpanKind::SendBackward: return {0x9d5d80, 0xffffff, Hatch::None};
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return {0xeceff1, 0, Hatch::None};
    case SpanKind::ReduceGrad: return {0xd0c13b, 0, Hatch::None};
    case SpanKind::Optimizer: return {0xf0e442, 0, Hatch::None};
    case SpanKind::Load: return {0x999999, 0, Hatch::None};
    case SpanKind::Store: return {0xbbbbbb, 0, Hatch::None};
  }
  return {};
}

std::string_view wordOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward: return "forward";
    case SpanKind::Backward: return "backward";
    case SpanKind::BackwardInput: return "backward, inputs";
    case SpanKind::BackwardWeight: return "backward, weights";
    case SpanKind::SendForward: return "activations sent";
    case SpanKind::SendBackward: return "gradients sent";
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return "wait";
    case SpanKind::ReduceGrad: return "reduce gradients";
    case SpanKind::Optimizer: return "optimizer";
    case SpanKind::Load: return "load inputs or parameters";
    case SpanKind::Store: return "store to the host";
  }
  return {};
}

FigureColours coloursOf(bool greyscale) {
  if (!greyscale) return {};
  return {.lane = 0xffffff, .line = 0xc8c8c8, .note = 0x444444, .memory = 0xb4b4b4};
}

std::vector<FigureSegment> hatchLines(const FigureBox& box, Hatch hatch) {
  std::vector<FigureSegment> lines;
  switch (hatch) {
    case Hatch::None: break;
    case Hatch::Rising: addSlanted(lines, box, true); break;
    case Hatch::Falling: addSlanted(lines, box, false); break;
    case Hatch::Level: addStraight(lines, box, true); break;
    case Hatch::Upright: addStraight(lines, box, false); break;
    case Hatch::Cross:
      addSlanted(lines, box, true);
      addSlanted(lines, box, false);
      break;
  }
  return lines;
}

double textSize(const Figure& figure, TextRole role) {
  const double size = figure.fontSize * kMmPerPoint;
  switch (role) {
    case TextRole::Title: return 1.25 * size;
    case TextRole::Heading:
    case TextRole::Name: return size;
    case TextRole::Note: return size * 11 / 12;
  }
  return size;
}

double labelSize(const Figure& figure) { return textSize(figure, TextRole::Note) * figure.labelScale; }

std::string descriptionOf(const FigureBlock& block) {
  const Span& span = *block.span;
  const std::string times =
      fmt::format("{}, {} at {}", wordOf(span.kind), formatDuration(span.end - span.start), formatDuration(span.start));
  if (span.microbatch.value < 0) return fmt::format("{} {}", nameOf(span.kind), times);
  const std::string what = fmt::format("{}{}{} {}", span.stage.value, nameOf(span.kind), span.microbatch.value, times);
  return span.peer != span.rank ? fmt::format("{}, to rank {}, {}", what, span.peer.value, formatSize(span.bytes)) : what;
}

FigurePoint labelPoint(const Figure& figure, const FigureBlock& block) {
  return {block.box.x + block.box.width / 2, block.box.y + block.box.height / 2 + 0.36 * labelSize(figure)};
}

FigureBox plateOf(const Figure& figure, const FigureBlock& block) {
  const double size = labelSize(figure);
  const double width = std::min(block.box.width, textWidth(block.label, size, figure.font == "monospace") + 0.3 * size);
  const double height = std::min(block.box.height, 1.05 * size);
  return {block.box.x + (block.box.width - width) / 2, block.box.y + (block.box.height - height) / 2, width, height};
}

}  // namespace pw
