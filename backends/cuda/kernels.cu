#include "backends/cuda/kernels.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr int kThreads = 256;  // of a block
constexpr int kMostBlocks = 4096;
constexpr int kSumBlocks = 1024;  // fixed, so that the order of a sum is
/// Buffers for the sum of squares, of which a process runs one at a time. Static, because LibTorch's allocator may have taken all memory.
__device__ double partialSums[kSumBlocks];
constexpr int kRepeats = 7;
constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::chrono::seconds kMeasuring(60);

using Clock = std::chrono::steady_clock;

cudaStream_t streamOf(void* stream) { return static_cast<cudaStream_t>(stream); }

void require(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw Error("The GPU could not " + what + ": " + cudaGetErrorString(status) +
              "; see nvidia-smi and the kernel's log for the state of the device.");
}

void require(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("cuBLAS could not " + what + ": " + cublasGetStatusString(status) + "; see nvidia-smi for the state of the device.");
}

/// Waits for all work enqueued on the stream, which may wait for a message that never arrives.
void finish(cudaStream_t stream, Clock::time_point end, const std::string& what) {
  for (;;) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status != cudaErrorNotReady) return require(status, what);
    static_cast<void>(cudaGetLastError());  // else the next launch's check finds "not ready"
    if (Clock::now() >= end)
      throw Error("The GPU did not finish in time to " + what + "; a peer may have ended, or --timeout is too short.");
    std::this_thread::yield();
  }
}

__device__ unsigned long long deviceNow() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void spinFor(unsigned long long nanoseconds) {
  const unsigned long long start = deviceNow();
  while (deviceNow() - start < nanoseconds) {}
}

__global__ void nothing() {}

__device__ float widen(float x) { return x; }
__device__ double widen(double x) { return x; }
__device__ float widen(__half x) { return __half2float(x); }
__device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ void narrow(float x, float& out) { out = x; }
__device__ void narrow(double x, double& out) { out = x; }
__device__ void narrow(float x, __half& out) { out = __float2half_rn(x); }
__device__ void narrow(float x, __nv_bfloat16& out) { out = __float2bfloat16_rn(x); }

template <class Number>
__global__ void addAll(Number* into, const Number* what, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    narrow(widen(into[i]) + widen(what[i]), into[i]);
}

/// The sum of a block's numbers, in its first thread. A tree reduction, so the order is fixed.
__device__ double sumOfBlock(double own) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

template <class Number>
__global__ void sumSquares(const Number* numbers, std::size_t count, double* partial) {
  double own = 0;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const double number = widen(numbers[i]);
    own += number * number;
  }
  const double sum = sumOfBlock(own);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// Of one block.
__global__ void sumPartials(double* partial, int count) {
  double own = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) own += partial[i];
  const double sum = sumOfBlock(own);
  if (threadIdx.x == 0) partial[0] = sum;  // after the barriers of the sum: all have read
}

/// Numbers in [−1, 1), by Murmur3's finalizer.
template <class Number>
__global__ void scatter(Number* numbers, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    auto bits = static_cast<unsigned>(i);
    bits = (bits ^ (bits >> 16U)) * 0x85EBCA6BU;
    bits = (bits ^ (bits >> 13U)) * 0xC2B2AE35U;
    bits ^= bits >> 16U;
    narrow(static_cast<float>(bits >> 8U) / 8388608.0F - 1.0F, numbers[i]);
  }
}

unsigned blocksFor(std::size_t count) {
  return static_cast<unsigned>(std::clamp<std::size_t>((count + kThreads - 1) / kThreads, 1, kMostBlocks));
}

/// Calls `work` with a null pointer of the element type.
template <class Work>
void withType(DType dtype, Work work) {
  switch (dtype) {
    case DType::Float32: return work(static_cast<float*>(nullptr));
    case DType::Float64: return work(static_cast<double*>(nullptr));
    case DType::Float16: return work(static_cast<__half*>(nullptr));
    case DType::BFloat16: return work(static_cast<__nv_bfloat16*>(nullptr));
    default:
      throw Error("gradients of type " + std::string(nameOf(dtype)) + " cannot be summed or compared; train parameters of a floating type");
  }
}

/// Device memory, or pinned memory of the host.
class Memory {
 public:
  Memory(std::size_t bytes, bool pinned) : pinned_(pinned) {
    const cudaError_t status = pinned ? cudaMallocHost(&data_, bytes) : cudaMalloc(&data_, bytes);
    require(status, "give " + std::to_string(bytes) + " bytes of " + (pinned ? "pinned " : "") + "memory");
  }
  ~Memory() { pinned_ ? cudaFreeHost(data_) : cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] void* data() const { return data_; }

