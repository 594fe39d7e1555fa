// Stands in for the CUDA module where only its measurements are asked for: GPU 0 has these rates, GPU 1 half of them, GPU 2 fails.
#include "backends/cuda_backend.h"
#include "schedules/error.h"

namespace {

pw::GpuRates rates(int device) {
  if (device > 1) throw pw::Error("The GPU could not multiply matrices: out of memory; end what else uses it.");
  const double part = device == 0 ? 1 : 0.5;
  return {700.04e12 * part, 400e12 * part, 50e12 * part, 3000e9 * part, 55.25e9 * part, 54e9 * part, device == 0 ? 2'100 : 4'200};
}

pw::GpuLinkRate linkRate(int from, int to) { return {(from < to ? 150.5e9 : 140e9), 3'000 + 100 * to}; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const void* pipewrightCudaBackend() {
  static const pw::CudaBackend backend{.deviceCount = [] { return 3; },
                                       .prepareProcess = nullptr,
                                       .multiprocessors = nullptr,
                                       .device = nullptr,
                                       .ncclLinks = nullptr,
                                       .measureRates = &rates,
                                       .measureLink = &linkRate,
                                       .versions = nullptr};
  return &backend;
}
