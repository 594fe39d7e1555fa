// Dropout-free samples give Python's numbers: same data, microbatches, loss and SGD in plain PyTorch
// (tests/support/python/python_reference.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/training.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr int kMicrobatches = 4, kSteps = 3;
constexpr double kRate = 0.1;

struct Case {
  std::string model, loss;
};

test::Tensors readFolder(const fs::path& folder, const std::string& prefix) {
  test::Tensors tensors;
  std::ifstream index(folder / "index.json");
  for (const auto& entry : nlohmann::json::parse(index)) {
    const std::string name = entry.at("name").get<std::string>();
    if (name.rfind(prefix, 0) != 0) continue;
    std::ifstream file(folder / entry.at("file").get<std::string>(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::vector<float>& numbers = tensors[name.substr(prefix.size())];
    numbers.resize(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  }
  return tensors;
}

/// Trains every case in plain PyTorch and here, on one rank by 1f1b and on two by these schedules.
void expectEqual(const std::vector<Case>& cases, const std::vector<std::string>& schedules, const std::string& library = "") {
  ASSERT_TRUE(fs::exists(PW_PYTHON)) << "run ./dev setup";
  const fs::path out = fs::temp_directory_path() / ("pipewright-python-" + std::to_string(getpid()));
  std::string command = "OMP_NUM_THREADS=1 " + std::string(PW_PYTHON) + " -W ignore " + PW_SOURCE_DIR +
                        "/tests/support/python/python_reference.py " + out.string() + " " + std::to_string(kMicrobatches) + " " +
                        std::to_string(kSteps) + " " + std::to_string(kRate) + " " + library;
  for (const Case& c : cases) command += " " + test::samplePath(c.model) + "=" + c.loss;
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const Case& c : cases) {
    const fs::path folder = out / c.model;
    std::ifstream resultFile(folder / "result.json");
    const std::vector<double> losses = nlohmann::json::parse(resultFile).at("losses");
    const ModelGraph graph = test::sample(c.model);
    std::vector<std::pair<int, std::string>> runs{{1, "1f1b"}};
    for (const std::string& schedule : schedules) runs.emplace_back(2, schedule);
    for (const auto& [ranks, schedule] : runs) {
      SCOPED_TRACE(c.model + " by " + schedule + " on " + std::to_string(ranks) + " ranks");
      const Plan plan = test::planFor(graph, schedule, ranks, kMicrobatches, 2 * kMicrobatches, c.loss);
      test::ThreadOptions options;
      options.stage.optimizer.learningRate = kRate;
      options.stage.data.file = (folder / "data.pt").string();
      const test::Trained trained = test::trainInThreads(graph, plan, kSteps, options);
      ASSERT_EQ(trained.losses.size(), losses.size());
      EXPECT_LE(std::abs(trained.losses[0] - losses[0]), 1e-5 + 1.3e-6 * std::abs(losses[0]));
      // Python lists every name of a tied parameter, and buffers are not compared.
      test::Tensors gradients = readFolder(folder, "grad:"), parameters = readFolder(folder, "param:");
      std::erase_if(gradients, [&](const auto& g) { return !trained.gradients.contains(g.first); });
      std::erase_if(parameters, [&](const auto& p) { return !trained.parameters.contains(p.first); });
      EXPECT_FALSE(parameters.empty());
      EXPECT_EQ(test::firstDifference(trained.gradients, gradients, 1e-5, 4e-5), "");
      EXPECT_EQ(test::firstDifference(trained.parameters, parameters, 1e-5, 4e-5), "");
    }
  }
  fs::remove_all(out);
}

TEST(Python, TrainingOnOneAndTwoRanksEqualsPlainPyTorch) {
  expectEqual({{"gpt_small", "cross_entropy"},
               {"gpt_split", "cross_entropy"},
               {"hf_llama", "output:loss"},
               {"vit_small", "cross_entropy"},
               {"resnet18_narrow", "cross_entropy"},
               {"example_code", "mse"}},
              {"1f1b"});
}

TEST(Python, SizesThatDependOnDataBranchesLoopsAndNestedInputsEqualPlainPyTorch) {
  expectEqual({{"experts", "mse"}, {"branches", "mse"}, {"nested", "mse"}}, {"1f1b", "zbv"});
}

TEST(Python, ComplexParametersAndNumbersGiveWhatPlainPyTorchGives) {
  expectEqual({{"complex_weights", "mse"}, {"complex_numbers", "mse"}}, {"1f1b", "zbv"});
}

TEST(Python, CustomOperatorsOfALoadedLibraryEqualPlainPyTorch) {
  loadLibraries({PW_TEST_OPS});
  expectEqual({{"custom", "mse"}}, {"1f1b", "zbv"}, PW_TEST_OPS);
}

}  // namespace
}  // namespace pw