 private:
  bool pinned_;
  void* data_ = nullptr;
};

class Event {
 public:
  Event() { require(cudaEventCreate(&event_), "make an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { require(cudaEventRecord(event_, stream), "record an event"); }
  [[nodiscard]] double secondsTo(const Event& later) const {
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, event_, later.event_), "tell the time between two events");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// This thread's device, until the end of the scope.
class DeviceUse {
 public:
  explicit DeviceUse(int device) {
    require(cudaGetDevice(&before_), "tell which GPU is in use");
    require(cudaSetDevice(device), "use GPU " + std::to_string(device));
  }
  ~DeviceUse() { cudaSetDevice(before_); }
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;

 private:
  int before_ = 0;
};

/// A stream of the current device that waits for no other.
class OwnStream {
 public:
  OwnStream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream"); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

using Launch = std::function<void()>;

/// How long `count` launches take together.
double timeOf(cudaStream_t stream, const Launch& launch, int times) {
  Event begin, end;
  begin.record(stream);
  for (int i = 0; i < times; ++i) launch();
  end.record(stream);
  finish(stream, Clock::now() + kMeasuring, "do what is measured");
  return begin.secondsTo(end);
}

/// Seconds of one launch: the median of samples of 2 ms or more each (to 1000 launches), after warm-up.
double secondsOf(cudaStream_t stream, const Launch& launch) {
  static_cast<void>(timeOf(stream, launch, 2));
  const double once = std::max(timeOf(stream, launch, 1), 1e-7);
  const int times = static_cast<int>(std::clamp(2e-3 / once + 1, 1.0, 1000.0));
  std::array<double, kRepeats> samples{};
  for (double& sample : samples) sample = timeOf(stream, launch, times) / times;
  std::sort(samples.begin(), samples.end());
  return std::max(samples[kRepeats / 2], 1e-12);
}

std::size_t freeBytes() {
  std::size_t free = 0, total = 0;
  require(cudaMemGetInfo(&free, &total), "tell how much memory is free");
  return free;
}

/// Multiplications and additions per second of square products.
template <class Number>
double matmulRate(cublasHandle_t cublas, cudaStream_t stream, cudaDataType_t type, cublasComputeType_t compute) {
  double best = 0;
  for (const int size : {2048, 4096, 8192}) {
    const std::size_t elements = static_cast<std::size_t>(size) * static_cast<std::size_t>(size), bytes = elements * sizeof(Number);
    if (best > 0 && 3 * bytes > freeBytes() / 2) break;
    const Memory a(bytes, false), b(bytes, false), c(bytes, false);
    for (const Memory* from : {&a, &b}) {
      scatter<<<blocksFor(elements), kThreads, 0, stream>>>(static_cast<Number*>(from->data()), elements);
      require(cudaGetLastError(), "fill a matrix");
    }
    const float one = 1, zero = 0;
    const double seconds = secondsOf(stream, [&] {
      require(cublasGemmEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &one, a.data(), type, size, b.data(), type, size, &zero,
                           c.data(), type, size, compute, CUBLAS_GEMM_DEFAULT),
              "multiply matrices of " + std::to_string(size));
    });
    best = std::max(best, 2.0 * size * static_cast<double>(elements) / seconds);
  }
  return best;
}

double bestCopy(cudaStream_t stream, bool fromHost, bool toHost) {
  double best = 0;
  for (const std::size_t bytes : {64 * kMiB, 256 * kMiB, 512 * kMiB}) {
    const bool within = !fromHost && !toHost;
    if (within ? bytes == 64 * kMiB : bytes > 256 * kMiB) continue;  // one fits caches, the other is much to pin
    if (best > 0 && 2 * bytes > freeBytes() / 2) break;
    const Memory from(bytes, fromHost), to(bytes, toHost);
    const double seconds =
        secondsOf(stream, [&] { require(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDefault, stream), "copy memory"); });
    best = std::max(best, (within ? 2.0 : 1.0) * static_cast<double>(bytes) / seconds);
  }
  return best;
}

}  // namespace

void spinKernel(long long nanoseconds, void* stream, int blocks) {
  if (nanoseconds <= 0) return;
  spinFor<<<static_cast<unsigned>(std::max(1, blocks)), 1, 0, streamOf(stream)>>>(static_cast<unsigned long long>(nanoseconds));
  require(cudaGetLastError(), "start a spin kernel");
}

