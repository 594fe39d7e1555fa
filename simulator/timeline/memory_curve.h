#pragma once

#include <vector>

#include "simulator/timeline/figure.h"

namespace pw {

/// The outline of a rank's memory over a time range as an area that fills the box where `most` bytes are used. Within 0.1 mm only the most
/// is drawn, so that the outline has a bounded number of points. Empty where the trace has no samples of the rank. Cost: linear in the
/// trace's samples up to the rank's.
[[nodiscard]] std::vector<FigurePoint> memoryCurve(const Trace& trace, Rank rank, const TimeRange& times, Bytes most, const FigureBox& box);

}  // namespace pw
