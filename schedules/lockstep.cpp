#include <algorithm>
#include <cassert>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/families.h"
#include "schedules/generate.h"

namespace pw {
namespace families {

/// PopART's pipelining (docs/notes/transforms/pipelining.md of its repository): in every cycle a rank does the forward of one
/// microbatch and the backward of an older one, as far as there are such; then all ranks exchange. A gradient comes back to rank i
/// 2(R−1−i) cycles after its forward, so the rank holds up to 2(R−1−i) + 1 microbatches.
Schedule lockstep(const Shape& shape) {
  Schedule schedule = empty("lockstep", shape, loopPlacement(shape));
  schedule.lockstep = true;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = schedule.rows[static_cast<std::size_t>(rank)];
    actions.reserve(2 * static_cast<std::size_t>(shape.microbatches));
    Row row(shape, actions);
    const int delay = 2 * (shape.ranks - 1 - rank);  // cycles from a forward to its backward
    for (int turn = 0; turn < shape.microbatches + delay; ++turn) {
      if (turn < shape.microbatches) row.f(Stage{rank});
      if (turn >= delay) row.b(Stage{rank});
    }
  }
  return schedule;
}

}  // namespace families

int lockstepCycle(int ranks, const Action& action) {
  assert(isCompute(action.kind));
  const int there = action.stage.value;
  const int back = 2 * ranks - 2 - action.stage.value;
  return action.microbatch.value + (action.kind == ActionKind::Forward ? there : back);
}

int lockstepCycles(const Shape& shape) { return shape.microbatches + 2 * shape.ranks - 2; }

void requireCycles(const Schedule& schedule) {
  const Shape shape = shapeOf(schedule);
  if (shape.ranks < 1 || shape.ranks != shape.stages)
    throw UsageError(fmt::format("lockstep needs one stage per rank, but schedule {} has {} stages on {} ranks", schedule.name,
                                 shape.stages, shape.ranks));
  for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) {
    int last = 0;
    for (const Action& action : schedule.rows[rank]) {
      if (!isCompute(action.kind)) continue;
      const bool known = action.stage.value >= 0 && action.stage.value < shape.stages && action.microbatch.value >= 0 &&
                         action.microbatch.value < schedule.microbatches;
      const int cycle = known ? lockstepCycle(shape.ranks, action) : -1;
      if (cycle < last)
        throw UsageError(fmt::format("schedule {} does not run in cycles: {} of rank {} is out of its turn; use the family lockstep",
                                     schedule.name, toString(action), rank));
      last = cycle;
    }
  }
}

}  // namespace pw
