#pragma once

#include <string>
#include <vector>

#include "simulator/timeline/figure_style.h"

namespace CLI {
class App;
}

namespace pw::cli {

inline constexpr const char* kFigureGroup = "Options of figures (--to svg, tikz, pdf, png)";  ///< in help

/// A figure as the command line describes it.
struct FigureOptions {
  FigureStyle style;
  std::vector<std::string> given;  ///< names of the settings that were given
};

/// An option for each setting of a figure. `options` must live as long as the command.
void addFigureOptions(CLI::App& command, FigureOptions& options);

}  // namespace pw::cli
