#include "backends/checkpoints/outputs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "backends/checkpoints/tensor_file.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

template <class Number>
OutputPart part(std::vector<Number>& numbers, const std::vector<std::int64_t>& shape) {
  return {shape, {reinterpret_cast<std::byte*>(numbers.data()), numbers.size() * sizeof(Number)}};
}

template <class Number>
std::vector<Number> numbersOf(const MappedTensor& tensor) {
  std::size_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= static_cast<std::size_t>(size);
  std::vector<Number> numbers(count);
  std::memcpy(numbers.data(), tensor.data, count * sizeof(Number));
  return numbers;
}

class Outputs : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  /// What is in the file after these outputs of microbatches of 2 and 1 samples were saved.
  MappedTensor saved(const std::vector<ModelOutput>& outputs, const std::string& name) {
    mergeAndSave(path_, outputs, {2, 1});
    file_ = std::make_unique<TensorFile>(path_);
    return file_->find(name).value();
  }

  std::string path_ = testing::TempDir() + "/pw_outputs_" + testing::UnitTest::GetInstance()->current_test_info()->name() +
                      std::to_string(::getpid()) + ".pt";
  std::unique_ptr<TensorFile> file_;
};

TEST_F(Outputs, AreJoinedAlongTheirBatchDimension) {
  std::vector<float> first{0, 1, 2, 3}, second{4, 5};
  const MappedTensor rows = saved({{"rows", DType::Float32, 0, {part(first, {2, 2}), part(second, {1, 2})}}}, "rows");
  EXPECT_EQ(rows.shape, (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(numbersOf<float>(rows), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  const MappedTensor columns = saved({{"columns", DType::Float32, 1, {part(first, {2, 2}), part(second, {2, 1})}}}, "columns");
  EXPECT_EQ(columns.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(numbersOf<float>(columns), (std::vector<float>{0, 1, 4, 2, 3, 5}));
}

TEST_F(Outputs, AreJoinedBlockByBlockWhereTheirSamplesStandApart) {
  // Two positions of samples a, b and of c, flattened from [T, B]: a0 b0 a1 b1 and c0 c1.
  std::vector<float> first{0, 1, 10, 11}, second{2, 12};
  const MappedTensor rows = saved({{"rows", DType::Float32, 0, {part(first, {4, 1}), part(second, {2, 1})}, 2}}, "rows");
  EXPECT_EQ(rows.shape, (std::vector<std::int64_t>{6, 1}));
  EXPECT_EQ(numbersOf<float>(rows), (std::vector<float>{0, 1, 2, 10, 11, 12}));
}

TEST_F(Outputs, WithoutABatchDimensionAreMeansOverTheSamples) {
  std::vector<float> first{3, 0}, second{9, 1};
  const MappedTensor loss = saved({{"loss", DType::Float32, std::nullopt, {part(first, {2}), part(second, {2})}}}, "loss");
  EXPECT_EQ(numbersOf<float>(loss), (std::vector<float>{5, 1.0F / 3}));  // (2 · 3 + 9) / 3, (2 · 0 + 1) / 3
}

TEST_F(Outputs, MeansOfSixteenBitNumbersAreFloats) {
  std::vector<std::uint16_t> one{0x3F80}, four{0x4080};  // bfloat16
  const MappedTensor brain = saved({{"loss", DType::BFloat16, std::nullopt, {part(one, {}), part(four, {})}}}, "loss");
  EXPECT_EQ(brain.dtype, DType::Float32);
  EXPECT_EQ(numbersOf<float>(brain), (std::vector<float>{2}));  // (2 · 1 + 4) / 3
  one = {0x3C00};
  four = {0x4400};
  EXPECT_EQ(numbersOf<float>(saved({{"loss", DType::Float16, std::nullopt, {part(one, {}), part(four, {})}}}, "loss")),
            (std::vector<float>{2}));
}

TEST_F(Outputs, IntegersWithoutABatchDimensionAreTheFirst) {
  std::vector<std::int64_t> seven{7}, eight{8};
  const MappedTensor count = saved({{"a/count", DType::Int64, std::nullopt, {part(seven, {}), part(eight, {})}}}, "a.count");
  EXPECT_TRUE(count.shape.empty());
  EXPECT_EQ(numbersOf<std::int64_t>(count), (std::vector<std::int64_t>{7}));
}

TEST_F(Outputs, OfUnequalSizesAreRefusedByName) {
  std::vector<float> first{0, 1, 2, 3}, second{4, 5, 6};
  EXPECT_EQ(test::usageErrorOf([&] {
              mergeAndSave(path_, {{"rows", DType::Float32, 0, {part(first, {2, 2}), part(second, {1, 3})}}}, {2, 1});
            }),
            "Output rows has the shape [2, 2] for one microbatch and [1, 3] for another, which cannot be joined along one dimension.");
  EXPECT_EQ(test::usageErrorOf([&] {
              mergeAndSave(path_, {{"rows", DType::Float32, 0, {part(first, {2, 2})}}}, {2, 1});
            }),
            "Output rows has 1 parts for 2 microbatches.");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace pw
