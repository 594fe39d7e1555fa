#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "app/gui/timeline/drawing/scene.h"
#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// A block of a timeline: an action, or a message.
struct Block {
  SourcedSpan span;
  SpanKind kind = SpanKind::Forward;
  Stage stage;
  Ns start = 0, duration = 0;

  bool operator==(const Block&) const = default;
};

/// The blocks that touch [from, to), as a whole. Linear in those around.
[[nodiscard]] std::vector<Block> blocksIn(const Timeline& timeline, Source source, Ns from, Ns to);
/// Those of the spans that are of this source and exist.
[[nodiscard]] std::vector<Block> blocksOf(const Timeline& timeline, Source source, const std::vector<SourcedSpan>& spans);

inline constexpr std::size_t kBins = 24;

/// Blocks of one kind and stage.
struct BlockGroup {
  SpanKind kind = SpanKind::Forward;
  Stage stage;
  std::size_t count = 0;
  Ns total = 0, least = 0, median = 0, most = 0;  ///< durations; the median of an even number is the mean of the middle two
  SourcedSpan longest;                            ///< the earliest of them (then of the lowest rank)
  /// How many durations lie in each of the equal parts of [axisFrom, axisTo], which groups of a kind share: from its shortest to its
  /// longest block.
  std::array<std::uint32_t, kBins> bins{};
  Ns axisFrom = 0, axisTo = 0;
  std::optional<double> spread;  ///< between steps; nothing: only one is known
};

/// A block that took longer than is usual in its group.
struct SlowBlock {
  Block block;
  Ns median = 0;  ///< of its group
};

struct Summary {
  std::vector<BlockGroup> groups;  ///< by kind, then stage
  std::vector<SlowBlock> slowest;  ///< the furthest above the median of its group first; ties: the longest, then the earliest
  std::size_t count = 0;
  Ns total = 0;
};
inline constexpr std::size_t kMostSlow = 50;

/// O(n log n).
[[nodiscard]] Summary summaryOf(const std::vector<Block>& blocks);

/// The mean duration that blocks of a kind and stage have in a step.
using StepMeans = std::map<std::pair<SpanKind, Stage>, double>;
[[nodiscard]] StepMeans meansOf(const Timeline& step);

/// Sets the spread of each group: of the means that its kind and stage have in each step, (largest − smallest) / their mean. Steps that
/// lack a group do not count for it.
void addSpread(Summary& summary, const std::vector<StepMeans>& steps);

}  // namespace pw::gui
