#pragma once

#include <string>
#include <vector>

#include "simulator/report/metrics.h"
#include "simulator/timeline/figure.h"

namespace pw {

/// What a figure draws of a step.
struct FigureSpans {
  const Trace* trace = nullptr;
  std::string title;
  Metrics metrics;                             ///< of the whole step
  std::vector<double> busy;                    ///< share of the drawn time, by rank
  std::vector<std::vector<const Span*>> rows;  ///< spans by rank, in the trace's order; of ranks that are not chosen none
  Bytes peak = 0;                              ///< of the chosen ranks
  bool severalStages = false;                  ///< on a rank
};
/// `times`: what is drawn of the step. Linear in spans.
[[nodiscard]] FigureSpans spansOf(const FigureLane& lane, const FigureStyle& style, const TimeRange& times);

/// The last end of a span that figures draw; at least 1.
[[nodiscard]] Ns endOf(const std::vector<FigureLane>& lanes);

/// On the strip below its rank's row: messages and reductions that run beside the rank's work.
[[nodiscard]] bool isBelow(const Span& span);

}  // namespace pw
