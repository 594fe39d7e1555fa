#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// Largest values accepted from outside (command line, files), so that hostile input cannot exhaust memory.
inline constexpr int kMaxRanks = 4096;
inline constexpr int kMaxStages = 1'000'000;
inline constexpr int kMaxMicrobatches = 1'000'000;

/// How many ranks, stages and microbatches a schedule is for. `stages` = ranks × chunks.
struct Shape {
  int ranks = 1;
  int stages = 1;
  int microbatches = 1;

  auto operator<=>(const Shape&) const = default;
};

/// Which rank computes which stage. In a bidirectional placement every stage has two replicas on mirrored ranks: the first microbatches use
/// one, the rest the other.
struct Placement {
  std::vector<Rank> rankOfStage;         ///< size = number of stages
  std::vector<Rank> mirrorOfStage = {};  ///< the second replicas; empty unless bidirectional
  Microbatch firstMirrored = {};         ///< microbatches from this one on are computed by the second replicas

  [[nodiscard]] std::size_t stages() const { return rankOfStage.size(); }
  [[nodiscard]] bool bidirectional() const { return !mirrorOfStage.empty(); }
  /// The rank that computes this stage for this microbatch.
  [[nodiscard]] Rank rankOf(Stage stage, Microbatch microbatch) const {
    return bidirectional() && microbatch >= firstMirrored ? mirrorOfStage[stage.index()] : rankOfStage[stage.index()];
  }
  /// Whether the rank holds this stage's weights, in either replica.
  [[nodiscard]] bool holds(Rank rank, Stage stage) const {
    return rankOfStage[stage.index()] == rank || (bidirectional() && mirrorOfStage[stage.index()] == rank);
  }

  bool operator==(const Placement&) const = default;
};

enum class PlacementKind : std::uint8_t {
  Loop,           ///< stage s on rank s mod R
  V,              ///< two chunks: down the ranks and up again, stages s and 2R−1−s share a rank
  Wave,           ///< zig-zag: the V repeated, an even number of chunks
  Bidirectional,  ///< two replicas of R stages, stage s on ranks s and R−1−s
  Custom,         ///< anything else
};

constexpr std::string_view nameOf(PlacementKind kind) {
  switch (kind) {
    case PlacementKind::Loop: return "loop";
    case PlacementKind::V: return "v";
    case PlacementKind::Wave: return "wave";
    case PlacementKind::Bidirectional: return "bidirectional";
    case PlacementKind::Custom: return "custom";
  }
  return {};
}

/// The regular placements of a shape [ranks ≥ 1, stages ≥ 0]. `wavePlacement` of 2R stages is the V.
/// `bidirectionalPlacement` is of R stages; the first half of the microbatches (rounded up) goes down, the rest up.
[[nodiscard]] Placement loopPlacement(const Shape& shape);
[[nodiscard]] Placement wavePlacement(const Shape& shape);
[[nodiscard]] Placement bidirectionalPlacement(const Shape& shape);

/// Which of the regular placements this is; of several (one rank, one chunk) the first in the order of the enum.
/// Cost: linear in stages.
[[nodiscard]] PlacementKind kindOf(const Placement& placement, const Shape& shape);

}  // namespace pw
