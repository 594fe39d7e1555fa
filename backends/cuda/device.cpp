#include "backends/cuda/device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cassert>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/graphs.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/partition.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(std::string("The GPU failed to ") + what + ": " + cudaGetErrorString(result) +
              "; see dmesg, or run with fewer samples in a microbatch.");
}

/// The state of this process's GPU. CUDA's state is per process, so there is one.
struct Gpu {
  int index;
  int multiprocessors = 0;
  Bytes workspaces = 0;                     ///< of cuBLAS, which no stage's tensors hold
  c10::cuda::CUDAStream compute, arrivals;  // nothing runs on the latter, so memory of its pool may be written at once
  Device device;

  // Timestamps are numbers of events, `ring[number % size]`; those from `first` on are alive.
  std::vector<cudaEvent_t> ring;
  std::int64_t first = 0, next = 0;
  cudaEvent_t origin = nullptr;  // an event whose time is known on both clocks
  Ns originTime = 0;

  Gpu(int number, c10::cuda::CUDAStream stream);
  void grow();
  void readClocks();
};

std::unique_ptr<Gpu>& instance() {
  static std::unique_ptr<Gpu> gpu;
  return gpu;
}

Gpu& use() {
  if (!instance()) throw Error("The GPU was not prepared; this is a bug in Pipewright.");
  return *instance();
}

HeldBuffer allocate(std::size_t bytes) {
  Gpu& g = use();
  if (bytes == 0) return {};
  const c10::cuda::CUDAStreamGuard guard(g.arrivals);
  c10::DataPtr memory = c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  c10::cuda::CUDACachingAllocator::recordStream(memory, g.compute);  // compute may still have to read it when it is freed
  auto* const data = static_cast<std::byte*>(memory.get());
  const c10::DeleterFnPtr free = memory.get_deleter();
  return {{data, bytes}, std::shared_ptr<void>(memory.release_context(), [free](void* context) {
            try {
              free(context);
            } catch (const std::exception&) {  // the GPU failed, which another call reports: thrown from a destructor it would end the
                                               // process unheard
            }
          })};
}

/// Waits without a deadline of its own: what another rank could hold up on this stream is a receive, and the thread of the links
/// (`backends/cuda/nccl.cpp`) ends all operations that are in flight for longer than theirs.
void copy(Buffer into, Buffer from) {
  if (from.bytes == 0) return;
  const cudaStream_t stream = use().compute.stream();
  check(cudaMemcpyAsync(into.data, from.data, from.bytes, cudaMemcpyDefault, stream), "copy memory");
  if (!isOnDevice(into.data) || !isOnDevice(from.data)) check(cudaStreamSynchronize(stream), "copy memory");
}

/// Doubles the ring; timestamps keep their events.
void Gpu::grow() {
  std::vector<cudaEvent_t> larger(ring.empty() ? 1024 : 2 * ring.size());
  for (cudaEvent_t& event : larger) check(cudaEventCreateWithFlags(&event, cudaEventDefault), "make an event");
  for (std::int64_t number = first; number < next; ++number) {
    std::swap(larger[static_cast<std::size_t>(number) % larger.size()], ring[static_cast<std::size_t>(number) % ring.size()]);
  }
  for (const cudaEvent_t event : ring) static_cast<void>(cudaEventDestroy(event));
  ring = std::move(larger);
}

Timestamp timestamp() {
  Gpu& g = use();
  if (static_cast<std::size_t>(g.next - g.first) >= g.ring.size()) g.grow();
  check(cudaEventRecord(g.ring[static_cast<std::size_t>(g.next) % g.ring.size()], g.compute.stream()), "record an event");
  return {g.next++};
}

Ns timeOf(Timestamp timestamp) {
  Gpu& g = use();
  assert(timestamp.number >= g.first && timestamp.number < g.next);
  return timeOfEvent(g.ring[static_cast<std::size_t>(timestamp.number) % g.ring.size()]);
}

/// Reads both clocks at one moment: the fastest of several tries, since an idle stream reaches an event almost as soon as it is recorded.
/// Accurate to half the duration of that try, some microseconds. Called where nothing is pending on the stream, so that it need not watch
/// a deadline.
void Gpu::readClocks() {
  if (origin == nullptr) check(cudaEventCreateWithFlags(&origin, cudaEventDefault), "make an event");
  cudaEvent_t candidate = nullptr;
  check(cudaEventCreateWithFlags(&candidate, cudaEventDefault), "make an event");
  Ns shortest = std::numeric_limits<Ns>::max();
  for (int i = 0; i < 5; ++i) {
    const Ns begin = monotonicNow();
    check(cudaEventRecord(candidate, compute.stream()), "record an event");
    check(cudaEventSynchronize(candidate), "record an event");
    const Ns took = monotonicNow() - begin;
    if (took >= shortest) continue;
    shortest = took;
    originTime = begin + took / 2;
    std::swap(origin, candidate);
  }
  check(cudaEventDestroy(candidate), "forget an event");
}

