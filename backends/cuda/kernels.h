#pragma once

#include <chrono>

#include "backends/cuda/backend.h"
#include "backends/messages/communicator.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Kernels and measurements of the CUDA module, in plain CUDA and cuBLAS. A `stream` is a cudaStream_t of the current device; buffers lie
/// on that device. Kernels are enqueued and done later; functions that return a result wait. All throw Error saying what CUDA could not do,
/// also for earlier failures that are reported only now.

/// Keeps the stream busy for that time, to the resolution of the device's clock (32 ns to 1 µs depending on the device, so up to one tick
/// less). A block of one thread occupies one slot of a multiprocessor and no memory bandwidth, so other streams run as they would next to a
/// small kernel; `blocks` of them occupy as many slots. Does nothing for times of 0 or less.
void spinKernel(long long nanoseconds, void* stream, int blocks = 1);

/// into += what, as backends/messages/buffer_math.h has it: float16 and bfloat16 are summed in float32 and rounded to nearest, which gives
/// the bits of the exact sum rounded. Bandwidth-bound. Throws Error naming any other type.
void addInto(DType dtype, Buffer into, Buffer what, void* stream);

/// In double precision, by 1024 blocks and then by one: the same bits every time and on every device. Waits for the stream. Throws Error
/// after `deadline`, and for other types.
[[nodiscard]] double sumOfSquares(DType dtype, Buffer buffer, void* stream, std::chrono::milliseconds deadline);

/// See CudaBackend. By events: matrix products of 2048, 4096 and 8192 (random numbers, as zeros would run faster), copies of 64 to 512 MiB.
[[nodiscard]] GpuRates measureRates(int device);

/// Copies of 64 and 256 MiB from one GPU's memory to another's, the better of their medians, and of 8 bytes. Takes 256 MiB on each; lets
/// each reach the other's memory from then on where they can.
[[nodiscard]] GpuLinkRate measureLink(int from, int to);

}  // namespace pw
