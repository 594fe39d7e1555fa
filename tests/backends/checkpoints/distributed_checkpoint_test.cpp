// Folders of torch.distributed.checkpoint: what is written is read, and the folder has a whole checkpoint at any time. That torch reads and
// writes the same is tested with its own functions (tests/app/cli/checkpoint_cli_test.cpp).
#include "backends/checkpoints/distributed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "backends/checkpoints/tensor_file.h"
#include "backends/checkpoints/writer.h"
#include "backends/host/files.h"
#include "schedules/error.h"
#include "tests/support/folder.h"

namespace pw::test {
namespace {

namespace fs = std::filesystem;

const std::byte* bytesOf(const auto& numbers) { return reinterpret_cast<const std::byte*>(numbers.data()); }

const std::vector<float> kWeight{1, 2, 3, 4, 5, 6};

OptimizerLayout adamW() {
  OptimizerLayout layout;
  layout.spec.kind = OptimizerSpec::Kind::AdamW;
  layout.steps = 5;
  layout.updates = 3;
  layout.parameters = {"a.weight"};
  return layout;
}

void save(const std::string& path, float first = 1) {
  std::vector<float> weight = kWeight;
  weight[0] = first;
  CheckpointWriter writer(path);
  writer.add("a.weight", DType::Float32, {2, 3}, bytesOf(weight));
  writer.alias("tied.weight", "a.weight");
  writer.add("count", DType::Int64, {}, bytesOf(std::vector<std::int64_t>{42}));
  writer.add("none", DType::BFloat16, {0, 4}, nullptr);
  writer.add("exp_avg/a.weight", DType::Float32, {2, 3}, bytesOf(kWeight));
  writer.finish({{"step", 3}, {"loss_scale", 0.5}}, adamW());
}

std::size_t filesIn(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(DistributedCheckpoint, HasWhatWasWritten) {
  const Folder folder;
  const std::string path = folder.file("ck/");
  save(path);
  const TensorFile file(folder.file("ck"));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a.weight", "tied.weight", "count", "none", "exp_avg/a.weight"}));
  EXPECT_EQ(file.numbers(), (std::map<std::string, double>{{"step", 3}, {"loss_scale", 0.5}}));
  for (const char* name : {"a.weight", "tied.weight", "exp_avg/a.weight"}) {
    const MappedTensor tensor = file.find(name).value();
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(std::memcmp(tensor.data, kWeight.data(), 24), 0) << name;
  }
  std::int64_t count = 0;
  std::memcpy(&count, file.find("count").value().data, sizeof count);
  EXPECT_EQ(count, 42);
  EXPECT_EQ(file.find("none").value().shape, (std::vector<std::int64_t>{0, 4}));
  EXPECT_FALSE(file.find("other"));
}

TEST(DistributedCheckpoint, IsReplacedOnlyByAWholeOne) {
  const Folder folder;
  const std::string path = folder.file("ck/");
  save(path);
  {
    CheckpointWriter interrupted(path);
    interrupted.add("a.weight", DType::Float32, {2, 3}, bytesOf(std::vector<float>(6)));
  }
  EXPECT_EQ(filesIn(path), 2U);
  EXPECT_EQ(std::memcmp(TensorFile(path).find("a.weight").value().data, kWeight.data(), 24), 0);
  save(path, 7);
  EXPECT_EQ(filesIn(path), 2U);
  float first = 0;
  std::memcpy(&first, TensorFile(path).find("a.weight").value().data, sizeof first);
  EXPECT_EQ(first, 7);
  removeCheckpoint(path);
  EXPECT_FALSE(fs::exists(path));
}

TEST(DistributedCheckpoint, ReplacesOneThatLacksItsData) {
  const Folder folder;
  const std::string path = folder.file("ck/");
  save(path);
  ASSERT_TRUE(fs::remove(path + "__0_0.distcp"));
  save(path, 7);
  float first = 0;
  std::memcpy(&first, TensorFile(path).find("a.weight").value().data, sizeof first);
  EXPECT_EQ(first, 7);
  EXPECT_EQ(filesIn(path), 2U);
}

TEST(DistributedCheckpoint, LeavesNothingOfAnUnfinishedFirstOneAndKeepsOthersFiles) {
  const Folder folder;
  { CheckpointWriter interrupted(folder.file("ck/")); }
  EXPECT_FALSE(fs::exists(folder.file("ck")));
  save(folder.file("ck/"));
  (void)folder.with("ck/notes.txt", "mine");
  removeCheckpoint(folder.file("ck/"));
  EXPECT_EQ(filesIn(folder.file("ck")), 1U);
  EXPECT_THROW(CheckpointWriter(folder.file("none/ck/")), Error);
}

TEST(DistributedCheckpoint, OfABigEndianMachineIsRefused) {
  const Folder folder;
  save(folder.file("ck/"));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.file("ck"))) {
    if (entry.path().extension() != ".distcp") continue;
    std::string bytes = readFile(entry.path().string());
    const std::string_view little = "little";
    for (std::size_t at = bytes.find(little); at != std::string::npos; at = bytes.find(little, at + 1))
      bytes.replace(at, little.size(), "bigbig");
    writeFile(entry.path().string(), bytes);
  }
  try {
    static_cast<void>(TensorFile(folder.file("ck")).find("a.weight"));
    FAIL() << "read as if it were little-endian";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("holds big-endian tensors"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pw::test
