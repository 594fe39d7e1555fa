#pragma once

#include <string>
#include <string_view>

#include "simulator/timeline/figure.h"

namespace pw {

/// Limits of what TeX draws within its usual memory of 5 million words: a block with its label needs about 500, a merged box 200.
inline constexpr FigureFrame kTikzFrame{.mostBlocks = 3'000, .mostColumns = 8'000};

/// A figure, laid out with `kTikzFrame`, as TikZ: a file that LaTeX compiles on its own (class standalone) and that a document which loads
/// tikz takes with \input. Names are escaped, colours are defined once (pwF, pwB, …), every block is one \fill, and text is set in the
/// document's sans-serif, serif or monospaced font.
[[nodiscard]] std::string toTikz(const Figure& figure);

/// Which of the document's fonts TikZ takes for a family: "sans-serif", "serif" or "monospace".
[[nodiscard]] std::string_view texFontOf(std::string_view font);

}  // namespace pw
