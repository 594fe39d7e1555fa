#include "backends/cuda/graphs.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>

#include "schedules/error.h"

namespace pw {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

std::atomic<std::int64_t>& allRecorded() {
  static std::atomic<std::int64_t> bytes{0};
  return bytes;
}

/// Memory shared by several recordings.
struct Pool {
  c10::DeviceIndex device;
  at::cuda::MempoolId_t id = at::cuda::graph_pool_handle();
  Bytes before;    ///< alive when it was made
  Bytes most = 0;  ///< that it needs at a time
  Bytes uncounted = 0;

  explicit Pool(c10::DeviceIndex on) : device(on), before(Bytes(stats().current)) {}
  ~Pool() { allRecorded() -= uncounted.value; }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] c10::CachingAllocator::Stat stats() const {
    return allocator::getDeviceStats(device).allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  }
  /// Called after a recording; the peak is counted from the last reset.
  void count() {
    const auto now = stats();
    most = std::max(most, Bytes(now.peak) - before);
    const Bytes more = std::max<Bytes>(0, most - (Bytes(now.current) - before));
    allRecorded() += (more - uncounted).value;
    uncounted = more;
  }
};

struct Recording {
  std::shared_ptr<Pool> pool;
  cudaGraphExec_t graph = nullptr;

  explicit Recording(std::shared_ptr<Pool> from) : pool(std::move(from)) {}
  ~Recording() {
    if (graph != nullptr) static_cast<void>(cudaGraphExecDestroy(graph));
    allocator::releasePool(pool->device, pool->id);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

/// Records the work that is enqueued on the stream, and the error of either.
cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& work) {
  // Restricted to this thread: others may call the driver freely meanwhile.
  if (const cudaError_t failure = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); failure != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // the caller continues without recordings
    throw Error(std::string("CUDA cannot record the work of a stage (") + cudaGetErrorString(failure) + ").");
  }
  std::exception_ptr problem;
  try {
    work();
  } catch (...) {  // the capture must end first, or the stream stays unusable
    problem = std::current_exception();
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t failure = cudaStreamEndCapture(stream, &graph);
  static_cast<void>(cudaGetLastError());
  if (!problem && failure == cudaSuccess) return graph;
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  if (problem) std::rethrow_exception(problem);
  throw Error(std::string("CUDA cannot record the work of a stage (") + cudaGetErrorString(failure) + ").");
}

}  // namespace

std::shared_ptr<void> recordGraph(int device, void* stream, const std::function<void()>& work, std::shared_ptr<void>& pool) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  const auto on = static_cast<cudaStream_t>(stream);
  if (!pool) {
    allocator::emptyCache();  // what the same work took without a recording
    pool = std::make_shared<Pool>(index);
  }
  const auto recording = std::make_shared<Recording>(std::static_pointer_cast<Pool>(pool));
  allocator::resetPeakStats(index);
  allocator::beginAllocateToPool(index, recording->pool->id, [on](cudaStream_t asking) { return asking == on; });
  cudaGraph_t graph = nullptr;
  try {
    graph = capture(on, work);
  } catch (...) {  // or the stream would allocate from the pool for ever
    allocator::endAllocateToPool(index, recording->pool->id);
    throw;
  }
  allocator::endAllocateToPool(index, recording->pool->id);
  recording->pool->count();
  const cudaError_t failure = cudaGraphInstantiate(&recording->graph, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  if (failure != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw Error(std::string("CUDA cannot keep the work of a stage as a graph (") + cudaGetErrorString(failure) + ").");
  }
  static_cast<void>(cudaGraphUpload(recording->graph, on));  // otherwise the first launch does it, in the middle of a step
  return recording;
}

void launchGraph(const std::shared_ptr<void>& recording, void* stream) {
  const cudaError_t failure = cudaGraphLaunch(static_cast<Recording*>(recording.get())->graph, static_cast<cudaStream_t>(stream));
  if (failure == cudaSuccess) return;
  throw Error(std::string("The GPU failed to launch a recorded action: ") + cudaGetErrorString(failure) +
              "; see dmesg, or run with --no-graphs.");
}

Bytes recordedBytes() { return Bytes(allRecorded().load()); }

}  // namespace pw
