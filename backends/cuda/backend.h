#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backends/messages/device.h"
#include "backends/messages/device_messages.h"

namespace pw {

/// Measured rates of a GPU, for cluster files.
struct GpuRates {
  double matmulFlopsPerSecond = 0;                                        ///< bfloat16 with float32 accumulation, the best of several sizes
  double tf32FlopsPerSecond = 0;                                          ///< float32 rounded to 19 bits for the products
  double floatFlopsPerSecond = 0;                                         ///< float32 as it is
  double copyBytesPerSecond = 0;                                          ///< read and written together, within the device
  double hostToDeviceBytesPerSecond = 0, deviceToHostBytesPerSecond = 0;  ///< pinned memory
  Ns launch = 0;                                                          ///< of an empty kernel, back to back

  bool operator==(const GpuRates&) const = default;
};

/// Measured rates from one GPU to another.
struct GpuLinkRate {
  double bytesPerSecond = 0;  ///< of large copies
  Ns latency = 0;             ///< of a copy of 8 bytes, one after the other

  bool operator==(const GpuLinkRate&) const = default;
};

/// The part of a GPU's multiprocessors that a process computes on: the `index`-th of `of` equal ones.
struct GpuPart {
  int index = 0, of = 1;

  bool operator==(const GpuPart&) const = default;
};

/// What the CUDA module offers: libpw_cuda.so, loaded on demand, as CUDA's libraries take a second to load and half a gigabyte.
struct CudaBackend {
  /// Number of GPUs that CUDA gives this process; 0 also without a driver.
  int (*deviceCount)();
  /// A text that identifies the GPU in all processes, whatever number CUDA gives it there.
  std::string (*identity)(int device);
  /// Directs this thread's work to one GPU, on our own stream. Loads all kernels immediately, because loading later waits for the device
  /// and could wait for a message that waits for us. Call once per process, before all others but `measureRates`. `tf32`: float32 matrix
  /// products may round to 19 bits. A part of the GPU is selected by a green context; if the driver does not allow it, the whole GPU is
  /// used and the reason is returned; otherwise nothing is returned.
  std::string (*prepareProcess)(int device, bool tf32, GpuPart part);
  /// Multiprocessors that this process computes on.
  int (*multiprocessors)();
  /// The GPU of `prepareProcess`.
  const Device& (*device)();
  /// NCCL between the ranks of `host`: one communicator of two ranks for each direction of a pair, made at first use, which `deadline`
  /// bounds as well.
  DeviceLinks (*ncclLinks)(Communicator& host, std::chrono::milliseconds deadline);
  /// Takes some seconds, on its own stream; may be called before or after `prepareProcess`, any number of times, and leaves the selected
  /// GPU as it is. Medians of 7 after warm-up; the best of several sizes as far as half of the free memory allows. Takes up to 2 GiB of the
  /// device, and 256 MiB pinned.
  GpuRates (*measureRates)(int device);
  /// From one GPU's memory to another's, directly if possible, otherwise through the host's memory. Less than a second.
  GpuLinkRate (*measureLink)(int from, int to);
  /// `CUDA 13.0, NCCL 2.28.9`.
  std::string (*versions)();
};

/// Loads the module once. Throws UsageError with the reason when it cannot be used: this build has no CUDA module, or no driver or GPU is
/// on this machine.
[[nodiscard]] const CudaBackend& cudaBackend();

}  // namespace pw
