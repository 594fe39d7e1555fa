#pragma once

#include <vector>

#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {

/// Spans of the two timelines that are the same action of the same rank, repeated ones in the order of starts: for each predicted compute
/// span the index of its measured one in the rank's compute track, or −1; and back. A whole backward and a split one's I, where neither has
/// one of its own kind, are the same action, as `compare` has it. Linear.
struct Matches {
  std::vector<std::vector<std::int32_t>> measuredOf, predictedOf;  ///< by rank, then index
};
[[nodiscard]] Matches matchSpans(const Timeline& predicted, const Timeline& measured);

}  // namespace pw::gui
