#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/checkpoints/optimizer_layout.h"
#include "backends/messages/communicator.h"
#include "backends/stages/stage_module.h"

namespace pw {

/// Writes the training's state as one checkpoint file (`CheckpointWriter`); every rank calls it with its own pieces. Rank 0 writes; it
/// requests tensors from the other ranks one at a time, so that no rank holds more than its own pieces and one whole tensor.
/// - A tensor may be split over several ranks (a sharded optimizer), and several ranks may have the same piece (replicas): that of the
/// lowest rank is used. All ranks must agree on a tensor's type and shape, and together hold all of it; otherwise Error.
/// - `aliases`: further names of tensors (tied parameters), by name; those of rank 0 are used. `numbers` and `optimizer` likewise.
/// Order in the file: by rank, then as in `own`. Returns on all ranks when the file is on disk. When it cannot be written, all ranks throw
/// the same Error, and an existing file is unchanged. Peers hear all the time that rank 0 still writes, so that a slow disk is no lost
/// rank.
void saveCheckpoint(const std::string& path, const std::map<std::string, double>& numbers, const std::vector<StatePiece>& own,
                    const std::map<std::string, std::string>& aliases, Communicator& communicator,
                    const std::optional<OptimizerLayout>& optimizer = {});

/// A whole tensor of the training's state, in the host's memory.
struct StateTensorCopy {
  std::string name;
  DType dtype = DType::Float32;
  std::vector<std::int64_t> shape;
  HeldBuffer memory;
};

/// The state as `saveCheckpoint` would write it, on every rank: each gives its own pieces, and gets copies of all tensors, ordered by
/// name's first rank. Throws the same Error on all ranks where they do not agree or lack a part.
[[nodiscard]] std::vector<StateTensorCopy> wholeState(const std::vector<StatePiece>& own, Communicator& communicator);

}  // namespace pw
