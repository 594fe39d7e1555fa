#pragma once

#include <string>
#include <vector>

#include "simulator/timeline/figure_style.h"

namespace pw::cli {

/// A figure that the app draws, because fonts and pictures need Qt, which this program does not link.
struct AppFigure {
  std::vector<std::string> files;        ///< a plan, a store or a trace; a plan and a trace
  int run = 0;                           ///< of the store; 0: there is none
  int step = 0;                          ///< of the trace, from 1; 0: its only one
  bool predicted = false, both = false;  ///< which steps; neither: the measured one
  FigureStyle style;
  int dpi = 0;      ///< of PNG; 0: the usual
  std::string out;  ///< `.pdf` or `.png`
};

/// Has `pipewright-gui`, beside this program, write the figure. Returns its exit status; it has said on stderr what was wrong. Throws
/// UsageError where there is no such program.
[[nodiscard]] int drawByApp(const AppFigure& figure);

}  // namespace pw::cli
