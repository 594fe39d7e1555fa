// Runs whose loss or gradients are NaN, with real processes: tests/data/faulty.pt2 (tests/support/python/odd_models.py) makes some where
// the data says so.

#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "backends/checkpoints/tensor_file.h"
#include "backends/checkpoints/writer.h"
#include "backends/messages/buffer_math.h"
#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kStepSamples = 8, kSteps = 3, kSamples = kStepSamples * kSteps;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Where the data is bad: sample 5 of the second batch, which is in microbatch 2 of 4.
constexpr std::size_t kBad = kStepSamples + 5;

class FaultyRun : public testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  }

  /// Call after the data was made bad.
  Words words(const std::string& schedule, const Words& more) {
    CheckpointWriter data(folder_.file("data.pt"));
    const auto add = [&](const char* name, const std::vector<std::int64_t>& shape, const std::vector<float>& numbers) {
      data.add(name, DType::Float32, shape, reinterpret_cast<const std::byte*>(numbers.data()));
    };
    add("x", {kSamples, 8}, x_);
    add("level", {kSamples}, level_);
    add("gate", {kSamples}, gate_);
    add("target", {kSamples, 4}, std::vector<float>(kSamples * 4, 1.0F));
    data.finish({});
    const Outcome plan =
        finish({"plan", PW_SOURCE_DIR "/tests/data/faulty.pt2", "--ranks", "2", "--batch", "8", "--microbatches", "4", "--split", "middle",
                "--loss", "mse", "--schedule", schedule, "--cluster", "cpu-workstation", "--out", folder_.file("plan.json")});
    EXPECT_EQ(plan.status, 0) << plan.err;
    Words words{"run", folder_.file("plan.json"), "--data", folder_.file("data.pt"), "--lr", "0.01", "--steps", std::to_string(kSteps)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  Folder folder_;
  std::vector<float> x_ = std::vector<float>(kSamples * 8), level_ = std::vector<float>(kSamples, 3.0F),
                     gate_ = std::vector<float>(kSamples, 1.0F);
};

void expectAllParts(const std::string& text, const Words& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

/// That many steps done, and nothing in it that is not a number.
std::size_t bytesOf(const MappedTensor& tensor) {
  std::size_t bytes = widthOf(tensor.dtype);
  for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::size_t>(size);
  return bytes;
}

void expectGoodCheckpoint(const std::string& path, double steps) {
  const TensorFile file(path);
  EXPECT_EQ(file.numbers().at("step"), steps);
  for (const std::string& name : file.names()) {
    const MappedTensor tensor = file.find(name).value();
    EXPECT_TRUE(allFinite(tensor.dtype, {tensor.data, bytesOf(tensor)})) << name;
  }
}

TEST_F(FaultyRun, EndsAtTheStepAndKeepsWhatWasGoodBefore) {
  level_[kBad] = -1;
  const std::string saved = folder_.file("model.pt"), store = folder_.file("runs.db");
  const Outcome run =
      finish(words("1f1b", {"--save", saved, "--save-every", "1", "--store", store, "--log", folder_.file("loss.csv"), "--json"}));
  EXPECT_EQ(run.status, 1);
  expectAllParts(run.err, {"Step 1 is not finite", "the loss is NaN", "(action 1F2: stage 1, microbatch 2, rank 1)", "--find-nan",
                           "--skip-nonfinite"});
  const Json result = Json::parse(run.out);
  EXPECT_EQ(result.at("losses").size(), 1U) << "of the step before";
  EXPECT_EQ(result.at("checkpoint"), saved);
  expectGoodCheckpoint(saved, 1);
  const Json stored = Json::parse(finish({"runs", "--store", store, "--json"}).out).at("runs").at(0);
  EXPECT_EQ(stored.at("step_count"), 1);
  expectAllParts(stored.at("failure"), {"the loss is NaN"});
  const std::string log = contentOf(folder_.file("loss.csv"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3) << "header, the good step, the bad one: " << log;
}

TEST_F(FaultyRun, NamesOperatorAndSourceLineOfTheForward) {
  level_[kBad] = -1;
  const Outcome run = finish(words("zb-h1", {"--find-nan"}));
  EXPECT_EQ(run.status, 1);
  expectAllParts(run.err, {"Step 1", "aten.log.default", "odd_models.py:", "made NaN", "action 1F2"});
}

TEST_F(FaultyRun, NamesParameterOrOperatorWhereTheBackwardAloneFails) {
  gate_[kBad] = 0;  // the root of 0 is 0, and its slope infinite
  const Outcome plain = finish(words("1f1b", {})), found = finish(words("1f1b", {"--find-nan"}));
  EXPECT_EQ(plain.status, 1);
  expectAllParts(plain.err, {"Step 1 is not finite", "the gradient of parameter enter.", "(action 0B2: stage 0, microbatch 2, rank 0)"});
  EXPECT_EQ(found.status, 1);
  expectAllParts(found.err, {"the backward of operator torch.ops.aten.sqrt.default", "odd_models.py:", "action 0B2"});
}

TEST_F(FaultyRun, SkipsTheUpdateOnAllRanksAndForgetsItsBuffersWhereThatIsWanted) {
  x_[kBad * 8] = kNan;  // batch norm's running mean takes it
  const std::string saved = folder_.file("model.pt");
  const Outcome run = finish(words("1f1b", {"--skip-nonfinite", "--save", saved, "--optimizer", "adamw", "--json"}));
  EXPECT_EQ(run.status, 0) << run.err;
  expectAllParts(run.err, {"rank 0 skips the update of step 1, on all ranks", "microbatch 2"});
  const Json result = Json::parse(run.out);
  EXPECT_EQ(result.at("skipped_steps"), 1);
  ASSERT_EQ(result.at("losses").size(), kSteps);
  EXPECT_TRUE(result["losses"][0].is_number() && result["losses"][1].is_null() && result["losses"][2].is_number());
  expectGoodCheckpoint(saved, kSteps);
  std::int64_t counted = 0;
  std::memcpy(&counted, TensorFile(saved).find("norm.num_batches_tracked").value().data, sizeof(counted));
  EXPECT_EQ(counted, 8) << "four microbatches of each of the two steps that count";
}

TEST_F(FaultyRun, CountsOnlyTheUpdatesInAdamsBiasCorrection) {
  // A training whose first step is skipped goes on as one that begins with the second: Adam's first update is a whole learning rate.
  const Words more{"--skip-nonfinite", "--optimizer", "adamw", "--save"};
  const auto train = [&](const std::string& saved, const Words& others) {
    Words all = words("1f1b", more);
    all.push_back(folder_.file(saved));
    all.erase(std::ranges::find(all, "--steps"), std::ranges::find(all, "--steps") + 2);
    all.insert(all.end(), others.begin(), others.end());
    const Outcome run = finish(all);
    EXPECT_EQ(run.status, 0) << run.err;
  };
  const auto good = x_;
  for (std::size_t i = 0; i < 8 * kStepSamples; i += 8) x_[i] = kNan;
  train("skipped.pt", {"--steps", "2"});
  train("resumed.pt", {"--resume", folder_.file("skipped.pt"), "--steps", "1"});
  std::copy(good.begin() + 8 * kStepSamples, good.end(), x_.begin());
  train("whole.pt", {"--steps", "1"});
  train("both.pt", {"--steps", "2"});
  for (const auto& [one, other] : {std::pair("skipped.pt", "whole.pt"), std::pair("resumed.pt", "both.pt")}) {
    const TensorFile a(folder_.file(one)), b(folder_.file(other));
    ASSERT_EQ(a.names(), b.names());
    for (const std::string& name : a.names()) {
      const auto left = a.find(name).value(), right = b.find(name).value();
      ASSERT_EQ(bytesOf(left), bytesOf(right)) << name;
      EXPECT_EQ(std::memcmp(left.data, right.data, bytesOf(left)), 0) << name << " of " << one;
    }
    EXPECT_EQ(a.numbers().at("updates"), b.numbers().at("updates"));
    EXPECT_EQ(a.numbers().at("step"), b.numbers().at("step") + 1);
  }
}

TEST_F(FaultyRun, HasNothingToVerifyWhereBothSidesAreNan) {
  level_[1] = -1;
  const Outcome run = finish(words("1f1b", {"--verify"}));
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out.find("bit for bit"), std::string::npos) << run.out;
  expectAllParts(run.out, {"NOTHING TO COMPARE", "on one rank neither"});
  expectAllParts(run.err, {"Step 0 is not finite"});
}

}  // namespace
}  // namespace pw::test
