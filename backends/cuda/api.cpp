#include <cuda_runtime_api.h>
#include <nccl.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/device.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/nccl.h"

namespace pw {
namespace {

DeviceLinks links(Communicator& host, std::chrono::milliseconds deadline) {
  return ncclLinks(host, deadline, computeStream(), &timeOfEvent);
}

std::string versions() {
  int cuda = 0, nccl = 0;
  static_cast<void>(cudaRuntimeGetVersion(&cuda));
  static_cast<void>(ncclGetVersion(&nccl));
  return "CUDA " + std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10) + ", NCCL " + std::to_string(nccl / 10000) + "." +
         std::to_string(nccl % 10000 / 100) + "." + std::to_string(nccl % 100);
}

}  // namespace
}  // namespace pw

extern "C" __attribute__((visibility("default"))) const void* pipewrightCudaBackend() {
  static const pw::CudaBackend backend{&pw::gpuCount, &pw::gpuIdentity,  &pw::prepareGpu,  &pw::multiprocessors, &pw::gpu,
                                       &pw::links,    &pw::measureRates, &pw::measureLink, &pw::versions};
  return &backend;
}
