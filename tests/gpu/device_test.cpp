#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "backends/numbers.h"
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
    const std::uint32_t half = value == 0 ? 0 : ((bits >> 16) & 0x8000U) | ((((bits >> 23) & 0xFFU) - 112U) << 10) | ((bits >> 13) & 0x3FFU);
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
    EXPECT_EQ(back(gpu, sum), a) << name(dtype);
    EXPECT_DOUBLE_EQ(gpu.sumOfSquares(dtype, sum.buffer), sumOfSquares(dtype, {a.data(), a.size()})) << name(dtype) << ", whose squares are exact in double precision";
  }
}

TEST_F(GpuDevice, TellsTimesOnTheHostsClock) {
  const Device& gpu = test::firstGpu();
  constexpr Ns kSpin = 5'000'000, kUncertain = 100'000;
  gpu.finish(kDeadline);
  const Ns before = hostDevice().timeOf(hostDevice().mark());
  const Mark begin = gpu.mark();
  cudaBackend().spin(kSpin);
  const Mark end = gpu.mark();
  gpu.finish(kDeadline);
  const Ns after = hostDevice().timeOf(hostDevice().mark());
  EXPECT_THAT(before, Le(gpu.timeOf(begin) + kUncertain));
  EXPECT_THAT(gpu.timeOf(begin) + kSpin, Le(gpu.timeOf(end) + 1000)) << "the kernel spins for all its time";
  EXPECT_THAT(gpu.timeOf(end), Le(after + kUncertain));
}

TEST_F(GpuDevice, KeepsMarksOfAStepWhateverTheirNumber) {
  const Device& gpu = test::firstGpu();
  gpu.finish(kDeadline);
  std::vector<Mark> marks;
  for (int i = 0; i < 5000; ++i) marks.push_back(gpu.mark());
  gpu.finish(kDeadline);
  for (std::size_t i = 1; i < marks.size(); ++i) ASSERT_THAT(gpu.timeOf(marks[i - 1]), Le(gpu.timeOf(marks[i]) + 1000)) << i;
}

TEST_F(GpuDevice, RefusesWorkThatDoesNotEnd) {
  const Device& gpu = test::firstGpu();
  cudaBackend().spin(300'000'000);
  EXPECT_THROW(gpu.finish(std::chrono::milliseconds(20)), Error);
  gpu.finish(kDeadline);
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
  const GpuRates rates = cudaBackend().measureRates();
  const auto record = [&](const char* what, double rate, double unit) {
    EXPECT_GT(rate, 0) << what;
    RecordProperty(what, std::to_string(rate / unit));
  };
  record("bf16 products [TFLOP/s]", rates.matmulFlopsPerSecond, 1e12);
  record("float32 products [TFLOP/s]", rates.floatFlopsPerSecond, 1e12);
  record("memory, read and written [GB/s]", rates.copyBytesPerSecond, 1e9);
  record("host to device [GB/s]", rates.hostToDeviceBytesPerSecond, 1e9);
  record("device to host [GB/s]", rates.deviceToHostBytesPerSecond, 1e9);
  record("launch [us]", static_cast<double>(rates.launch), 1e3);
  EXPECT_GE(rates.matmulFlopsPerSecond, rates.floatFlopsPerSecond) << "tensor cores";
}

TEST(CudaModule, SaysWhyItCannotBeUsed) {
  const auto reason = test::whyNoGpu();
  if (!reason) GTEST_SKIP() << "there is a GPU here";
  EXPECT_THAT(*reason, testing::AnyOf(testing::HasSubstr("no GPU"), testing::HasSubstr("libpw_cuda.so"))) << "what is missing";
  EXPECT_THAT(*reason, testing::EndsWith(".")) << "a sentence";
}

}  // namespace
}  // namespace pw
