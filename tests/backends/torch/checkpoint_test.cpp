// Checkpoints and PyTorch: what torch.save wrote is read, and torch.load reads what is written (tests/support/python/state_reference.py).
#include "backends/torch/stage/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/graph_builder.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

class TorchCheckpoint : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fs::create_directories(folder());
    ASSERT_TRUE(fs::exists(PW_PYTHON)) << "run ./dev setup";
    ASSERT_EQ(python("save"), 0);
  }
  static void TearDownTestSuite() { fs::remove_all(folder()); }
  static int python(const std::string& verb) {
    const std::string command = std::string(PW_PYTHON) + " -W ignore " + PW_SOURCE_DIR + "/tests/support/python/state_reference.py " +
                                verb + " " + folder().string();
    return std::system(command.c_str());
  }
  static fs::path folder() { return fs::path(testing::TempDir()) / ("pw_checkpoints_" + std::to_string(getpid())); }
  static std::string path(const std::string& name) { return (folder() / (name + ".pt")).string(); }
  static at::Tensor counted(at::IntArrayRef shape, at::ScalarType type) {
    return at::arange(c10::multiply_integers(shape), type).reshape(shape);
  }
};

TEST_F(TorchCheckpoint, ReadsStateDictsInAllForms) {
  for (const char* name : {"state_dict", "parameters", "protocol4"}) {
    SCOPED_TRACE(name);
    const CheckpointFile file(path(name));
    EXPECT_TRUE(at::equal(file.read("embed.weight"), counted({5, 3}, at::kFloat)));
    EXPECT_TRUE(at::equal(file.read("small"), counted({2, 2}, at::kBFloat16)));
    EXPECT_TRUE(file.numbers().empty());
    if (std::string(name) == "parameters") continue;
    EXPECT_EQ(file.read("head.weight").data_ptr(), file.read("embed.weight").data_ptr());
    EXPECT_EQ(file.read("norm.num_batches_tracked").item<std::int64_t>(), 0);
    EXPECT_EQ(file.names().size(), 8U);  // 2 names of one weight, small, norm's 5
  }
}

TEST_F(TorchCheckpoint, ReadsViewsAndSkipsWhatIsNoTensor) {
  const CheckpointFile views(path("views"));
  const at::Tensor table = counted({4, 6}, at::kFloat);
  EXPECT_TRUE(at::equal(views.read("turned"), table.t()));
  EXPECT_TRUE(at::equal(views.read("column"), table.select(1, 2)));
  EXPECT_TRUE(at::equal(views.read("part"), table.narrow(0, 1, 2).narrow(1, 2, 2)));
  EXPECT_EQ(views.read("empty").sizes(), (at::IntArrayRef{0, 3}));
  EXPECT_EQ(views.read("number").item<std::int64_t>(), 7);
  EXPECT_FALSE(views.read("other").defined());
  const CheckpointFile mixed(path("mixed"));
  EXPECT_EQ(mixed.names(), std::vector<std::string>{"w"});
  EXPECT_TRUE(at::equal(mixed.read("w"), at::arange(3)));
}

TEST_F(TorchCheckpoint, TensorsOutliveTheFileObject) {
  at::Tensor weight;
  {
    const CheckpointFile file(path("state_dict"));
    weight = file.read("embed.weight");
  }
  EXPECT_TRUE(at::equal(weight, counted({5, 3}, at::kFloat)));
}

TEST_F(TorchCheckpoint, SaysWhatOtherFilesAre) {
  const auto open = [&](const std::string& name) { return test::usageErrorOf([&] { CheckpointFile file(path(name)); }); };
  EXPECT_NE(open("nested").find("has no tensors at the top level of its dict"), std::string::npos) << open("nested");
  for (const char* name : {"list", "tensor", "class"})
    EXPECT_NE(open(name).find("is not a dict of tensors"), std::string::npos) << open(name);
  EXPECT_NE(open("legacy").find("is not a file of torch.save: it is not a zip file"), std::string::npos) << open("legacy");
  const CheckpointFile file(path("unsigned"));
  EXPECT_TRUE(at::equal(file.read("w"), at::arange(3)));
  EXPECT_NE(test::usageErrorOf([&] { static_cast<void>(file.read("u")); }).find("Tensor u"), std::string::npos);
}

TEST_F(TorchCheckpoint, PythonLoadsWhatIsWritten) {
  CheckpointWriter writer(path("written"));
  const auto add = [&](const std::string& name, at::IntArrayRef shape, at::ScalarType type, DType dtype) {
    const at::Tensor tensor = counted(shape, type);
    writer.add(name, dtype, shape.vec(), static_cast<const std::byte*>(tensor.const_data_ptr()));
  };
  add("embed.weight", {5, 3}, at::kFloat, DType::Float32);
  add("exp_avg/embed.weight", {15}, at::kFloat, DType::Float32);
  for (const char* name : {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}) add(name, {3}, at::kFloat, DType::Float32);
  add("norm.num_batches_tracked", {}, at::kLong, DType::Int64);
  add("small", {2, 2}, at::kBFloat16, DType::BFloat16);
  writer.alias("head.weight", "embed.weight");
  writer.finish({{"step", 20}});
  EXPECT_EQ(python("check"), 0);
}

}  // namespace
}  // namespace pw
