#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/families.h"
#include "schedules/generate.h"

namespace pw::families {
namespace {

/// Idle cells grow with R² V even if there is little to do; a larger table than this (1 GB of actions) is a typing error.
constexpr std::int64_t kMaxCells = 64'000'000;

int chunksOf(const Shape& shape) { return shape.stages / shape.ranks; }

/// torch's number of groups; it refuses where they cannot all have the same size.
int roundsOf(const Shape& shape) { return std::max(1, shape.microbatches / shape.ranks); }

/// That many groups, as equal as possible, the larger ones first: the warmup covers the first group, and a later one
/// that is larger would need more.
std::vector<int> equalGroups(int microbatches, int count) {
  std::vector<int> sizes(static_cast<std::size_t>(count), microbatches / count);
  std::fill_n(sizes.begin(), microbatches % count, microbatches / count + 1);
  return sizes;
}

/// What every rank does, up to its own delay: the chunk of its k-th forward, group by group, the chunks of a group in
/// turn. The k-th backward goes through the chunks the other way, last one first.
struct Order {
  int ranks = 0;
  int chunks = 0;
  int firstGroup = 0;
  std::vector<int> chunkOf;  ///< size = chunks × microbatches

  Order(const Shape& shape, std::span<const int> groups) : ranks(shape.ranks), chunks(chunksOf(shape)), firstGroup(groups.front()) {
    chunkOf.reserve(static_cast<std::size_t>(shape.microbatches) * static_cast<std::size_t>(chunks));
    for (const int group : groups) {
      for (int chunk = 0; chunk < chunks; ++chunk) chunkOf.insert(chunkOf.end(), static_cast<std::size_t>(group), chunk);
    }
  }
  [[nodiscard]] int size() const { return static_cast<int>(chunkOf.size()); }
  [[nodiscard]] Stage forward(int rank, int k) const { return Stage{chunkOf[static_cast<std::size_t>(k)] * ranks + rank}; }
  [[nodiscard]] Stage backward(int rank, int k) const { return Stage{(chunks - 1 - chunkOf[static_cast<std::size_t>(k)]) * ranks + rank}; }
  /// Forwards before the first backward: the last rank does the earlier chunks of the first group, each preceding rank `perHop` more.
  [[nodiscard]] int warmup(int rank, int perHop) const { return std::min((chunks - 1) * firstGroup + perHop * (ranks - 1 - rank), size()); }
};

/// Idle cells show where a rank pauses at unit times: until the first input arrives, until the first gradient can have come back (a forward
/// through all stages and two cells per hop), and where no forward is left to go with the last backwards.
void addFullBackwardRow(Row& row, const Order& order, int rank) {
  const int warmup = order.warmup(rank, 2);
  row.idle(rank);
  for (int k = 0; k < warmup; ++k) row.f(order.forward(rank, k));
  if (warmup > 0) row.idle(order.chunks * order.ranks + 2 * (order.ranks - 1 - rank) - warmup - rank);
  for (int k = warmup; k < order.size(); ++k) {
    row.f(order.forward(rank, k));
    row.b(order.backward(rank, k - warmup));
  }
  for (int k = order.size() - warmup; k < order.size(); ++k) {
    row.idle(1);
    row.b(order.backward(rank, k));
  }
}

/// Half the warmup, because only the input gradient is passed on; rank i delays i weight gradients, which fill its drain.
void addSplitBackwardRow(Row& row, const Order& order, int rank) {
  const int warmup = order.warmup(rank, 1);
  row.idle(rank);
  for (int k = 0; k < warmup; ++k) row.f(order.forward(rank, k));
  if (warmup > 0) row.idle(order.ranks - 1 - rank);
  for (int k = 0; k < order.size(); ++k) {
    if (warmup + k < order.size()) row.f(order.forward(rank, warmup + k));
    row.i(order.backward(rank, k));
    if (k >= rank) row.w(order.backward(rank, k - rank));
  }
  for (int k = std::max(0, order.size() - rank); k < order.size(); ++k) row.w(order.backward(rank, k));
}

/// The next larger group size for which no group is smaller than the number of ranks.
int nextSafeGroup(const Shape& shape, int group) {
  const auto rest = [&] { return shape.microbatches % group; };
  while (rest() != 0 && rest() < shape.ranks) ++group;
  return group;
}

Schedule fullBackwards(const Shape& shape, std::span<const int> groups) {
  const Order order(shape, groups);
  Schedule schedule = empty("interleaved-1f1b", shape, loopPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Row row(shape, schedule.rows[static_cast<std::size_t>(rank)]);
    addFullBackwardRow(row, order, rank);
  }
  return schedule;
}

/// Idle cells where a forward would come before its input: all ranks go through their rows cell by cell, one cell each
/// at a time, and a forward waits until the stage before has done it in an earlier one. Gradients are not waited for.
/// Every rank does its forwards in the same order, so none waits forever.
void delayForwards(Schedule& schedule) {
  constexpr std::int32_t kNotYet = -1;
  const auto microbatches = static_cast<std::size_t>(schedule.microbatches);
  std::vector<std::int32_t> doneAt(schedule.placement.stages() * microbatches, kNotYet);
  const auto done = [&](std::int32_t stage, Microbatch m) -> std::int32_t& {
    return doneAt[static_cast<std::size_t>(stage) * microbatches + m.index()];
  };
  const auto waits = [&](const Action& a, std::int32_t now) {
    if (a.kind != ActionKind::Forward || a.stage.value == 0) return false;
    const std::int32_t then = done(a.stage.value - 1, a.microbatch);
    return then == kNotYet || then == now;
  };
  const std::vector<std::vector<Action>> plan = std::exchange(schedule.rows, std::vector<std::vector<Action>>(schedule.rows.size()));
  std::vector<std::size_t> next(plan.size(), 0);
  bool finished = false;
  for (std::int32_t now = 0; !finished; ++now) {
    finished = true;
    for (std::size_t rank = 0; rank < plan.size(); ++rank) {
      if (next[rank] == plan[rank].size()) continue;
      finished = false;
      const Action& a = plan[rank][next[rank]];
      const bool wait = waits(a, now);
      schedule.rows[rank].push_back(wait ? kIdle : a);
      if (wait) continue;
      ++next[rank];
      if (a.kind == ActionKind::Forward) done(a.stage.value, a.microbatch) = now;
    }
  }
}

}  // namespace

/// Interleaved 1F1B (Megatron-LM, SC 2021, section 2.2.2), cell by cell torch 2.11's ScheduleInterleaved1F1B where torch takes the shape.
Schedule interleaved(const Shape& shape) { return fullBackwards(shape, equalGroups(shape.microbatches, roundsOf(shape))); }

/// Zero bubble over several chunks, cell by cell torch 2.11's ScheduleInterleavedZeroBubble (ZB1P of Zero Bubble, 2401.10241)
/// where torch takes the shape. Live on every rank are at most (V − 1) G + R chunks, G = the first group: RV where R divides M.
Schedule interleavedZeroBubble(const Shape& shape) {
  const Order order(shape, equalGroups(shape.microbatches, roundsOf(shape)));
  Schedule schedule = empty("interleaved-zb", shape, loopPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Row row(shape, schedule.rows[static_cast<std::size_t>(rank)]);
    addSplitBackwardRow(row, order, rank);
  }
  delayForwards(schedule);
  return schedule;
}

/// Every rank has at most three actions for each of its pairs, and pauses about as long as one microbatch takes through all stages.
std::optional<std::string> refusalOfInterleaved(const Shape& shape) {
  if (auto refusal = needWholeChunks(shape)) return refusal;
  const std::int64_t perRank = 3 * std::int64_t{chunksOf(shape)} * shape.microbatches + shape.stages;
  if (shape.ranks * perRank <= kMaxCells) return std::nullopt;
  return fmt::format("it needs a table of more than {} cells, most of them idle; use fewer ranks or stages", kMaxCells);
}

std::optional<std::string> torchRefusesInterleaved(const Shape& shape) {
  const int rounds = roundsOf(shape);
  if (shape.microbatches % rounds == 0) return std::nullopt;
  const int below = shape.microbatches / shape.ranks * shape.ranks;
  return fmt::format(
      "torch's interleaved schedules need the microbatches in {} equal groups (microbatches div ranks), but there are {}; "
      "use {} or {}",
      rounds, shape.microbatches, below, below + shape.ranks);
}

}  // namespace pw::families

