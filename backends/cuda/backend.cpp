#include "backends/cuda/backend.h"

#include <array>

#include "backends/host/environment.h"
#include "backends/host/module.h"
#include "backends/torch/wheel.h"
#include "schedules/error.h"

namespace pw {
namespace {

const CudaBackend* loadCuda() {
  setDefaultVariables(std::array<EnvironmentVariable, 1>{{{"CUDA_MODULE_LOADING", "EAGER"}}});  // before CUDA begins
  const CudaBackend* backend = nullptr;
  try {
    loadTorchLibrary("libtorch_cuda.so");
    backend =
        static_cast<const CudaBackend*>(loadModule("libpw_cuda.so", "pipewrightCudaBackend", "build it with ./dev build where nvcc is."));
  } catch (const Error& e) {
    throw UsageError(std::string("GPUs cannot be used: ") + e.what());
  }
  if (backend->deviceCount() == 0) {
    throw UsageError(
        "There is no GPU that CUDA can use here: no NVIDIA driver is loaded, or CUDA_VISIBLE_DEVICES hides all of them; see pipewright "
        "devices, and use the CPU with --backend ucx.");
  }
  return backend;
}

}  // namespace

const CudaBackend& cudaBackend() {
  static const CudaBackend* backend = loadCuda();
  return *backend;
}

}  // namespace pw
