#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backends/device.h"
#include "backends/device_messages.h"

namespace pw {

/// What a GPU was measured to do: for clusters and links one does not have numbers of.
struct GpuRates {
  double matmulFlopsPerSecond = 0;      ///< bfloat16 with float32 sums, the best of several sizes
  double floatFlopsPerSecond = 0;       ///< float32, with TF32 where it is allowed
  double copyBytesPerSecond = 0;        ///< read and written together, within the device
  double hostToDeviceBytesPerSecond = 0, deviceToHostBytesPerSecond = 0;  ///< pinned memory
  Ns launch = 0;                        ///< of an empty kernel, back to back

  bool operator==(const GpuRates&) const = default;
};

/// What the CUDA module offers: libpw_cuda.so, loaded on demand, as CUDA's libraries take a second to load and half a gigabyte.
struct CudaBackend {
  /// Number of GPUs that CUDA gives this process; 0 also without a driver.
  int (*deviceCount)();
  /// Makes this thread's work go to one GPU, on a stream of ours; loads all kernels at once, as loading later waits for the device and could wait
  /// for a message that waits for us. Once per process, before the others. `tf32`: float32 matrix products may round to 19 bits.
  void (*prepareProcess)(int device, bool tf32);
  /// The GPU of `prepareProcess`.
  const Device& (*device)();
  /// NCCL between the ranks of `host`: a communicator of two for each direction of a pair, made when first used. `deadline` bounds that as well.
  DeviceLinks (*ncclLinks)(Communicator& host, std::chrono::milliseconds deadline);
  /// Busies the device's compute for that time.
  void (*spin)(Ns duration);
  /// Some seconds.
  GpuRates (*measureRates)();
  /// `CUDA 13.0, NCCL 2.28.9`.
  std::string (*versions)();
};

/// Loads the module once. Throws UsageError saying why there is none: this build has no CUDA module, or no driver or GPU is on this machine.
[[nodiscard]] const CudaBackend& cudaBackend();

}  // namespace pw
