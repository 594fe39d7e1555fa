#include "schedules/placement.h"

#include <cassert>

namespace pw {

Placement loopPlacement(const Shape& shape) {
  assert(shape.ranks >= 1 && shape.stages >= 0);
  Placement placement;
  placement.rankOfStage.reserve(static_cast<std::size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage) placement.rankOfStage.emplace_back(stage % shape.ranks);
  return placement;
}

Placement wavePlacement(const Shape& shape) {
  assert(shape.ranks >= 1 && shape.stages >= 0);
  Placement placement;
  placement.rankOfStage.reserve(static_cast<std::size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage) {
    const int along = stage % shape.ranks;
    const bool down = stage / shape.ranks % 2 == 0;
    placement.rankOfStage.emplace_back(down ? along : shape.ranks - 1 - along);
  }
  return placement;
}

Placement bidirectionalPlacement(const Shape& shape) {
  Placement placement = loopPlacement(shape);
  placement.firstMirrored = Microbatch{(shape.microbatches + 1) / 2};
  placement.mirrorOfStage.assign(placement.rankOfStage.rbegin(), placement.rankOfStage.rend());
  return placement;
}

PlacementKind kindOf(const Placement& placement, const Shape& shape) {
  if (shape.ranks < 1) return PlacementKind::Custom;
  if (placement == loopPlacement(shape)) return PlacementKind::Loop;
  if (shape.stages == shape.ranks && placement == bidirectionalPlacement(shape)) return PlacementKind::Bidirectional;
  if (placement != wavePlacement(shape)) return PlacementKind::Custom;
  return shape.stages == 2 * shape.ranks ? PlacementKind::V : PlacementKind::Wave;
}

}  // namespace pw
