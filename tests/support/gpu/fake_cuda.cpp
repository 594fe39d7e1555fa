#include "tests/support/gpu/fake_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <utility>

#include "backends/cuda/device.h"
#include "schedules/error.h"

using pw::test::FakeCuda;
using pw::test::Moment;

namespace pw {
namespace test {
namespace {

std::atomic<FakeCuda*> fake = nullptr;
thread_local int gpuOfThread = 0;
thread_local cudaStream_t compute = nullptr;
thread_local cudaError_t lastError = cudaSuccess;

cudaError_t failed(cudaError_t error) { return lastError = error; }

/// A stream's thread.
void serve(CUstream_st& stream) {
  FakeCuda& cuda = FakeCuda::current();
  for (std::unique_lock lock(cuda.mutex);;) {
    cuda.changed.wait(lock, [&] { return stream.ending || !stream.tasks.empty(); });
    if (stream.ending) return;
    auto task = std::move(stream.tasks.front());
    stream.tasks.pop_front();
    stream.busy = true;
    const auto delay = cuda.random() % 8;
    lock.unlock();
    if (delay == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (delay < 4) std::this_thread::yield();
    task();
    task = nullptr;  // what it holds may need the mutex to go
    lock.lock();
    stream.busy = false;
    cuda.changed.notify_all();
  }
}

}  // namespace

FakeCuda& FakeCuda::current() { return *fake; }

FakeCuda::FakeCuda(std::uint64_t seed) : random_(seed) { fake = this; }
FakeCuda::~FakeCuda() { fake = nullptr; }

void FakeCuda::use(int gpu) {
  static_cast<void>(cudaSetDevice(gpu));
  static_cast<void>(cudaStreamCreateWithPriority(&test::compute, cudaStreamNonBlocking, 0));
}

void FakeCuda::leave() { static_cast<void>(cudaStreamDestroy(std::exchange(test::compute, nullptr))); }

cudaStream_t FakeCuda::computeStream() { return test::compute; }

void FakeCuda::compute(std::function<void()> task) {
  const std::lock_guard lock(mutex);
  test::compute->add(std::move(task));
}

Ns FakeCuda::timeOf(void* event) {
  const std::lock_guard lock(current().mutex);
  const auto moment = static_cast<cudaEvent_t>(event)->last;
  if (!moment || !moment->done) current().violate("queried the time of an event that is not reached");
  return moment ? moment->time : 0;
}

bool FakeCuda::holds(const void* address) {
  const std::lock_guard lock(current().mutex);
  return current().isAlive(address);
}

bool FakeCuda::isAlive(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const auto after = blocks_.upper_bound(at);
  return after != blocks_.begin() && at < std::prev(after)->first + std::prev(after)->second;
}

const Device& FakeCuda::device() {
  static const Device device{
      .allocate = [](std::size_t bytes) -> HeldBuffer {
        auto* const data = new std::byte[bytes];
        std::fill_n(data, bytes, std::byte{0xEE});
        const std::lock_guard lock(current().mutex);
        current().blocks_[data] = bytes;
        return {{data, bytes}, std::shared_ptr<void>(data, [](void* block) {
                  const std::lock_guard deleting(current().mutex);
                  current().blocks_.erase(static_cast<std::byte*>(block));
                  current().freed_.emplace_back(static_cast<std::byte*>(block));
                })};
      },
      .copy = [](Buffer into, Buffer from) { current().compute([into, from] { std::memcpy(into.data, from.data, from.bytes); }); },
      .finish =
          [](std::chrono::milliseconds deadline, const std::function<void()>&) {
            std::unique_lock lock(current().mutex);
            const cudaStream_t stream = test::compute;
            if (!current().changed.wait_for(lock, deadline, [&] { return stream->tasks.empty() && !stream->busy; }))
              throw Error("the fake GPU did not finish");
          }};
  return device;
}

FakeCuda::Counts FakeCuda::counts() {
  const std::lock_guard lock(mutex);
  counted.blocks = blocks_.size();
  counted.communicators = static_cast<int>(communicators.size());
  return counted;
}

std::vector<std::string> FakeCuda::violations() {
  const std::lock_guard lock(mutex);
  return violations_;
}

}  // namespace test

bool isOnDevice(const void* address) { return FakeCuda::holds(address); }

}  // namespace pw

void CUstream_st::add(std::function<void()> task) {
  tasks.push_back(std::move(task));
  FakeCuda::current().changed.notify_all();
}

using pw::test::failed;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = pw::test::gpuOfThread;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  pw::test::gpuOfThread = device;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(pw::test::lastError, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return pw::test::lastError; }
const char* cudaGetErrorString(cudaError_t error) { return error == cudaErrorNotReady ? "device not ready" : "a fake error"; }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  if (flags != cudaStreamNonBlocking) cuda.violate("a stream that waits for the default stream");
  ++cuda.counted.streams;
  *stream = new CUstream_st{.gpu = pw::test::gpuOfThread, .tasks = {}, .thread = {}};
  (*stream)->thread = std::thread([made = *stream] { pw::test::serve(*made); });
  return cudaSuccess;
}

/// CUDA ends a stream when its tasks are done; here what still waits for others then does not any more.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  FakeCuda& cuda = FakeCuda::current();
  {
    const std::lock_guard lock(cuda.mutex);
    stream->ending = true;
    cuda.changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  const std::lock_guard lock(cuda.mutex);
  --cuda.counted.streams;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  if (flags != cudaEventDefault) cuda.violate("an event that takes no times");
  ++cuda.counted.events;
  *event = new CUevent_st{.gpu = pw::test::gpuOfThread, .last = nullptr};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  --cuda.counted.events;
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  if (event->gpu != stream->gpu) cuda.violate("an event of one GPU on a stream of another");
  const auto moment = event->last = std::make_shared<Moment>();
  stream->add([&cuda, moment] {
    const std::lock_guard reached(cuda.mutex);
    moment->done = true;
    moment->time = ++cuda.clock;
  });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  if (!event->last) cuda.violate("a wait for an event that was never recorded");
  stream->add([&cuda, stream, moment = event->last] {
    std::unique_lock waiting(cuda.mutex);
    cuda.changed.wait(waiting, [&] { return !moment || moment->done || stream->ending; });
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  return !event->last || event->last->done ? cudaSuccess : failed(cudaErrorNotReady);
}

}  // extern "C"
