#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include "backends/messages/buffer_math.h"
#include "tests/gpu/gpu.h"

namespace pw {
namespace {

using testing::Le;

using GpuDevice = test::Gpu;
constexpr std::chrono::seconds kDeadline{30};

template <class T>
Buffer bufferOf(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

/// A copy on the GPU.
HeldBuffer onGpu(const Device& gpu, Buffer host) {
  HeldBuffer buffer = gpu.allocate(host.bytes);
  gpu.copy(buffer.buffer, host);
  return buffer;
}

std::vector<std::byte> back(const Device& gpu, const HeldBuffer& buffer) {
  std::vector<std::byte> bytes(buffer.buffer.bytes);
  gpu.copy({bytes.data(), bytes.size()}, buffer.buffer);
  return bytes;
}

/// Numbers of a type that sums keep exactly: small multiples of a half.
std::vector<std::byte> numbers(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes;
  const auto append = [&](auto value) {
    const auto* const raw = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), raw, raw + sizeof(value));
  };
  for (std::size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int>(random() % 17) - 8) * 0.5F;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (dtype == DType::Float32) append(value);
    if (dtype == DType::Float64) append(static_cast<double>(value));
    if (dtype == DType::BFloat16) append(static_cast<std::uint16_t>(bits >> 16));
    if (dtype != DType::Float16) continue;
    // Sign, exponent less 127 - 15, upper ten bits of the fraction; zero has no such exponent.
    const std::uint32_t half =
        value == 0 ? 0 : ((bits >> 16) & 0x8000U) | ((((bits >> 23) & 0xFFU) - 112U) << 10) | ((bits >> 13) & 0x3FFU);
    append(static_cast<std::uint16_t>(half));
  }
  return bytes;
}

constexpr DType kTypes[] = {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16};

TEST_F(GpuDevice, GivesBackWhatItWasGiven) {
  const Device& gpu = test::firstGpu();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, std::size_t{1} << 24}) {
    std::mt19937_64 random(bytes);
    std::vector<std::byte> host(bytes);
    for (std::byte& b : host) b = static_cast<std::byte>(random());
    const HeldBuffer first = onGpu(gpu, {host.data(), host.size()}), second = gpu.allocate(bytes);
    gpu.copy(second.buffer, first.buffer);
    EXPECT_EQ(back(gpu, second), host) << bytes;
  }
}

TEST_F(GpuDevice, AddsAsTheHostDoes) {
  const Device& gpu = test::firstGpu();
  for (const DType dtype : kTypes) {
    std::vector<std::byte> a = numbers(dtype, 100'003, 1), b = numbers(dtype, 100'003, 2);
    const HeldBuffer sum = onGpu(gpu, {a.data(), a.size()}), what = onGpu(gpu, {b.data(), b.size()});
    gpu.addInto(dtype, sum.buffer, what.buffer);
    addInto(dtype, {a.data(), a.size()}, {b.data(), b.size()});
    EXPECT_EQ(back(gpu, sum), a) << nameOf(dtype);
    EXPECT_DOUBLE_EQ(gpu.sumOfSquares(dtype, sum.buffer, kDeadline), sumOfSquares(dtype, {a.data(), a.size()}))
        << nameOf(dtype) << ", whose squares are exact in double precision";
  }
}

TEST_F(GpuDevice, TellsTimesOnTheHostsClock) {
  const Device& gpu = test::firstGpu();
  constexpr Ns kSpin = 5'000'000, kUncertain = 100'000;
  gpu.finish(kDeadline, {});
  const Ns before = hostDevice().timeOf(hostDevice().timestamp());
  const Timestamp begin = gpu.timestamp();
  test::firstGpu().spin(kSpin);
  const Timestamp end = gpu.timestamp();
  gpu.finish(kDeadline, {});
  const Ns after = hostDevice().timeOf(hostDevice().timestamp());
  EXPECT_THAT(before, Le(gpu.timeOf(begin) + kUncertain));
  EXPECT_THAT(gpu.timeOf(begin) + kSpin, Le(gpu.timeOf(end) + 1000)) << "the kernel spins for all its time";
  EXPECT_THAT(gpu.timeOf(end), Le(after + kUncertain));
}

