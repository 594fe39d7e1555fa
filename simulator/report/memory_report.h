#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/step/compile.h"

namespace pw {

/// What memory is used for.
enum class MemoryKind : std::uint8_t {
  Activations,  ///< kept from a forward to its backward; after a separate I what W still needs
  Working,      ///< what the action at the peak has besides what it keeps
  Received,     ///< buffers of values and gradients that other ranks send
  Sent,         ///< gradients on their way to other ranks
  Parameters,
  Gradients,
  OptimizerState,
  Buffers,  ///< and constants
  Inputs,   ///< the model's inputs of all microbatches
};
inline constexpr int kMemoryKinds = 9;
/// `activations`, `working`, `received`, `sent`, `parameters`, `gradients`, `optimizer state`, `buffers`, `inputs`.
[[nodiscard]] std::string_view nameOf(MemoryKind kind);

struct MemoryPart {
  MemoryKind kind = MemoryKind::Activations;
  Stage stage;
  std::vector<Microbatch> microbatches;  ///< of activations and of what works, ascending; otherwise empty
  Bytes bytes = 0;

  bool operator==(const MemoryPart&) const = default;
};

/// What a rank holds at its peak: the first action, in the order of its row, during which it needs the most.
struct RankMemory {
  Rank rank;
  Bytes peak = 0;
  Action at;                      ///< of an overlapped pair the first; `kIdle` of a rank without actions
  std::vector<MemoryPart> parts;  ///< those that are not empty, largest first (ties: by kind, then stage); their sum is the peak

  bool operator==(const RankMemory&) const = default;
};

/// The peaks of all ranks, as `simulate` counts them. Throws as `compile`. Cost: as that, and linear in actions.
[[nodiscard]] std::vector<RankMemory> memoryOf(const Schedule& schedule, const CostTable& costs, Sending sending = Sending::Overlapped);

/// `0, 2–5`.
[[nodiscard]] std::string rangesOf(const std::vector<Microbatch>& microbatches);

}  // namespace pw
