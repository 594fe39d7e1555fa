#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "schedules/families.h"

namespace pw::families {
namespace {

/// One rank's row with enough microbatches that every phase is full [≥ 2R − 1].
void addRow(Row& row, int ranks, int rank, int microbatches) {
  const Stage down{rank}, up{2 * ranks - 1 - rank};
  const auto backward = [&](Stage stage) {
    row.i(stage);
    row.w(stage);
  };
  row.idle(rank);
  for (int k = 0; k < 2 * (ranks - rank) - 1; ++k) row.f(down);
  for (int k = 0; k < rank; ++k) {
    row.f(up);
    row.f(down);
  }
  for (int k = rank; k < ranks; ++k) {
    row.f(up);
    backward(up);
  }
  while (row.done(up, ActionKind::Forward) < microbatches) {
    if (row.done(down, ActionKind::Forward) < microbatches) row.f(down);
    backward(down);
    row.f(up);
    backward(up);
  }
  for (int k = 0; k < rank; ++k) {
    row.i(down);
    row.i(up);
  }
  for (int k = rank; k < ranks; ++k) backward(down);
  for (int k = 0; k < rank; ++k) row.w(up);
  for (int k = 0; k < rank; ++k) row.w(down);
}

/// With as many microbatches as every phase needs.
Shape padded(const Shape& shape) { return {shape.ranks, shape.stages, std::max(2 * shape.ranks - 1, shape.microbatches)}; }

}  // namespace

std::optional<std::string> refusalOfZbV(const Shape& shape) {
  if (auto refusal = needTwoChunks(shape)) return refusal;
  const auto refusal = absurdity(padded(shape));
  if (!refusal) return std::nullopt;
  return fmt::format("it is padded to 2R−1 = {} microbatches, and {}; use fewer ranks", 2 * shape.ranks - 1, *refusal);
}

/// ZB-V (Zero Bubble, 2401.10241, section 6), cell by cell torch 2.11's ScheduleZBVZeroBubble: a fixed order for equal times, where the
/// paper's own searches by times. With fewer than 2R − 1 microbatches it is the row of 2R − 1 with the surplus replaced by idle cells.
Schedule zbV(const Shape& shape) {
  const Shape full = padded(shape);
  Schedule schedule = empty("zbv", shape, wavePlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = schedule.rows[static_cast<std::size_t>(rank)];
    Row row(full, actions);
    addRow(row, shape.ranks, rank, full.microbatches);
    std::ranges::replace_if(
        actions, [&](const Action& a) { return a.microbatch.value >= shape.microbatches; }, kIdle);
  }
  return schedule;
}

}  // namespace pw::families
