#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// A tensor inside a mapped file, or a copy of one. Strides in elements, none negative; every element lies within the file.
struct MappedTensor {
  DType dtype = DType::Unknown;
  std::vector<std::int64_t> shape, strides;
  std::byte* data = nullptr;               ///< of element [0, 0, …]; aligned for the element type; null for a tensor without elements
  std::shared_ptr<std::byte[]> copy = {};  ///< holds `data` where that could not be the file's own memory
};

/// A file of `torch.save` that holds a dict of tensors, one of safetensors (by its ending; with the file of the optimizer's state beside
/// it), or a folder of torch.distributed.checkpoint, memory-mapped: only what is read becomes resident. Mapped privately: writing into a
/// tensor changes neither the file nor another TensorFile of it.
class TensorFile {
 public:
  /// Reads the archive's directory and its pickles. Throws UsageError for a file that is missing, damaged, of another format or another
  /// object than a dict, and for one without any tensor (a dict of dicts, say).
  explicit TensorFile(const std::string& path);
  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  /// Nothing when there is no tensor of this name. Throws UsageError for a tensor that extends past its bytes or has an unsupported element
  /// type. Valid as long as the file and what is returned.
  [[nodiscard]] std::optional<MappedTensor> find(const std::string& name) const;
  /// The dict's, in its order, then those with a `/`, which only checkpoints of Pipewright have.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Numbers about the training; empty for files not written by Pipewright.
  [[nodiscard]] const std::map<std::string, double>& numbers() const;
  [[nodiscard]] const std::string& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pw
