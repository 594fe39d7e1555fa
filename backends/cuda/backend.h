#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backends/messages/device.h"
#include "backends/messages/device_messages.h"

namespace pw {

/// What a GPU was measured to do: for clusters and links one does not have numbers of.
struct GpuRates {
  double matmulFlopsPerSecond = 0;                                        ///< bfloat16 with float32 sums, the best of several sizes
  double tf32FlopsPerSecond = 0;                                          ///< float32 rounded to 19 bits for the products
  double floatFlopsPerSecond = 0;                                         ///< float32 as it is
  double copyBytesPerSecond = 0;                                          ///< read and written together, within the device
  double hostToDeviceBytesPerSecond = 0, deviceToHostBytesPerSecond = 0;  ///< pinned memory
  Ns launch = 0;                                                          ///< of an empty kernel, back to back

  bool operator==(const GpuRates&) const = default;
};

/// What one GPU was measured to send to another.
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
  /// The same for a GPU in all processes, whatever number CUDA gives it there.
  std::string (*identity)(int device);
  /// Makes this thread's work go to one GPU, on a stream of ours; loads all kernels at once, as loading later waits for the device and
  /// could wait for a message that waits for us. Once per process, before the others but `measureRates`. `tf32`: float32 matrix products
  /// may round to 19 bits. Computes on a part of the GPU alone by a green context; returns why it computes on the whole GPU where it was
  /// told a part and the driver does not allow it, else nothing.
  std::string (*prepareProcess)(int device, bool tf32, GpuPart part);
  /// Multiprocessors that this process computes on.
  int (*multiprocessors)();
  /// The GPU of `prepareProcess`.
  const Device& (*device)();
  /// NCCL between the ranks of `host`: a communicator of two for each direction of a pair, made when first used. `deadline` bounds that as
  /// well.
  DeviceLinks (*ncclLinks)(Communicator& host, std::chrono::milliseconds deadline);
  /// Some seconds, on a stream of its own; before or after `prepareProcess`, any number of times, and leaves that GPU as it is. Medians of
  /// 7 after warm-up; the best of several sizes as far as half of the free memory allows. Takes up to 2 GiB of the device, and 256 MiB
  /// pinned.
  GpuRates (*measureRates)(int device);
  /// From one GPU's memory to another's, directly where they can, else by the host's memory. Less than a second.
  GpuLinkRate (*measureLink)(int from, int to);
  /// `CUDA 13.0, NCCL 2.28.9`.
  std::string (*versions)();
};

/// Loads the module once. Throws UsageError saying why there is none: this build has no CUDA module, or no driver or GPU is on this
/// machine.
[[nodiscard]] const CudaBackend& cudaBackend();

}  // namespace pw
