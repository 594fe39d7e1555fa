#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/checkpoints/tensor_file.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Whether a path names a folder of torch.distributed.checkpoint: it ends in `/`, or is a folder.
[[nodiscard]] bool isDistributedCheckpoint(const std::string& path);

/// A folder that torch.distributed.checkpoint (`save`, torch 2.2 to 2.11) wrote, or DistributedCheckpointWriter did: `.metadata` says which
/// chunk of which tensor lies in which file. Tensors are named by the path of keys that led to them when they were saved:
/// - `model.state_dict()` saved by itself, or under `model` or `state_dict` at any depth: by the last key, the parameter's own name;
/// - what `get_optimizer_state_dict` gives, flattened or not: `exp_avg/NAME`, `exp_avg_sq/NAME`, `square_avg/NAME`, `momentum_buffer/NAME`;
/// its `step` is a number;
/// - others: by their whole key, joined by dots.
class DistributedCheckpoint {
 public:
  /// Reads `.metadata`, without calling what its pickle names. Throws UsageError where that is missing, damaged or of another format, or
  /// names files outside the folder.
  explicit DistributedCheckpoint(const std::string& folder);
  ~DistributedCheckpoint();
  DistributedCheckpoint(const DistributedCheckpoint&) = delete;
  DistributedCheckpoint& operator=(const DistributedCheckpoint&) = delete;

  /// As TensorFile::find. A tensor of several chunks, or one that is not aligned for its type, is copied into memory that what is
  /// returned holds.
  [[nodiscard]] std::optional<MappedTensor> find(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const std::map<std::string, double>& numbers() const;
  /// The files beside `.metadata`, by name.
  [[nodiscard]] std::vector<std::string> files() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pw