namespace pw {

Schedule interleavedWithGroups(const Shape& shape, int group) {
  if (const auto refusal = families::refusalOfInterleaved(shape)) throw UsageError(refusalSentence("interleaved-1f1b", *refusal));
  const int least = std::min(shape.ranks, shape.microbatches);
  if (group < least || group > shape.microbatches) {
    throw UsageError(fmt::format("a microbatch group of {} does not fit {} ranks and {} microbatches; use {} to {}", group, shape.ranks,
                                 shape.microbatches, least, shape.microbatches));
  }
  std::vector<int> groups(static_cast<std::size_t>(shape.microbatches / group), group);
  const int rest = shape.microbatches % group;
  if (rest != 0) groups.push_back(rest);
  Schedule schedule = families::fullBackwards(shape, groups);
  // In a last group smaller than the ranks a microbatch cannot be back on the first rank when its next chunk's turn comes. Usually that is
  // only a pause, but with many chunks the last rank waits for a gradient that comes after the pause. Megatron refuses all such groups.
  if (rest != 0 && rest < shape.ranks && !check(schedule).empty()) {
    throw UsageError(fmt::format(
        "microbatch groups of {} leave {} of {} microbatches for the last one, which with {} stages deadlocks on {} ranks; use {}", group,
        rest, shape.microbatches, shape.stages, shape.ranks, families::nextSafeGroup(shape, group)));
  }
  return schedule;
}

}  // namespace pw
