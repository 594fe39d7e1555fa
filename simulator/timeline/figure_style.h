#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ids.h"
#include "schedules/named_values.h"

namespace pw {

/// What stands in the blocks of a figure.
enum class BlockLabels : std::uint8_t {
  None,
  Number,  ///< of the microbatch: `3`
  Full,    ///< `F3`; `2F3` with the stage where a rank has several
};
constexpr std::string_view nameOf(BlockLabels labels) {
  switch (labels) {
    case BlockLabels::None: return "none";
    case BlockLabels::Number: return "microbatch";
    case BlockLabels::Full: return "full";
  }
  return {};
}

/// Ranks from `first` to `last`, both included.
struct RankRange {
  Rank first, last;

  bool operator==(const RankRange&) const = default;
};

/// Times of a step, [from, to).
struct TimeRange {
  Ns from = 0, to = 0;

  bool operator==(const TimeRange&) const = default;
};

/// A width that many documents use.
struct FigureWidth {
  std::string_view name;   ///< as `--width` takes it
  std::string_view where;  ///< as the app shows it
  double width;            ///< [mm]
};
inline constexpr std::array<FigureWidth, 4> kFigureWidths{{
    {"column", "One column of two", 85},
    {"text", "Text of a one-column page", 140},
    {"two-columns", "Two columns", 178},
    {"slide", "Slide", 320},
}};

/// How a figure for a paper, document or slide looks. Lengths are those on paper.
struct FigureStyle {
  double width = 178;               ///< of the whole figure [mm]
  std::string font = "sans-serif";  ///< a family, or sans-serif, serif, monospace
  double fontSize = 8;              ///< of the ranks' names [pt, 1/72 inch]; other texts are a little larger or smaller
  double rowHeight = 0;             ///< of a rank's row [mm]; 0: from the font size, less where the figure would be higher than a page
  std::vector<RankRange> ranks;     ///< empty: all
  std::optional<TimeRange> times;   ///< nothing: the whole step
  std::string title;                ///< above the figure; none where empty
  std::string predictedTitle = "Predicted", measuredTitle = "Measured";  ///< of two steps on one time axis
  std::string rankLabel = "rank";                                        ///< before a rank's number
  BlockLabels labels = BlockLabels::Number;
  bool legend = true;
  bool greyscale = false;  ///< greys and hatching instead of colours
  bool messages = true;    ///< below each rank, where there are any
  bool memory = false;     ///< a curve below each rank, where it is known
  bool busy = false;       ///< the share of time in which each rank computes, beside it
  bool summary = false;    ///< makespan and bubble, below the figure

  bool operator==(const FigureStyle&) const = default;
};

/// One setting of a style: an option of the command line and of the app, and an entry of what the app remembers.
struct FigureSetting {
  std::string_view name;   ///< `font-size`
  std::string_view value;  ///< what stands for its value in help; empty: a switch, with the values `on` and `off`
  std::string_view help;   ///< of a switch: what it does where it is not as by default
  void (*set)(FigureStyle& style, std::string_view text);  ///< throws UsageError with a sentence that names the value
  std::string (*text)(const FigureStyle& style);           ///< what `set` takes to make the same
};
/// All settings, each field of FigureStyle once, in the order of help.
[[nodiscard]] std::span<const FigureSetting> figureSettings();
/// The setting of that name. Throws UsageError where there is none.
[[nodiscard]] const FigureSetting& figureSetting(std::string_view name);

/// The options that make this style out of the default one, as words of a command line: `--width`, `85mm`, `--greyscale`, `--no-legend`.
[[nodiscard]] std::vector<std::string> figureOptions(const FigureStyle& style);

/// Whether the style's ranks include this one.
[[nodiscard]] bool includes(const FigureStyle& style, Rank rank);

}  // namespace pw
