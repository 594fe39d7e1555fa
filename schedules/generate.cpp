#include "schedules/generate.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedules/error.h"

namespace pw {
namespace {

/// Largest stages × microbatches generated: 16 million pairs are 400 MB of actions, more is a slip of the keyboard.
constexpr std::int64_t kMaxPairs = 16'000'000;

/// What no family can do: empty or absurd shapes.
std::optional<std::string> absurdity(const Shape& shape) {
  const auto outside = [](std::string_view what, int value, int most) -> std::optional<std::string> {
    if (value >= 1 && value <= most) return std::nullopt;
    return fmt::format("{} {} cannot be scheduled; give a number from 1 to {}", value, what, most);
  };
  if (auto refusal = outside("ranks", shape.ranks, kMaxRanks)) return refusal;
  if (auto refusal = outside("stages", shape.stages, kMaxStages)) return refusal;
  if (auto refusal = outside("microbatches", shape.microbatches, kMaxMicrobatches)) return refusal;
  if (std::int64_t{shape.stages} * shape.microbatches > kMaxPairs) {
    return fmt::format("{} stages × {} microbatches are too many; at most {} pairs are scheduled", shape.stages,
                       shape.microbatches, kMaxPairs);
  }
  return std::nullopt;
}

std::optional<std::string> refuseChunks(const Shape& shape) {
  if (auto refusal = absurdity(shape)) return refusal;
  if (shape.stages == shape.ranks) return std::nullopt;
  return fmt::format("it needs one stage per rank, but there are {} stages on {} ranks; give {} stages", shape.stages,
                     shape.ranks, shape.ranks);
}

Schedule emptySchedule(std::string_view name, const Shape& shape) {
  return {.name = std::string(name),
          .microbatches = shape.microbatches,
          .rankOfStage = loopPlacement(shape),
          .rows = std::vector<std::vector<Action>>(static_cast<std::size_t>(shape.ranks))};
}

/// Appends `kind` of microbatches [first, last).
void append(std::vector<Action>& row, Stage stage, ActionKind kind, int first, int last) {
  for (int m = first; m < last; ++m) row.push_back({stage, kind, Microbatch{m}});
}

Schedule forwardOnly(const Shape& shape) {
  Schedule schedule = emptySchedule("forward-only", shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& row = schedule.rows[static_cast<std::size_t>(rank)];
    row.reserve(static_cast<std::size_t>(shape.microbatches));
    append(row, Stage{rank}, ActionKind::Forward, 0, shape.microbatches);
  }
  return schedule;
}

/// GPipe (Huang et al., NeurIPS 2019, section 2.3): all forwards, then all backwards. Backwards go in the order of the
/// microbatches, as torch does, not reversed as in the paper's figure: the times are the same.
Schedule gpipe(const Shape& shape) {
  Schedule schedule = emptySchedule("gpipe", shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& row = schedule.rows[static_cast<std::size_t>(rank)];
    row.reserve(2 * static_cast<std::size_t>(shape.microbatches));
    append(row, Stage{rank}, ActionKind::Forward, 0, shape.microbatches);
    append(row, Stage{rank}, ActionKind::Backward, 0, shape.microbatches);
  }
  return schedule;
}

/// 1F1B (DAPPLE, PPoPP 2021; Megatron-LM, SC 2021, section 2.2.1): rank i warms up with R−1−i forwards, alternates, and
/// drains. Where M ≤ R−i that is GPipe's row: all microbatches are in before the first gradient comes. The order is
/// that of torch's running loop (`Schedule1F1B._step_microbatches`), not of its `pipeline_order`.
Schedule oneForwardOneBackward(const Shape& shape) {
  Schedule schedule = emptySchedule("1f1b", shape);
  const int all = shape.microbatches;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& row = schedule.rows[static_cast<std::size_t>(rank)];
    row.reserve(2 * static_cast<std::size_t>(all));
    const Stage stage{rank};
    const int warmup = std::min(all, shape.ranks - 1 - rank);
    append(row, stage, ActionKind::Forward, 0, warmup);
    for (int m = 0; m < all - warmup; ++m) {
      append(row, stage, ActionKind::Forward, warmup + m, warmup + m + 1);
      append(row, stage, ActionKind::Backward, m, m + 1);
    }
    append(row, stage, ActionKind::Backward, all - warmup, all);
  }
  return schedule;
}

constexpr std::array kGenerators{
    Generator{"forward-only", "all forwards, no backward: inference", "one stage per rank", refuseChunks, forwardOnly},
    Generator{"gpipe", "all forwards, then all backwards", "one stage per rank", refuseChunks, gpipe},
    Generator{"1f1b", "after a warmup one forward, one backward: at most R−i microbatches live on rank i",
              "one stage per rank", refuseChunks, oneForwardOneBackward},
};

}  // namespace

std::span<const Generator> generators() { return kGenerators; }

Schedule generate(std::string_view name, const Shape& shape) {
  const auto found = std::ranges::find(kGenerators, name, &Generator::name);
  if (found == kGenerators.end()) {
    std::array<std::string_view, kGenerators.size()> known;
    std::ranges::transform(kGenerators, known.begin(), &Generator::name);
    throw UsageError(fmt::format("unknown schedule \"{}\"; known are {}", name, fmt::join(known, ", ")));
  }
  if (const auto refusal = found->refusal(shape)) {
    throw UsageError(fmt::format("schedule {} refuses this shape: {}", name, *refusal));
  }
  return found->generate(shape);
}

}  // namespace pw
