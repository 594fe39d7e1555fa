#include "backends/torch/program/types.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <utility>

#include "schedules/error.h"

namespace pw {
namespace {

using T = c10::ScalarType;
constexpr std::array<std::pair<DType, T>, 13> kTypes{{{DType::UInt8, T::Byte},
                                                      {DType::Int8, T::Char},
                                                      {DType::Int16, T::Short},
                                                      {DType::Int32, T::Int},
                                                      {DType::Int64, T::Long},
                                                      {DType::Float16, T::Half},
                                                      {DType::Float32, T::Float},
                                                      {DType::Float64, T::Double},
                                                      {DType::ComplexHalf, T::ComplexHalf},
                                                      {DType::ComplexFloat, T::ComplexFloat},
                                                      {DType::ComplexDouble, T::ComplexDouble},
                                                      {DType::Bool, T::Bool},
                                                      {DType::BFloat16, T::BFloat16}}};

}  // namespace

c10::ScalarType scalarType(DType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  throw UsageError("The model uses an element type (archive code " + std::to_string(static_cast<int>(dtype)) +
                   ") that Pipewright cannot compute with; export it with another.");
}

DType dtypeOf(c10::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  return DType::Unknown;
}

c10::Device deviceOf(int number) {
  return number < 0 ? c10::Device(c10::DeviceType::CPU) : c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(number));
}

Buffer bufferOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

at::Tensor onDevice(const at::Tensor& tensor, c10::Device device) {
  return device.is_cpu() || !tensor.device().is_cpu() ? tensor.to(device) : tensor.pin_memory().to(device, /*non_blocking=*/true);
}

at::Tensor onHost(const at::Tensor& tensor) { return tensor.device().is_cpu() ? tensor : tensor.cpu(); }

}  // namespace pw
