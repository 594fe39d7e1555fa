#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/timeline/figure_style.h"
#include "simulator/trace/trace.h"

namespace pw {

/// A drawing of steps, laid out: what stands where, without a file format. Lengths are in mm, x to the right and y down from the upper left
/// corner. The writers (svg.h, tikz.h, and the app for PDF and PNG) draw the parts in the order of the members of Figure.
struct FigurePoint {
  double x = 0, y = 0;
};
struct FigureBox {
  double x = 0, y = 0, width = 0, height = 0;
};
struct FigureSegment {
  FigurePoint from, to;
};

/// A span that is drawn individually.
struct FigureBlock {
  FigureBox box;
  SpanKind kind = SpanKind::Forward;
  std::string label;           ///< in its middle; empty where there is no room
  const Span* span = nullptr;  ///< of the trace that was laid out
};
/// Spans of a kind that are too narrow, filled by their share of the time.
struct FigureMerged {
  SpanKind kind = SpanKind::Forward;
  std::vector<FigureBox> boxes;
};
struct FigureCurve {
  std::vector<FigurePoint> outline;  ///< closed
};
struct FigureSwatch {
  FigureBox box;
  std::optional<SpanKind> kind;  ///< nothing: the lanes' background, a bubble
};

enum class TextRole : std::uint8_t { Title, Heading, Name, Note };
enum class TextAlign : std::uint8_t { Left, Middle, Right };
struct FigureText {
  FigurePoint at;  ///< on the baseline
  TextRole role = TextRole::Name;
  TextAlign align = TextAlign::Left;
  std::string text;
};

struct Figure {
  double width = 0, height = 0;  ///< [mm]
  std::string title, font;
  double fontSize = 8;    ///< of ranks' names [pt]
  double labelScale = 1;  ///< of labels in blocks, of the size of notes
  bool greyscale = false;

  std::vector<FigureBox> lanes;      ///< backgrounds
  std::vector<FigureSegment> lines;  ///< of the ruler
  std::vector<FigureCurve> memory;
  std::vector<FigureMerged> merged;
  std::vector<FigureBlock> blocks;  ///< by lane, rank and start
  std::vector<FigureSwatch> swatches;
  std::vector<FigureText> texts;
  std::size_t mergedSpans = 0;  ///< how many spans are part of `merged`
};

/// A step to draw. Several share one time axis, the first above.
struct FigureLane {
  const Trace* trace = nullptr;
  std::string title;  ///< above its ranks; none where empty
};

/// Measures that a drawing for the screen does not take from its content [mm], and limits. 0: from the content.
struct FigureFrame {
  double margin = 0.6, labels = 0, shares = 0;
  double narrowest = 0.05;          ///< a block drawn individually
  std::size_t mostBlocks = 12'000;  ///< drawn individually, the widest
  double mostColumns = 60'000;      ///< of merged spans, over all ranks
  std::size_t mostRows = 1024;      ///< of ranks, over all lanes
};

/// Lays steps out: a ruler; for each chosen rank a row with its actions and, below them, the messages it sends and its memory; and a
/// legend. Waits are bubble, drawn as the row's background. The widest blocks, at most 12,000, are drawn one by one; what is narrower than
/// 0.05 mm, or beyond that number, is merged by columns, so that the size of every file is bounded. Throws UsageError where the style names
/// ranks that no trace has or a time after its end, for more than `mostRows` rows, and where labels leave no room for the time axis. The
/// traces must live as long as the figure. Cost: n log n in spans.
[[nodiscard]] Figure layOut(const std::vector<FigureLane>& lanes, const FigureStyle& style, const FigureFrame& frame = {});

}  // namespace pw
