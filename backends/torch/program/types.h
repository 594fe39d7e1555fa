#pragma once

#include <cstdint>

#include "backends/messages/communicator.h"
#include "simulator/model/model_graph.h"

namespace at {
class Tensor;
}
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

/// The memory of a contiguous tensor.
[[nodiscard]] Buffer bufferOf(const at::Tensor& tensor);
/// The same numbers on a device: to a GPU from pinned memory, in the order of its stream, so that the host does not wait.
[[nodiscard]] at::Tensor onDevice(const at::Tensor& tensor, c10::Device device);
/// The same numbers on the host.
[[nodiscard]] at::Tensor onHost(const at::Tensor& tensor);

}  // namespace pw
