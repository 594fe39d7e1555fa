#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/checkpoints/optimizer_layout.h"
#include "backends/messages/communicator.h"
#include "backends/stages/stage_module.h"

namespace pw {

/// Writes the training's state as one checkpoint file (`CheckpointWriter`); every rank calls it with what it holds. Rank 0 writes; it asks
/// the other ranks for one tensor after the other, so that no rank holds more than its own pieces and one whole tensor.
/// - A tensor may be in pieces of several ranks (a sharded optimizer), and several ranks may have the same piece (replicas): the lowest
/// one's
///   is taken. All ranks must agree on a tensor's type and shape, and together hold all of it, else Error.
/// - `aliases`: further names of tensors (tied parameters), by name; those of rank 0 count. `numbers` and `optimizer` likewise.
/// Order in the file: by rank, then as in `own`. Returns on all ranks when the disk has the file. When it cannot be written, all ranks
/// throw the same Error, and a file that was there stays as it is. Peers wait between two tensors, so the communicator's deadline must
/// allow for writing the largest.
void saveCheckpoint(const std::string& path, const std::map<std::string, double>& numbers, const std::vector<StatePiece>& own,
                    const std::map<std::string, std::string>& aliases, Communicator& communicator,
                    const std::optional<OptimizerLayout>& optimizer = {});

}  // namespace pw
