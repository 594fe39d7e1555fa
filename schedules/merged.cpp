#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "schedules/families.h"

// Families whose ranks merge several 1F1B pipelines: the two directions of Chimera, the chunks of Hanayo's waves.

namespace pw::families {
namespace {

/// The time unit in which an action would start with F = B = 1 if its stage had the rank to itself: in a 1F1B pipeline of S stages, stage s
/// does F of microbatch m in unit 2m + s and its B in unit 2m + 2S−1−s, so an F in every other unit and a B in between. With V > 2 stages
/// per rank R microbatches enter, then none until V·R units have passed: time for their 2·V·R actions on a rank, where two stages work at a
/// time. Without that pause more than R microbatches would be live.
struct Starts {
  Shape shape;
  int stagesPerRank;
  int firstMirrored;

  [[nodiscard]] int of(const Action& a) const {
    const int m = a.microbatch.value % firstMirrored;  // its index within its direction
    const int entry = m / shape.ranks * shape.ranks * stagesPerRank + 2 * (m % shape.ranks);
    return entry + (a.kind == ActionKind::Forward ? a.stage.value : 2 * shape.stages - 1 - a.stage.value);
  }
};

/// Merges the stages of each rank by start, backward first. Of one rank's stages no two have an F in the same unit, nor a B:
/// mirrored ones take units of other parity, and those 2R apart work on different groups. So every tie is F against B.
/// Whatever an action needs has an earlier unit, so the rows cannot deadlock. At most R microbatches are live. Cost: n log n.
void mergeByStart(const Starts& starts, Schedule& schedule) {
  const Shape& shape = starts.shape;
  for (int s = 0; s < shape.stages; ++s) {
    for (int m = 0; m < shape.microbatches; ++m) {
      auto& row = schedule.rows[schedule.placement.rankOf(Stage{s}, Microbatch{m}).index()];
      row.push_back({Stage{s}, ActionKind::Forward, Microbatch{m}});
      row.push_back({Stage{s}, ActionKind::Backward, Microbatch{m}});
    }
  }
  std::vector<std::pair<int, Action>> timed;  // of one rank: 2 × start + 1 for a forward
  for (auto& row : schedule.rows) {
    timed.clear();
    for (const Action& a : row) timed.emplace_back(2 * starts.of(a) + (a.kind == ActionKind::Forward ? 1 : 0), a);
    std::ranges::sort(timed, {}, &std::pair<int, Action>::first);
    std::ranges::transform(timed, row.begin(), &std::pair<int, Action>::second);
  }
}

}  // namespace

/// Chimera (Li and Hoefler, SC 2021, 2107.06925): two opposite 1F1B pipelines of M/2 microbatches each share the ranks. The
/// bubble is (R−2)·max(F, B) for every M ≥ R, not only for M = R as in the paper, which joins batches of R microbatches end to end.
Schedule chimera(const Shape& shape) {
  Schedule schedule = empty("chimera", shape, bidirectionalPlacement(shape));
  mergeByStart({shape, 2, schedule.placement.firstMirrored.value}, schedule);
  return schedule;
}

/// Hanayo (Liu et al., SC 2023, 2308.15762): 1F1B on a zig-zag of V/2 waves. The bubble is 2(R−1)·max(F, B)/V where R | M.
Schedule hanayo(const Shape& shape) {
  Schedule schedule = empty("hanayo", shape, wavePlacement(shape));
  mergeByStart({shape, shape.stages / shape.ranks, shape.microbatches}, schedule);
  return schedule;
}

std::optional<std::string> refusalOfChimera(const Shape& shape) {
  if (auto refusal = needOneChunk(shape)) return refusal;
  if (shape.ranks % 2 != 0) {
    return fmt::format("it needs an even number of ranks (you have {})", shape.ranks);
  }
  if (shape.microbatches % 2 == 0) return std::nullopt;
  return fmt::format("it needs an even number of microbatches, half for each direction (you have {}); use {} for example",
                     shape.microbatches, shape.microbatches + 1);
}

std::optional<std::string> refusalOfHanayo(const Shape& shape) {
  if (auto refusal = absurdity(shape)) return refusal;
  if (shape.stages % (2 * shape.ranks) == 0) return std::nullopt;
  return fmt::format(
      "it needs an even number of stages on each rank, as a wave goes down the ranks and back up, but there are {} on {} ranks; "
      "use a multiple of {}",
      shape.stages, shape.ranks, 2 * shape.ranks);
}

}  // namespace pw::families
