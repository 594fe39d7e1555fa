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

/// Writes what `torch.load` reads (weights_only included) as a dict of tensors, tensor by tensor, so that a whole model is never in memory;
/// into a file beside `path` that replaces it in `finish`. Every member throws Error naming the path when the disk is full or the folder
/// cannot be written; the file that was there stays as it is.
class CheckpointWriter {
 public:
  /// A path that ends in `/` is written as a folder of torch.distributed.checkpoint (DistributedCheckpointWriter). One that ends in
  /// `.safetensors` is written in that format, with `headerBytes` for names and shapes (`SafetensorsWriter::headerBytesOf` of each name),
  /// and the optimizer's state in `optimizerFileOf(path)`.
  explicit CheckpointWriter(const std::string& path, std::size_t headerBytes = 0);
  /// Without `finish` the temporary file is removed.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Names with a `/` (`exp_avg/blocks.0.weight`) are not part of the dict that Python sees. `bytes`: the whole tensor, contiguous. Each
  /// name once. Throws UsageError for an element type that torch.save has no storage for.
  void add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, const std::byte* bytes);
  /// A second name of a tensor that was added (tied parameters): one storage in the file, and in Python.
  void alias(const std::string& name, const std::string& of);
  /// `numbers` (steps done, …) are not part of the dict either. With `optimizer` the dict has an attribute of that name: what
  /// `load_state_dict` of torch.optim takes, with the tensors added as `exp_avg/…`.
  void finish(const std::map<std::string, double>& numbers, const std::optional<OptimizerLayout>& optimizer = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Removes a checkpoint, of whatever format, with what lies beside it; what cannot be removed stays.
void removeCheckpoint(const std::string& path);

}  // namespace pw
