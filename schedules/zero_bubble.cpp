#include <algorithm>

#include <fmt/format.h>

#include "schedules/families.h"
#include "schedules/generate.h"

namespace pw::families {
namespace {

/// One forward, one backward with split backwards (Zero Bubble, arXiv 2401.10241): `ahead` forwards before the first
/// input gradient, then I, W, F in turn, where the weight gradients begin `delay` microbatches after the input ones.
/// So ahead + delay microbatches are live, and the delayed W are left for the end, where 1F1B waits.
void splitRow(Row& row, int rank, int microbatches, int ahead, int delay) {
  const Stage stage(rank);
  const int first = std::min(ahead, microbatches);
  for (int m = 0; m < first; ++m) row.f(stage);
  for (int m = 0; m < microbatches; ++m) {
    row.i(stage);
    if (m >= delay) row.w(stage);
    if (first + m < microbatches) row.f(stage);
  }
  for (int m = std::max(0, microbatches - delay); m < microbatches; ++m) row.w(stage);
}

}  // namespace

/// ZB-H1 (section 3.1): the warmup of 1F1B, W of rank i delayed by i microbatches, min(R, M) live on every rank.
/// For W ≤ F and W ≤ I its flush bubble is (R−1)(F+I−W), without latency for M ≥ R; latencies c ≤ W/2 add 4(R−1)c for
/// M > R (2(R−1)c less for M = R). Fewer microbatches run, with more bubble.
Schedule zbH1(const Shape& shape) {
  Schedule schedule = empty("zb-h1", shape, loopPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Row row(shape, schedule.rows[static_cast<std::size_t>(rank)]);
    splitRow(row, rank, shape.microbatches, shape.ranks - rank, rank);
  }
  return schedule;
}

/// ZB-H2 (section 3.2): 2(R−i)−1 forwards before the first I, W of rank i delayed by 2i: 2R−1 live on every rank. For
/// W ≤ F, 2W ≤ F+I+2c and 2c ≤ F+I the bubble of the window is (R−1)(F+I+2c−2W).
Schedule zbH2(const Shape& shape) {
  Schedule schedule = empty("zb-h2", shape, loopPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Row row(shape, schedule.rows[static_cast<std::size_t>(rank)]);
    splitRow(row, rank, shape.microbatches, 2 * (shape.ranks - rank) - 1, 2 * rank);
  }
  return schedule;
}

std::optional<std::string> refusalOfZbH2(const Shape& shape) {
  if (auto refusal = needOneChunk(shape)) return refusal;
  const int least = 2 * shape.ranks - 1;
  if (shape.microbatches >= least) return std::nullopt;
  return fmt::format("it needs at least {} microbatches on {} ranks (you have {}); use {}, or the schedule zb-h1", least, shape.ranks,
                     shape.microbatches, least);
}

}  // namespace pw::families
