#pragma once

#include <cstdint>

#include "simulator/model_graph.h"

namespace c10 {
struct Device;
enum class ScalarType : std::int8_t;
}  // namespace c10

namespace pw {

/// LibTorch's element type. Throws UsageError for one that archives can name and Pipewright cannot compute with.
[[nodiscard]] c10::ScalarType scalarType(DType dtype);
/// The other way round; Unknown where there is none.
[[nodiscard]] DType dtypeOf(c10::ScalarType type);

/// CUDA's device of that number, or the host for −1.
[[nodiscard]] c10::Device deviceOf(int number);

}  // namespace pw
