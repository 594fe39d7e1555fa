#pragma once

#include <vector>

#include "simulator/step/compile.h"
#include "simulator/step/program.h"

namespace pw {

/// Sets other costs in a compiled program without compiling again: durations, delays, uses and peaks of memory. `rows` and `sending` are
/// those it was compiled with (`rowsOf` them where that lowers). Afterwards it equals `compile(rows, costs, sending)` in every field.
/// Returns false and leaves the program unchanged if these costs lead to another structure (`Basis`: other messages, a channel that becomes
/// or ceases to be free, a reduction that begins to take time) or do not fit the rows; then compile it. Cost: linear in steps, about a
/// tenth of compiling; only tables by stage are allocated.
[[nodiscard]] bool recost(const Schedule& rows, const CostTable& costs, Sending sending, Program& program);

/// Whether `recost` would accept these costs.
[[nodiscard]] bool sameStructure(const Schedule& rows, const CostTable& costs, Sending sending, const Program& program);

/// Sets only what times depend on: durations and delays. The structure must be the same. Cost: linear in steps.
void setTimes(const Schedule& rows, const CostTable& costs, Program& program);

/// Bytes of a stage's messages from and to other ranks.
struct CrossingBytes {
  std::vector<Bytes> in;   ///< by end (`endOf`)
  std::vector<Bytes> out;  ///< by stage: gradients

  CrossingBytes(const Placement& placement, const CostTable& costs);
};

/// What an action allocates at its start, frees at its end and needs in between, without buffers of messages. `trains`: else a forward
/// frees all of it.
[[nodiscard]] MemoryUse useOfAction(const StageCost& cost, ActionKind kind, bool trains = true);

/// What a rank holds all the time: parameters, gradients, optimizer state, buffers, and the model's inputs of all microbatches. Cost:
/// linear in stages.
[[nodiscard]] Bytes heldThroughout(const Placement& placement, int microbatches, const CostTable& costs, Rank rank);

/// Most memory of one rank under costs of the same structure; nothing of the program changes. Cost: linear in the rank's steps.
[[nodiscard]] Bytes peakOf(const Schedule& rows, const CostTable& costs, const CrossingBytes& crossing, const Program& program, Rank rank);

}  // namespace pw