void finish(std::chrono::milliseconds deadline, const std::function<void()>& meanwhile) {
  Gpu& g = use();
  const auto until = Clock::now() + deadline;
  for (cudaError_t state = cudaStreamQuery(g.compute.stream()); state != cudaSuccess; state = cudaStreamQuery(g.compute.stream())) {
    if (state != cudaErrorNotReady) check(state, "end the step");
    static_cast<void>(cudaGetLastError());  // otherwise the check after the next launch finds "not ready"
    if (Clock::now() > until) {
      throw Error("The GPU had not finished the step's work " + inWords(deadline) +
                  " after it was enqueued; check whether another rank hangs, or raise --timeout.");
    }
    if (meanwhile) meanwhile();
    std::this_thread::yield();
  }
  if (monotonicNow() - g.originTime > 100'000'000) g.readClocks();  // the clocks drift apart by some 10 µs a second
}

Bytes bytesAlive() {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(use().index));
  return Bytes(stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current) + recordedBytes() -
         use().workspaces;
}

Bytes takePeakBytes() {
  const auto device = static_cast<c10::DeviceIndex>(use().index);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
  c10::cuda::CUDACachingAllocator::resetPeakStats(device);
  return Bytes(stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak) + recordedBytes() -
         use().workspaces;
}

Gpu::Gpu(int number, c10::cuda::CUDAStream stream)
    : index(number), compute(stream), arrivals(c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(number))) {
  device.index = number;
  device.allocate = &allocate;
  device.copy = &copy;
  device.addInto = [](DType dtype, Buffer into, Buffer what) { addInto(dtype, into, what, use().compute.stream()); };
  device.sumOfSquares = [](DType dtype, Buffer buffer, std::chrono::milliseconds deadline) {
    return sumOfSquares(dtype, buffer, use().compute.stream(), deadline);
  };
  device.timestamp = &timestamp;
  device.timeOf = &timeOf;
  device.forgetTimestamps = [] { use().first = use().next; };
  device.finish = &finish;
  device.record = [](const std::function<void()>& work, std::shared_ptr<void>& pool) {
    return recordGraph(use().index, computeStream(), work, pool);
  };
  device.launch = [](const std::shared_ptr<void>& recording) { launchGraph(recording, computeStream()); };
  device.spin = [](Ns duration) { spinKernel(duration.value, computeStream()); };
  device.name = [](const char* what) { what != nullptr ? static_cast<void>(nvtxRangePushA(what)) : static_cast<void>(nvtxRangePop()); };
  device.bytesAlive = &bytesAlive;
  device.takePeakBytes = &takePeakBytes;
}

}  // namespace

bool isOnDevice(const void* address) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice;
}

int gpuCount() { return c10::cuda::device_count(); }

std::string gpuIdentity(int device) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return std::string(std::begin(properties.uuid.bytes), std::end(properties.uuid.bytes));
}

namespace {

/// Computes on that stream from now on. cuBLAS allocates its workspaces now, one for this thread and one for autograd's, rather than later
/// after a message that is waited for.
void computeOn(c10::cuda::CUDAStream stream, int device) {
  instance() = std::make_unique<Gpu>(device, stream);
  Gpu& g = use();
  c10::cuda::setCurrentCUDAStream(stream);
  g.grow();
  {
    const auto onGpu = at::TensorOptions().device(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
    const at::Tensor weight = at::ones({16, 16}, onGpu).requires_grad_();  // factories of at:: ignore that option
    const c10::AutoGradMode grad(true);
    at::ones({16, 16}, onGpu).mm(weight).sum().backward();
  }
  static_cast<void>(timestamp());
  finish(std::chrono::seconds(60), {});
  static_cast<void>(timeOf({0}));
  g.workspaces = bytesAlive();
}

}  // namespace

std::string prepareGpu(int device, bool tf32, GpuPart part) {
  if (device < 0 || device >= gpuCount()) {
    throw UsageError("There is no GPU " + std::to_string(device) + "; CUDA gives this process " + std::to_string(gpuCount()) +
                     ", see pipewright devices.");
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  const auto index = static_cast<c10::DeviceIndex>(device);
  std::string refusal;
  if (part.of > 1) {
    try {
      const SmPartition own = partOfGpu(device, part);
      computeOn(c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(own.stream), index), device);
      use().multiprocessors = own.multiprocessors;
      return {};
    } catch (const std::exception& problem) {
      refusal = problem.what();
    }
  }
  computeOn(c10::cuda::getStreamFromPool(false, index), device);
  check(cudaDeviceGetAttribute(&use().multiprocessors, cudaDevAttrMultiProcessorCount, device), "count its multiprocessors");
  return refusal;
}

int multiprocessors() { return use().multiprocessors; }

const Device& gpu() { return use().device; }

void* computeStream() { return use().compute.stream(); }

Ns timeOfEvent(void* event) {
  const Gpu& g = use();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(event), g.origin), "tell the time");
  return g.originTime - static_cast<Ns>(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace pw
