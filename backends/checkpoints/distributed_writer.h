#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/checkpoints/optimizer_layout.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Writes a folder of torch.distributed.checkpoint, as `save` of torch 2.11 does on one rank: the model under `model`, the optimizer's
/// state under `optimizer` as `get_optimizer_state_dict` names it, numbers under `pipewright`. The folder is made if it is missing. All
/// data is in one new file; `.metadata` is written last and replaces an older one, whose files are then removed: there is always one
/// complete checkpoint. Without `finish` nothing changes. Throws as CheckpointWriter.
class DistributedCheckpointWriter {
 public:
  explicit DistributedCheckpointWriter(const std::string& folder);
  ~DistributedCheckpointWriter();
  DistributedCheckpointWriter(const DistributedCheckpointWriter&) = delete;
  DistributedCheckpointWriter& operator=(const DistributedCheckpointWriter&) = delete;

  void add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, const std::byte* bytes);
  void alias(const std::string& name, const std::string& of);
  void finish(const std::map<std::string, double>& numbers, const std::optional<OptimizerLayout>& optimizer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Removes such a folder's checkpoint, and the folder if nothing else is in it; files that cannot be removed stay.
void removeDistributedCheckpoint(const std::string& folder);

}  // namespace pw
