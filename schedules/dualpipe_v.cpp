#include <deque>

#include <fmt/format.h>

#include "schedules/families.h"

namespace pw::families {
namespace {

/// A row and the stages whose weight parts are still to be done, first in, first out.
struct Queueing {
  Row row;
  std::deque<Stage> waiting = {};

  void inputOnly(Stage stage) {
    row.i(stage);
    waiting.push_back(stage);
  }
  void oldestWeight() {
    row.w(waiting.front());
    waiting.pop_front();
  }
};

/// Fill and the first gradients.
void addStart(Queueing& queueing, int ranks, int rank, Stage down, Stage up) {
  Row& row = queueing.row;
  for (int k = 0; k < 2 * (ranks - 1 - rank); ++k) row.f(down);
  for (int k = 0; k <= rank; ++k) {
    row.f(down);
    row.f(up);
  }
  for (int k = rank + 1; k < ranks; ++k) {
    queueing.inputOnly(up);
    queueing.oldestWeight();
    row.f(up);
  }
}

/// The forward of one direction overlapped with the backward of the other. The last rank's first pair is not overlapped: its forward need
/// not wait for the first gradient.
void addSteady(Row& row, const Shape& shape, int rank, Stage down, Stage up) {
  for (int k = 0; k < shape.microbatches - 2 * shape.ranks + rank + 1; ++k) {
    if (k == 0 && rank == shape.ranks - 1) {
      row.f(down);
      row.b(up);
    } else {
      row.fb(down, up);
    }
    row.fb(up, down);
  }
  for (int k = rank + 1; k < shape.ranks; ++k) {
    row.b(up);
    row.fb(up, down);
  }
}

/// The second half of the last backwards is split, so that weight parts fill the drain.
void addDrain(Queueing& queueing, int ranks, int rank, Stage down, Stage up) {
  for (int k = 0; k < 2 * (rank + 1); ++k) {
    const Stage stage = k % 2 == 0 ? up : down;
    k <= rank ? queueing.row.b(stage) : queueing.inputOnly(stage);
  }
  for (int k = rank + 1; k < ranks; ++k) {
    queueing.oldestWeight();
    queueing.inputOnly(down);
  }
  while (!queueing.waiting.empty()) queueing.oldestWeight();
}

}  // namespace

/// DualPipeV (DeepSeek's DualPipe repository; the "cut in half" of Sea AI Lab), cell by cell torch 2.11's ScheduleDualPipeV.
Schedule dualPipeV(const Shape& shape) {
  Schedule schedule = empty("dualpipev", shape, wavePlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const Stage down{rank}, up{2 * shape.ranks - 1 - rank};
    Queueing queueing{Row(shape, schedule.rows[static_cast<std::size_t>(rank)])};
    addStart(queueing, shape.ranks, rank, down, up);
    addSteady(queueing.row, shape, rank, down, up);
    addDrain(queueing, shape.ranks, rank, down, up);
  }
  return schedule;
}

std::optional<std::string> refusalOfDualPipeV(const Shape& shape) {
  if (auto refusal = needTwoChunks(shape)) return refusal;
  if (shape.microbatches >= shape.stages) return std::nullopt;
  return fmt::format("it needs at least two microbatches per rank, but there are {} on {} ranks; use {}", shape.microbatches, shape.ranks,
                     shape.stages);
}

}  // namespace pw::families
