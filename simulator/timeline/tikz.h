#pragma once

#include <string>

#include "simulator/timeline/figure.h"

namespace pw {

/// A figure as TikZ: a file that LaTeX compiles on its own (class standalone) and that a document which loads tikz takes with \input. Names
/// are escaped, colours are defined once (pwF, pwB, …), every block is one \fill, and text is set in the document's sans-serif, serif or
/// monospaced font.
[[nodiscard]] std::string toTikz(const Figure& figure);

}  // namespace pw
