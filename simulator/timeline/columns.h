#pragma once

#include <vector>

#include "simulator/timeline/figure.h"

namespace pw {

/// A span in a row that is too narrow to be drawn, from the row's left [mm].
struct NarrowSpan {
  SpanKind kind = SpanKind::Forward;
  double from = 0, to = 0;
};

/// Fills columns of that width from the bottom of the row by each kind's share of their time, so that the empty part is bubble. Adjacent
/// equal columns are one box. One element for each kind there is. Linear in the columns that spans touch.
[[nodiscard]] std::vector<FigureMerged> mergeColumns(const std::vector<NarrowSpan>& spans, const FigureBox& row, double column);

}  // namespace pw