TEST_F(GpuDevice, KeepsMarksUntilTheyAreForgotten) {
  const Device& gpu = test::firstGpu();
  for (int step = 0; step < 3; ++step) {
    std::vector<Timestamp> timestamps;
    for (int i = 0; i < 5000; ++i) {
      if (i % 500 == 0) gpu.finish(kDeadline, {});  // as often as a step in lockstep
      timestamps.push_back(gpu.timestamp());
    }
    gpu.finish(kDeadline, {});
    for (std::size_t i = 1; i < timestamps.size(); ++i)
      ASSERT_THAT(gpu.timeOf(timestamps[i - 1]), Le(gpu.timeOf(timestamps[i]) + 10'000)) << i;
    gpu.forgetTimestamps();
  }
}

TEST_F(GpuDevice, DoesWhatItRecordedEachTimeItIsLaunched) {
  const Device& gpu = test::firstGpu();
  ASSERT_NE(gpu.record, nullptr);
  std::vector<std::byte> start = numbers(DType::Float32, 1000, 1), what = numbers(DType::Float32, 1000, 2);
  const HeldBuffer sum = onGpu(gpu, {start.data(), start.size()}), added = onGpu(gpu, {what.data(), what.size()});
  std::shared_ptr<void> pool;
  const auto twice = gpu.record(
      [&] {
        gpu.addInto(DType::Float32, sum.buffer, added.buffer);
        gpu.addInto(DType::Float32, sum.buffer, added.buffer);
      },
      pool);
  EXPECT_EQ(back(gpu, sum), start) << "recording does nothing";
  std::vector<std::byte> expected = start;
  for (int launch = 0; launch < 3; ++launch) {
    gpu.launch(twice);
    for (int i = 0; i < 2; ++i) addInto(DType::Float32, {expected.data(), expected.size()}, {what.data(), what.size()});
    EXPECT_EQ(back(gpu, sum), expected) << launch;
  }
}

TEST_F(GpuDevice, RefusesToRecordWhatWaits) {
  const Device& gpu = test::firstGpu();
  ASSERT_NE(gpu.record, nullptr);
  std::vector<std::byte> host(64);
  const HeldBuffer buffer = onGpu(gpu, {host.data(), host.size()});
  std::shared_ptr<void> pool;
  EXPECT_THROW(static_cast<void>(gpu.record([&] { gpu.copy({host.data(), host.size()}, buffer.buffer); }, pool)), Error);
  EXPECT_EQ(back(gpu, buffer), host) << "the device works as before";
}

TEST_F(GpuDevice, RefusesWorkThatDoesNotEnd) {
  const Device& gpu = test::firstGpu();
  test::firstGpu().spin(300'000'000);
  EXPECT_THROW(gpu.finish(std::chrono::milliseconds(20), {}), Error);
  gpu.finish(kDeadline, {});
  std::vector<std::byte> numbers(1024);
  const HeldBuffer buffer = onGpu(gpu, {numbers.data(), numbers.size()});
  test::firstGpu().spin(300'000'000);
  EXPECT_THROW(static_cast<void>(gpu.sumOfSquares(DType::Float32, buffer.buffer, std::chrono::milliseconds(20))), Error);
  gpu.finish(kDeadline, {});
}

TEST_F(GpuDevice, TellsOnHowManyMultiprocessorsItComputes) {
  static_cast<void>(test::firstGpu());
  EXPECT_GT(cudaBackend().multiprocessors(), 0);
}

TEST_F(GpuDevice, CountsMemoryThatTensorsHold) {
  const Device& gpu = test::firstGpu();
  const Bytes before = gpu.bytesAlive();
  static_cast<void>(gpu.takePeakBytes());
  {
    const HeldBuffer buffer = gpu.allocate(1 << 20);
    EXPECT_EQ(gpu.bytesAlive() - before, 1 << 20);
  }
  EXPECT_EQ(gpu.bytesAlive(), before);
  EXPECT_EQ(gpu.takePeakBytes() - before, 1 << 20) << "it was there once";
}

TEST_F(GpuDevice, MeasuresItsRates) {
  static_cast<void>(test::firstGpu());
  const GpuRates rates = cudaBackend().measureRates(0);
  const auto record = [&](const char* what, double rate, double unit) {
    EXPECT_GT(rate, 0) << what;
    RecordProperty(what, std::to_string(rate / unit));
  };
  record("bf16 products [TFLOP/s]", rates.matmulFlopsPerSecond, 1e12);
  record("TF32 products [TFLOP/s]", rates.tf32FlopsPerSecond, 1e12);
  record("float32 products [TFLOP/s]", rates.floatFlopsPerSecond, 1e12);
  record("memory, read and written [GB/s]", rates.copyBytesPerSecond, 1e9);
  record("host to device [GB/s]", rates.hostToDeviceBytesPerSecond, 1e9);
  record("device to host [GB/s]", rates.deviceToHostBytesPerSecond, 1e9);
  record("launch [us]", static_cast<double>(rates.launch), 1e3);
  EXPECT_GE(rates.matmulFlopsPerSecond, rates.floatFlopsPerSecond) << "tensor cores";
}

/// In a process that has not prepared a GPU; ends it with the number of multiprocessors as its status.
[[noreturn]] void computeOnAHalf() {
  torchBackend().prepareProcess(1);
  const std::string why = cudaBackend().prepareProcess(0, false, {.index = 1, .of = 2});
  if (!why.empty()) {
    std::cerr << "no half: " << why << "\n";
    _exit(0);
  }
  const Device& gpu = cudaBackend().device();
  std::vector<std::byte> a = numbers(DType::Float32, 1'000'003, 1), b = numbers(DType::Float32, 1'000'003, 2);
  const HeldBuffer sum = onGpu(gpu, {a.data(), a.size()}), what = onGpu(gpu, {b.data(), b.size()});
  gpu.addInto(DType::Float32, sum.buffer, what.buffer);
  addInto(DType::Float32, {a.data(), a.size()}, {b.data(), b.size()});
  std::cerr << (back(gpu, sum) == a ? "the sum is right\n" : "the sum is wrong\n");
  _exit(cudaBackend().multiprocessors());
}

TEST_F(GpuDevice, ComputesOnAHalfOfItsMultiprocessors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own
  const auto isAHalf = [](int status) {
    static_cast<void>(test::firstGpu());
    const int all = cudaBackend().multiprocessors(), half = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    RecordProperty("multiprocessors of a half, of all []", std::to_string(half) + ", " + std::to_string(all));
    return half > 0 && 2 * half <= all;
  };
  EXPECT_EXIT(computeOnAHalf(), isAHalf, "the sum is right");
}

TEST(CudaModule, SaysWhyItCannotBeUsed) {
  const auto reason = test::whyNoGpu();
  if (!reason) GTEST_SKIP() << "there is a GPU here";
  EXPECT_THAT(*reason, testing::AnyOf(testing::HasSubstr("no GPU"), testing::HasSubstr("libpw_cuda.so"))) << "what is missing";
  EXPECT_THAT(*reason, testing::EndsWith(".")) << "a sentence";
}

}  // namespace
}  // namespace pw