void addInto(DType dtype, Buffer into, Buffer what, void* stream) {
  assert(into.bytes == what.bytes);
  withType(dtype, [&](auto* type) {
    using Number = std::remove_pointer_t<decltype(type)>;
    const std::size_t count = into.bytes / sizeof(Number);
    if (count == 0) return;
    addAll<<<blocksFor(count), kThreads, 0, streamOf(stream)>>>(reinterpret_cast<Number*>(into.data),
                                                                reinterpret_cast<const Number*>(what.data), count);
    require(cudaGetLastError(), "start a sum");
  });
}

double sumOfSquares(DType dtype, Buffer buffer, void* stream, std::chrono::milliseconds deadline) {
  const cudaStream_t on = streamOf(stream);
  const Clock::time_point end = Clock::now() + deadline;
  void* memory = nullptr;
  require(cudaGetSymbolAddress(&memory, partialSums), "find memory for a sum");
  auto* const sums = static_cast<double*>(memory);
  withType(dtype, [&](auto* type) {
    using Number = std::remove_pointer_t<decltype(type)>;
    sumSquares<<<kSumBlocks, kThreads, 0, on>>>(reinterpret_cast<const Number*>(buffer.data), buffer.bytes / sizeof(Number), sums);
    require(cudaGetLastError(), "start a sum of squares");
  });
  sumPartials<<<1, kThreads, 0, on>>>(sums, kSumBlocks);
  require(cudaGetLastError(), "start a sum of squares");
  finish(on, end, "sum squares");  // a copy to memory that is not pinned would wait without a deadline
  double sum = 0;
  require(cudaMemcpyAsync(&sum, sums, sizeof(sum), cudaMemcpyDeviceToHost, on), "copy a sum");
  finish(on, end, "copy a sum");
  return sum;
}

GpuRates measureRates(int device) {
  const DeviceUse use(device);
  const OwnStream stream;
  const cudaStream_t on = stream.get();
  GpuRates rates;
  cublasHandle_t handle = nullptr;
  require(cublasCreate(&handle), "start");
  const std::unique_ptr<cublasContext, void (*)(cublasHandle_t)> cublas(handle, [](cublasHandle_t h) { cublasDestroy(h); });
  require(cublasSetStream(handle, on), "use a stream");
  rates.matmulFlopsPerSecond = matmulRate<__nv_bfloat16>(handle, on, CUDA_R_16BF, CUBLAS_COMPUTE_32F);
  rates.tf32FlopsPerSecond = matmulRate<float>(handle, on, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
  rates.floatFlopsPerSecond = matmulRate<float>(handle, on, CUDA_R_32F, CUBLAS_COMPUTE_32F);
  rates.copyBytesPerSecond = bestCopy(on, false, false);
  rates.hostToDeviceBytesPerSecond = bestCopy(on, true, false);
  rates.deviceToHostBytesPerSecond = bestCopy(on, false, true);
  const double launch = secondsOf(on, [&] {
    nothing<<<1, 1, 0, on>>>();
    require(cudaGetLastError(), "start an empty kernel");
  });
  rates.launch = static_cast<Ns>(launch * 1e9 + 0.5);
  return rates;
}

GpuLinkRate measureLink(int from, int to) {
  constexpr std::size_t kBytes = 256 * kMiB;
  std::optional<Memory> into;
  {
    const DeviceUse there(to);
    into.emplace(kBytes, false);
  }
  const DeviceUse here(from);
  int reaches = 0;
  require(cudaDeviceCanAccessPeer(&reaches, from, to), "tell whether it reaches another's memory");
  if (reaches != 0 && cudaDeviceEnablePeerAccess(to, 0) != cudaSuccess) static_cast<void>(cudaGetLastError());  // it did already
  const OwnStream stream;
  const Memory out(kBytes, false);
  const auto secondsFor = [&](std::size_t bytes) {
    return secondsOf(stream.get(),
                     [&] { require(cudaMemcpyPeerAsync(into->data(), to, out.data(), from, bytes, stream.get()), "copy to another GPU"); });
  };
  GpuLinkRate rate;
  for (const std::size_t bytes : {64 * kMiB, kBytes})
    rate.bytesPerSecond = std::max(rate.bytesPerSecond, static_cast<double>(bytes) / secondsFor(bytes));
  rate.latency = static_cast<Ns>(secondsFor(8) * 1e9 + 0.5);
  return rate;
}

}  // namespace pw
