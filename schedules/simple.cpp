#include <algorithm>

#include <fmt/format.h>

#include "schedules/families.h"
#include "schedules/generate.h"

namespace pw::families {

Schedule forwardOnly(const Shape& shape) {
  Schedule schedule = empty("forward-only", shape, loopPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = schedule.rows[static_cast<std::size_t>(rank)];
    Row row(shape, actions);
    for (int stage = rank; stage < shape.stages; stage += shape.ranks) {
      for (int m = 0; m < shape.microbatches; ++m) row.f(Stage{stage});
    }
  }
  return schedule;
}

/// GPipe (Huang et al., NeurIPS 2019, section 2.3): all forwards, then all backwards. Backwards go in the order of the
/// microbatches, as torch does, not reversed as in the paper's figure: the times are the same.
Schedule gpipe(const Shape& shape) {
  Schedule schedule = empty("gpipe", shape, loopPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Row row(shape, schedule.rows[static_cast<std::size_t>(rank)]);
    for (int m = 0; m < shape.microbatches; ++m) row.f(Stage{rank});
    for (int m = 0; m < shape.microbatches; ++m) row.b(Stage{rank});
  }
  return schedule;
}

/// 1F1B (DAPPLE, PPoPP 2021; Megatron-LM, SC 2021, section 2.2.1): rank i warms up with R−1−i forwards, alternates, and
/// drains. Where M ≤ R−i that is GPipe's row: all microbatches are in before the first gradient comes. The order is
/// that of torch's running loop (`Schedule1F1B._step_microbatches`), not of its `pipeline_order`.
Schedule oneForwardOneBackward(const Shape& shape) {
  Schedule schedule = empty("1f1b", shape, loopPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Row row(shape, schedule.rows[static_cast<std::size_t>(rank)]);
    const int warmup = std::min(shape.microbatches, shape.ranks - 1 - rank);
    for (int m = 0; m < warmup; ++m) row.f(Stage{rank});
    for (int m = warmup; m < shape.microbatches; ++m) {
      row.f(Stage{rank});
      row.b(Stage{rank});
    }
    for (int m = 0; m < warmup; ++m) row.b(Stage{rank});
  }
  return schedule;
}

std::optional<std::string> torchRefuses1f1b(const Shape& shape) {
  if (shape.microbatches >= shape.stages) return std::nullopt;
  return fmt::format("torch's 1F1B needs at least as many microbatches as stages, but there are {} and {}; use {} microbatches",
                     shape.microbatches, shape.stages, shape.stages);
}

/// Breadth-first pipeline (Lamy-Poirier, 2211.05953), cell by cell torch 2.11's ScheduleLoopedBFS: all forwards of a stage before the next
/// one's, and all backwards in the opposite order. Idle cells until the first input can have arrived, and between forwards and backwards
/// two for each later rank.
Schedule loopedBfs(const Shape& shape) {
  Schedule schedule = empty("looped-bfs", shape, loopPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = schedule.rows[static_cast<std::size_t>(rank)];
    Row row(shape, actions);
    row.idle(rank);
    for (int stage = rank; stage < shape.stages; stage += shape.ranks) {
      for (int m = 0; m < shape.microbatches; ++m) row.f(Stage{stage});
    }
    row.idle(2 * (shape.ranks - 1 - rank));
    for (int stage = shape.stages - shape.ranks + rank; stage >= 0; stage -= shape.ranks) {
      for (int m = shape.microbatches - 1; m >= 0; --m) actions.push_back({Stage{stage}, ActionKind::Backward, Microbatch{m}});
    }
  }
  return schedule;
}

}  // namespace pw::families
