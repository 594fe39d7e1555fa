#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/checkpoints/tensor_file.h"
#include "backends/checkpoints/writer.h"

namespace at {
class Tensor;
}

namespace pw {

/// A `TensorFile` (any torch.save of a dict of tensors) as LibTorch's tensors. A checkpoint of ours is one with the model's own names, and
/// has, in records that Python ignores, the optimizer's state under names with a `/` and numbers about the training.
class CheckpointFile {
 public:
  /// Throws UsageError when the file cannot be opened or is not a dict of tensors.
  explicit CheckpointFile(const std::string& path);
  ~CheckpointFile();
  /// Undefined when there is none of this name. Shares the mapped memory, which lives as long as a tensor of it (private: writing into it
  /// does not change the file). Throws UsageError for a tensor that reaches past its bytes.
  [[nodiscard]] at::Tensor read(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> names() const;
  /// `step` (steps done), `seed`, …; empty for files not written by Pipewright.
  [[nodiscard]] const std::map<std::string, double>& numbers() const;

 private:
  std::shared_ptr<TensorFile> file_;
};

}  // namespace pw
