#include <cassert>

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

}  // namespace pw
