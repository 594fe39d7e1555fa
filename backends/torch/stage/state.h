#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace at {
class Tensor;
}

namespace pw {

/// Copies a parameter, buffer or constant out of its memory-mapped archive and releases the pages at once, so that a rank never uses more
/// memory than its own tensors. With `random`, draws it from (seed, name) instead. Throws UsageError naming the tensor when it has no
/// bytes, and for element types that cannot be read.
class StateReader {
 public:
  StateReader(const ModelGraph& graph, bool random, std::uint64_t seed);
  ~StateReader();
  StateReader(const StateReader&) = delete;
  StateReader& operator=(const StateReader&) = delete;
  [[nodiscard]] at::Tensor read(const StateTensor& state) const;
  /// Into a contiguous tensor of its shape and type.
  void readInto(const StateTensor& state, at::Tensor& into) const;

 private:
  struct Files;
  const ModelGraph& graph_;
  bool random_;
  std::uint64_t seed_;
  std::unique_ptr<Files> files_;
};

}  // namespace pw
