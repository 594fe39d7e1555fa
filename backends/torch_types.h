#pragma once

#include <cstdint>

#include "simulator/model_graph.h"

namespace c10 {
enum class ScalarType : std::int8_t;
}

namespace pw {

/// LibTorch's element type. Throws UsageError for one that archives can name and Pipewright cannot compute with.
[[nodiscard]] c10::ScalarType scalarType(DType dtype);
/// The other way round; Unknown where there is none.
[[nodiscard]] DType dtypeOf(c10::ScalarType type);

}  // namespace pw
