#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/timeline/figure.h"

namespace pw {

/// Directions of a hatching's lines.
enum class Hatch : std::uint8_t { None, Rising, Falling, Level, Upright, Cross };

/// How something is filled: colours are 0xRRGGBB.
struct FigureLook {
  std::uint32_t fill = 0xffffff, text = 0;
  Hatch hatch = Hatch::None;

  bool operator==(const FigureLook&) const = default;
};

/// Of a kind of span. In colour those of Okabe and Ito (2008), which are distinguishable with any colour vision; in greyscale F is plain,
/// and B, I, W and the rest differ by their hatching too.
[[nodiscard]] FigureLook lookOf(SpanKind kind, bool greyscale);
/// What the legend calls it.
[[nodiscard]] std::string_view wordOf(SpanKind kind);

/// Colours of what is no span.
struct FigureColours {
  std::uint32_t page = 0xffffff, lane = 0xeceff1, line = 0xc4cbd0, text = 0x222222, note = 0x555555, memory = 0xb4bec6, hatch = 0x333333;
};
[[nodiscard]] FigureColours coloursOf(bool greyscale);

inline constexpr double kHatchLine = 0.13;  ///< width of a hatching's lines [mm]

/// The lines of a hatching within a box. They lie on one grid for the whole figure, so that hatchings of neighbours continue each other.
[[nodiscard]] std::vector<FigureSegment> hatchLines(const FigureBox& box, Hatch hatch);

/// Size of a text [mm]; of a block's label.
[[nodiscard]] double textSize(const Figure& figure, TextRole role);
[[nodiscard]] double labelSize(const Figure& figure);
/// `1F2 forward, 1.00 ms at 3.00 ms`: what a block is, for a tooltip.
[[nodiscard]] std::string descriptionOf(const FigureBlock& block);

/// Where the baseline of a block's label has its middle; and the box behind the label that hatching leaves free.
[[nodiscard]] FigurePoint labelPoint(const Figure& figure, const FigureBlock& block);
[[nodiscard]] FigureBox plateOf(const Figure& figure, const FigureBlock& block);

}  // namespace pw
