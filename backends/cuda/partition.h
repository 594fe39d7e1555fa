#pragma once

#include <algorithm>

#include "backends/cuda/backend.h"

namespace pw {

/// Some of a GPU's streaming multiprocessors (SMs): kernels enqueued on the stream run on these alone.
struct SmPartition {
  void* stream = nullptr;  ///< a cudaStream_t of the device's primary context, which does not wait for the default stream
  int multiprocessors = 0;
};

/// Multiprocessors of each of `parts` equal parts: as many as there are for all, in groups of `alignment`; 0 where a part would have fewer
/// than `least`, the fewest that the driver gives.
[[nodiscard]] constexpr int multiprocessorsOfAPart(int all, int parts, int least, int alignment) {
  const int group = std::max(1, alignment), each = parts < 1 ? 0 : all / parts / group * group;
  return each < std::max(1, least) ? 0 : each;
}

/// The part of CUDA's GPU of that number, by a green context that lives as long as the process. Every process that is told the same `of`
/// cuts the GPU in the same way, so parts of different index are disjoint. They run at the same time where processes do (MPS); without that
/// they take turns, and parts make each turn longer. Milliseconds, behind the start of CUDA. Throws Error saying in a sentence why the
/// driver gives no such part; the process then still can use the whole GPU.
[[nodiscard]] SmPartition partOfGpu(int device, GpuPart part);

}  // namespace pw
