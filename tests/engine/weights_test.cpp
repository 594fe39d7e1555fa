// Weight gradients of every operator with a rule of its own, and of uses that no rule fits: equal to plain PyTorch's, whole (B) and in two
// parts (I and W). The models are in tests/support/python/weight_models.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/split_backward.h"
#include "tests/support/training.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr int kMicrobatches = 4, kSamples = 2;
const std::vector<std::string> kModels{"weights_products", "weights_convolutions", "weights_embeddings", "weights_norms"};

/// Gradients that plain PyTorch computed, and the data it used.
class WeightsByPython : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(fs::exists(PW_PYTHON)) << "run ./dev setup";
    folder() = fs::temp_directory_path() / ("pipewright-weights-" + std::to_string(getpid()));
    std::string command = "OMP_NUM_THREADS=1 " + std::string(PW_PYTHON) + " -W ignore " + PW_SOURCE_DIR +
                          "/tests/support/python/python_reference.py " + folder().string() + " " + std::to_string(kMicrobatches) + " 1 0.1";
    for (const std::string& model : kModels) command += " " + test::samplePath(model) + "=mse";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static void TearDownTestSuite() { fs::remove_all(folder()); }

  static fs::path& folder() {
    static fs::path path;
    return path;
  }

  static test::Tensors gradientsOf(const std::string& model) {
    test::Tensors tensors;
    std::ifstream index(folder() / model / "index.json");
    for (const auto& entry : nlohmann::json::parse(index)) {
      const std::string name = entry.at("name").get<std::string>();
      if (!name.starts_with("grad:")) continue;
      std::ifstream file(folder() / model / entry.at("file").get<std::string>(), std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      tensors[name.substr(5)] = test::floatsOf({reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
    }
    return tensors;
  }
};

TEST_F(WeightsByPython, GradientsAreThoseOfPlainPyTorch) {
  for (const std::string& model : kModels) {
    const ModelGraph graph = test::sample(model);
    const test::Tensors expected = gradientsOf(model);
    test::ThreadOptions options;
    options.stage.data.file = (folder() / model / "data.pt").string();
    for (const auto& [schedule, ranks] : {std::pair<const char*, int>{"gpipe", 1}, {"zb-h1", 1}, {"zb-h1", 2}, {"1f1b", 2}}) {
      for (const bool recomputes : {false, true}) {
        SCOPED_TRACE(model + ", " + schedule + " on " + std::to_string(ranks) + (recomputes ? ", recomputed" : ""));
        Plan plan = test::planFor(graph, schedule, ranks, kMicrobatches, kSamples * kMicrobatches, "mse");
        for (StageSpec& stage : plan.partition.stages) {
          if (recomputes) stage.checkpoints = {{stage.begin, stage.end}};
        }
        const test::Trained trained = test::trainInThreads(graph, plan, 1, options);
        test::Tensors wanted, actual = trained.gradients;
        for (const auto& [name, gradient] : actual) {
          // Python has none where nothing reaches the parameter; ours are zeros. It lists tied ones under every name.
          const auto found = expected.find(name);
          wanted[name] = found == expected.end() ? std::vector<float>(gradient.size()) : found->second;
        }
        EXPECT_GE(actual.size(), model == "weights_embeddings" ? 7U : 15U);
        EXPECT_EQ(test::firstDifference(actual, wanted, 1e-5, 4e-5), "");
      }
    }
  }
}

TEST(SplitBackward, GivesTheBitsOfTheWholeBackward) {
  for (const std::string& model : kModels) {
    const ModelGraph graph = test::sample(model);
    Plan plan = test::planFor(graph, "gpipe", 1, kMicrobatches, kSamples * kMicrobatches, "mse");
    const test::Trained whole = test::trainInThreads(graph, plan, 2, {});
    plan.schedule = lower(test::splitBackward(generate("gpipe", {1, 1, kMicrobatches})));
    const test::Trained parts = test::trainInThreads(graph, plan, 2, {});
    EXPECT_EQ(whole.losses, parts.losses) << model;
    EXPECT_EQ(test::firstDifference(parts.gradients, whole.gradients, 0, 0), "") << model;
    EXPECT_EQ(test::firstDifference(parts.parameters, whole.parameters, 0, 0), "") << model;
  }
}

/// Gradients of a stage after its backwardInput, and after its backwardWeight.
std::pair<test::Tensors, test::Tensors> inTwoParts(const std::string& model, const std::string& loss, DType precision = DType::Unknown) {
  const ModelGraph graph = test::sample(model);
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(1);
  const Plan plan = test::planFor(graph, "zb-h1", 1, 1, exportedBatch(graph), loss);
  StageOptions options;
  options.precision = precision;
  const auto stage = torch.makeTracedStage(graph, plan, Stage(0), options);
  const auto gradients = [&] {
    test::Tensors tensors;
    for (const ParameterView& p : stage->parameters()) tensors[p.name] = test::floatsOf(p.gradient);
    return tensors;
  };
  stage->beginStep(0, StepMode::Train);
  stage->forward(Microbatch(0));
  stage->backwardInput(Microbatch(0));
  const test::Tensors early = gradients();
  stage->backwardWeight(Microbatch(0));
  return {early, gradients()};
}

/// Parameters whose gradient is all zeros early, and is not late.
int waitingOf(const std::pair<test::Tensors, test::Tensors>& parts) {
  const auto isZero = [](const std::vector<float>& numbers) { return std::ranges::all_of(numbers, [](float x) { return x == 0; }); };
  int waiting = 0;
  for (const auto& [name, late] : parts.second) waiting += isZero(parts.first.at(name)) && !isZero(late) ? 1 : 0;
  return waiting;
}

TEST(SplitBackward, LeavesTheWeightGradientsOfAGptForW) {
  const auto parts = inTwoParts("gpt_small", "cross_entropy");
  // Every parameter of a GPT is of an embedding, a linear layer or a layer norm.
  EXPECT_EQ(waitingOf(parts), static_cast<int>(parts.second.size()));
  EXPECT_GE(parts.second.size(), 20U);
}

TEST(SplitBackward, LeavesTheWeightGradientsOfAGptForWInBfloat16) {
  const auto parts = inTwoParts("gpt_small", "cross_entropy", DType::BFloat16);
  EXPECT_EQ(waitingOf(parts), static_cast<int>(parts.second.size()));
}

TEST(SplitBackward, GivesTheBitsOfTheWholeBackwardInBfloat16) {
  for (const char* const model : {"gpt_small", "weights_products", "weights_convolutions"}) {
    const ModelGraph graph = test::sample(model);
    const std::string loss = std::string(model) == "gpt_small" ? "cross_entropy" : "mse";
    test::ThreadOptions options;
    options.stage.precision = DType::BFloat16;
    Plan plan = test::planFor(graph, "gpipe", 1, kMicrobatches, kSamples * kMicrobatches, loss);
    const test::Trained whole = test::trainInThreads(graph, plan, 3, options);
    plan.schedule = lower(test::splitBackward(generate("gpipe", {1, 1, kMicrobatches})));
    const test::Trained parts = test::trainInThreads(graph, plan, 3, options);
    EXPECT_EQ(whole.losses, parts.losses) << model << ": the weights in bfloat16 follow the optimizer";
    EXPECT_EQ(test::firstDifference(parts.parameters, whole.parameters, 0, 0), "") << model;
  }
}

TEST(SplitBackward, LeavesTheWeightGradientsOfConvolutionsAndNormsForW) {
  const auto parts = inTwoParts("resnet18_narrow", "cross_entropy");
  EXPECT_EQ(waitingOf(parts), static_cast<int>(parts.second.size()));
  const auto norms = inTwoParts("weights_norms", "mse");
  // Instance norm has no rule: its two parameters come early.
  EXPECT_EQ(waitingOf(norms), static_cast<int>(norms.second.size()) - 2);
}

TEST(SplitBackward, LeavesProductsForWWhereverTheWeightStands) {
  const auto parts = inTwoParts("weights_products", "mse");
  const auto isZero = [](const std::vector<float>& numbers) { return std::ranges::all_of(numbers, [](float x) { return x == 0; }); };
  for (const char* name : {"first.weight", "first.bias", "mm", "addmm", "addmm_bias", "bmm", "left_bmm", "left_mm", "matmul", "factor",
                           "left_factor", "bias", "left_bias", "turned", "trained_bias", "trained_weight", "twice.weight"}) {
    ASSERT_TRUE(parts.first.contains(name)) << name;
    EXPECT_TRUE(isZero(parts.first.at(name))) << name;
    EXPECT_FALSE(isZero(parts.second.at(name))) << name;
  }
  EXPECT_TRUE(isZero(parts.second.at("unused"))) << "the loss does not depend on it";
}

}  // namespace
}  // namespace pw
