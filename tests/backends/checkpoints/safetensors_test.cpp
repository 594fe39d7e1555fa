// Files of the safetensors format: what is written is read, and what is damaged is refused in one sentence.
#include "backends/checkpoints/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "backends/checkpoints/tensor_file.h"
#include "backends/checkpoints/writer.h"
#include "schedules/error.h"
#include "tests/support/folder.h"

namespace pw::test {
namespace {

const std::byte* bytesOf(const auto& numbers) { return reinterpret_cast<const std::byte*>(numbers.data()); }

/// Header and data as the format's description has them: eight bytes of length, JSON, bytes.
std::string fileOf(const std::string& header, const std::string& data = "") {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, sizeof(length));
  return text + header + data;
}

std::string refusalOf(const std::string& path) {
  try {
    static_cast<void>(readSafetensors(path));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, HoldsTheModelAndKeepsTheOptimizersStateBesideIt) {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  const std::vector<float> weight{1, 2, 3, 4, 5, 6}, moment{7, 8, 9, 10, 11, 12};
  const std::vector<std::int64_t> count{42};
  const std::vector<std::uint8_t> flag{1};
  CheckpointWriter writer(path, 10 * SafetensorsWriter::headerBytesOf("head.weight"));
  writer.add("flag", DType::Bool, {}, bytesOf(flag));  // what follows is not aligned
  writer.add("weight", DType::Float32, {2, 3}, bytesOf(weight));
  writer.add("count", DType::Int64, {}, bytesOf(count));
  writer.add("exp_avg/weight", DType::Float32, {2, 3}, bytesOf(moment));
  writer.alias("head.weight", "weight");
  EXPECT_FALSE(std::filesystem::exists(path)) << "whole or not at all";
  writer.finish({{"step", 3}, {"loss_scale", 0.1}});
  const SafetensorsHeader header = readSafetensors(path);
  ASSERT_EQ(header.tensors.size(), 4U) << "nothing but the model's";
  std::int64_t end = header.tensors.front().offset;
  for (const SafeTensor& tensor : header.tensors) {
    EXPECT_EQ(tensor.offset, end) << "the format allows no holes";
    end += tensor.bytes;
  }
  EXPECT_EQ(static_cast<std::uintmax_t>(end), std::filesystem::file_size(path));
  EXPECT_EQ(header.metadata.at("format"), "pt");
  const TensorFile file(path);
  EXPECT_EQ(file.numbers().at("step"), 3);
  EXPECT_EQ(file.numbers().at("loss_scale"), 0.1);
  for (const auto& [name, numbers] : {std::pair{"weight", weight}, {"head.weight", weight}, {"exp_avg/weight", moment}}) {
    const MappedTensor tensor = file.find(name).value();
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(std::memcmp(tensor.data, numbers.data(), 24), 0) << name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % 4, 0U) << name;
  }
  EXPECT_EQ(std::memcmp(file.find("count").value().data, count.data(), 8), 0);
  std::optional<MappedTensor> copied = file.find("weight");
  const std::weak_ptr<std::byte[]> memory = copied->copy;
  EXPECT_FALSE(memory.expired()) << "it is not aligned";
  copied.reset();
  EXPECT_TRUE(memory.expired()) << "nobody reads it any more";
}

TEST(Safetensors, RefusesTwoFilesOfDifferentSteps) {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  const std::vector<float> weight{1};
  for (const double step : {1.0, 2.0}) {
    CheckpointWriter writer(path, 4096);
    writer.add("w", DType::Float32, {1}, bytesOf(weight));
    writer.add("exp_avg/w", DType::Float32, {1}, bytesOf(weight));
    writer.finish({{"step", step}});
    if (step == 1) std::filesystem::copy_file(optimizerFileOf(path), folder.file("old"));
  }
  std::filesystem::copy_file(folder.file("old"), optimizerFileOf(path), std::filesystem::copy_options::overwrite_existing);
  EXPECT_THROW(TensorFile{path}, UsageError);
}

/// The files as a process leaves them that is killed after each of the moves of a save; two checkpoints of the same step.
TEST(Safetensors, IsTheOldOrTheNewCheckpointWhereverASaveWasKilled) {
  namespace fs = std::filesystem;
  const Folder folder;
  const std::string path = folder.file("model.safetensors"), state = optimizerFileOf(path), next = nextOptimizerFileOf(path);
  const auto save = [&](float number, std::size_t headerBytes, int tensors) {
    const std::vector<float> one{number};
    CheckpointWriter writer(path, headerBytes);
    for (int i = 0; i < tensors; ++i) writer.add(std::string(100, 'w') + std::to_string(i), DType::Float32, {1}, bytesOf(one));
    writer.add("exp_avg/w", DType::Float32, {1}, bytesOf(one));
    writer.finish({{"step", 1}});
  };
  const auto read = [&] {
    const TensorFile file(path);
    const auto numberOf = [&](const std::string& name) { return *reinterpret_cast<const float*>(file.find(name).value().data); };
    EXPECT_EQ(numberOf(std::string(100, 'w') + "0"), numberOf("exp_avg/w")) << "weights and state of two checkpoints";
    return numberOf("exp_avg/w");
  };
  const auto put = [](const std::string& from, const std::string& to) { fs::copy_file(from, to, fs::copy_options::overwrite_existing); };
  save(1, 4096, 1);
  put(path, folder.file("model1"));
  put(state, folder.file("state1"));
  save(2, 4096, 1);
  EXPECT_EQ(read(), 2);
  EXPECT_FALSE(fs::exists(next));
  put(path, folder.file("model2"));
  put(state, next);
  put(folder.file("model1"), path);
  put(folder.file("state1"), state);
  EXPECT_EQ(read(), 1) << "killed before the model's file was moved";
  put(folder.file("model2"), path);
  EXPECT_EQ(read(), 2) << "killed after it";
  EXPECT_THROW(save(3, 0, 100), Error) << "the model's header is too long: its file is not moved, and the state's was";
  EXPECT_TRUE(fs::exists(next));
  EXPECT_EQ(read(), 2);
  save(4, 4096, 1);
  EXPECT_EQ(read(), 4);
}

TEST(Safetensors, RefusesWhatIsNoneNamingTheFile) {
  const Folder folder;
  const std::string good = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data(8, '\0');
  EXPECT_EQ(refusalOf(folder.with("good.safetensors", fileOf(good, data))), "");
  std::string long_ = fileOf(good, data);
  long_[4] = 1;  // 4 GiB
  for (const std::string& text :
       {std::string("short"), fileOf(good, data.substr(1)), fileOf("[]"), fileOf("{"), long_, fileOf(std::string(100000, '[')),
        fileOf(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", data),
        fileOf(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", data),
        fileOf(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"),
        fileOf(R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", data),
        fileOf(R"({"w":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", data), fileOf(R"({"w":[]})"), fileOf(R"({"__metadata__":3})")}) {
    const std::string sentence = refusalOf(folder.with("bad.safetensors", text));
    EXPECT_NE(sentence.find("bad.safetensors"), std::string::npos) << text.substr(0, 80);
    EXPECT_EQ(sentence.find('\n'), std::string::npos);
  }
  EXPECT_NE(refusalOf(folder.file("none.safetensors")).find("does not exist"), std::string::npos);
}

TEST(Safetensors, SurvivesAnyDamage) {
  const Folder folder;
  const std::string good = fileOf(
      R"({"__metadata__":{"pipewright.step":"3"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"n":{"dtype":"I64","shape":[],"data_offsets":[8,16]}})",
      std::string(16, '\1'));
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::string bad = good;
    for (int k = 0; k < 1 + i % 4; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    if (i % 5 == 0) bad.resize(random() % bad.size());
    const std::string path = folder.with("bad.safetensors", bad);
    try {
      const TensorFile file(path);
      for (const std::string& name : file.names()) static_cast<void>(file.find(name));
    } catch (const UsageError&) {  // as it should be
    }
  }
}

}  // namespace
}  // namespace pw::test
