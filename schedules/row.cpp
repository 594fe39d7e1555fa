#include <cassert>

#include <fmt/format.h>

#include "schedules/families.h"

namespace pw::families {
namespace {

/// Largest stages × microbatches that is generated: 16 million pairs are 500 MB of actions; more is a typing error.
constexpr std::int64_t kMaxPairs = 16'000'000;

constexpr std::size_t kCounters = 3;  ///< F, I, W

std::size_t counterOf(ActionKind kind) {
  assert(isCompute(kind) && kind != ActionKind::Backward);
  return kind == ActionKind::Forward ? 0 : kind == ActionKind::BackwardInput ? 1 : 2;
}

}  // namespace

Row::Row(const Shape& shape, std::vector<Action>& actions)
    : actions_(actions), ranks_(shape.ranks), next_(kCounters * static_cast<std::size_t>(shape.stages / shape.ranks + 1), 0) {}

int& Row::next(Stage stage, ActionKind kind) { return next_[kCounters * static_cast<std::size_t>(stage.value / ranks_) + counterOf(kind)]; }

int Row::done(Stage stage, ActionKind kind) { return next(stage, kind); }

void Row::add(Stage stage, ActionKind kind) { actions_.push_back({stage, kind, Microbatch{next(stage, kind)++}}); }

void Row::b(Stage stage) {
  actions_.push_back({stage, ActionKind::Backward, Microbatch{next(stage, ActionKind::BackwardInput)++}});
  ++next(stage, ActionKind::BackwardWeight);
}

void Row::fb(Stage forward, Stage backward) {
  f(forward);
  actions_.back().overlapsNext = true;
  b(backward);
}

void Row::idle(int cells) {
  for (int cell = 0; cell < cells; ++cell) actions_.push_back(kIdle);
}

Schedule empty(std::string_view name, const Shape& shape, Placement placement) {
  return {.name = std::string(name),
          .microbatches = shape.microbatches,
          .placement = std::move(placement),
          .rows = std::vector<std::vector<Action>>(static_cast<std::size_t>(shape.ranks))};
}

std::optional<std::string> absurdity(const Shape& shape) {
  const auto outside = [](std::string_view what, int value, int most) -> std::optional<std::string> {
    if (value >= 1 && value <= most) return std::nullopt;
    return fmt::format("{} {} cannot be scheduled; use a number from 1 to {}", value, what, most);
  };
  if (auto refusal = outside("ranks", shape.ranks, kMaxRanks)) return refusal;
  if (auto refusal = outside("stages", shape.stages, kMaxStages)) return refusal;
  if (auto refusal = outside("microbatches", shape.microbatches, kMaxMicrobatches)) return refusal;
  if (std::int64_t{shape.stages} * shape.microbatches > kMaxPairs) {
    return fmt::format("{} stages × {} microbatches are too many; at most {} pairs are scheduled", shape.stages, shape.microbatches,
                       kMaxPairs);
  }
  return std::nullopt;
}

std::optional<std::string> needOneChunk(const Shape& shape) {
  if (auto refusal = absurdity(shape)) return refusal;
  if (shape.stages == shape.ranks) return std::nullopt;
  return fmt::format("it needs one stage per rank, but there are {} stages on {} ranks; set chunks to 1", shape.stages, shape.ranks);
}

std::optional<std::string> needTwoChunks(const Shape& shape) {
  if (auto refusal = absurdity(shape)) return refusal;
  if (shape.stages == 2 * shape.ranks) return std::nullopt;
  return fmt::format("it needs two stages per rank, but there are {} stages on {} ranks; set chunks to 2", shape.stages, shape.ranks);
}

std::optional<std::string> needWholeChunks(const Shape& shape) {
  if (auto refusal = absurdity(shape)) return refusal;
  if (shape.stages % shape.ranks == 0) return std::nullopt;
  return fmt::format("it needs the same number of stages on every rank, but there are {} stages on {} ranks; use a multiple of {}",
                     shape.stages, shape.ranks, shape.ranks);
}

}  // namespace pw::families
