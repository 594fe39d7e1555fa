// Microbatches give what plain PyTorch gives on the whole batch (tests/support/python/full_batch_reference.py): where the batch is not
// dimension 0, and where the model's own loss is a mean over targets, weighed by --loss-count. And what a trial of microbatches says of
// these models.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/checkpoints/outputs.h"
#include "backends/checkpoints/tensor_file.h"
#include "backends/messages/in_memory_communicator.h"
#include "engine/evaluation.h"
#include "engine/run/trial.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "simulator/model/batch.h"
#include "simulator/model/loss_count.h"
#include "tests/support/training.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr int kBatch = 8, kSteps = 3;
constexpr double kRate = 0.1;

/// The archives and what PyTorch made of them, for all tests.
class FullBatch : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(fs::exists(PW_PYTHON)) << "run ./dev setup";
    root_ = fs::temp_directory_path() / ("pipewright-full-batch-" + std::to_string(getpid()));
    const std::string command = "OMP_NUM_THREADS=1 " + std::string(PW_PYTHON) + " -W ignore " + PW_SOURCE_DIR +
                                "/tests/support/python/full_batch_reference.py " + root_.string() + " " + std::to_string(kBatch) + " " +
                                std::to_string(kSteps) + " " + std::to_string(kRate);
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  static fs::path folder(const std::string& name) { return root_ / name; }
  static ModelGraph graphOf(const std::string& name) { return readPt2((folder(name) / "model.pt2").string()); }
  static std::vector<double> losses(const std::string& name) {
    std::ifstream file(folder(name) / "result.json");
    return nlohmann::json::parse(file).at("losses");
  }
  static test::Tensors tensors(const std::string& name, const std::string& prefix) {
    test::Tensors found;
    std::ifstream index(folder(name) / "index.json");
    for (const auto& entry : nlohmann::json::parse(index)) {
      const std::string key = entry.at("name").get<std::string>();
      if (!key.starts_with(prefix)) continue;
      std::ifstream file(folder(name) / entry.at("file").get<std::string>(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      std::vector<float>& numbers = found[key.substr(prefix.size())];
      numbers.resize(bytes.size() / sizeof(float));
      std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
    }
    return found;
  }

  static test::Trained train(const std::string& name, int ranks, int microbatches, const std::string& loss, const std::string& lossCount) {
    const ModelGraph graph = graphOf(name);
    test::ThreadOptions options;
    options.stage.optimizer.learningRate = kRate;
    options.stage.data.file = (folder(name) / "data.pt").string();
    options.stage.data.lossCount = lossCount;
    return test::trainInThreads(graph, test::planFor(graph, "1f1b", ranks, microbatches, kBatch, loss), kSteps, options);
  }

  static void expectWholeBatch(const std::string& name, const std::string& loss, const std::string& lossCount) {
    for (const int ranks : {1, 2}) {
      for (const int microbatches : {2, 4}) {
        SCOPED_TRACE(name + " on " + std::to_string(ranks) + " ranks, microbatches: " + std::to_string(microbatches));
        const test::Trained trained = train(name, ranks, microbatches, loss, lossCount);
        const auto expected = losses(name);
        ASSERT_EQ(trained.losses.size(), expected.size());
        for (std::size_t s = 0; s < expected.size(); ++s) EXPECT_NEAR(trained.losses[s], expected[s], 1e-6 * std::abs(expected[s]) + 1e-6);
        EXPECT_EQ(test::firstDifference(trained.gradients, tensors(name, "grad:"), 1e-5, 1e-6), "");
        EXPECT_EQ(test::firstDifference(trained.parameters, tensors(name, "param:"), 1e-6, 1e-6), "");
      }
    }
  }

  static inline fs::path root_;
};

TEST_F(FullBatch, EqualsMicrobatchesOfASequenceFirstModel) {
  const ModelGraph graph = graphOf("sequence_first");
  EXPECT_EQ(batchAxis(graph, graph.inputs[0]), (BatchAxis{1, 1}));
  EXPECT_EQ(batchAxis(graph, graph.inputs[1]), (BatchAxis{0, 1}));
  expectWholeBatch("sequence_first", "cross_entropy", "");
}

TEST_F(FullBatch, EqualsMicrobatchesWhereASequenceFirstOutputIsFlattened) {
  const ModelGraph graph = graphOf("flattened");
  EXPECT_EQ(batchAxis(graph, graph.outputs[0]), (BatchAxis{0, 1, 5})) << "rows t * B + s";
  expectWholeBatch("flattened", "cross_entropy", "");
}

TEST_F(FullBatch, EqualsTheOutputsOfAnEvaluationInMicrobatches) {
  for (const std::string name : {"sequence_first", "flattened"}) {
    const ModelGraph graph = graphOf(name);
    const Plan plan = test::planFor(graph, "1f1b", 1, 4, kBatch, "cross_entropy");
    TrainOptions options;
    options.stage.data.file = (folder(name) / "data.pt").string();
    const auto alone = inMemoryCommunicators(1, std::chrono::seconds(60));
    torchBackend().prepareProcess(1);
    const Evaluation evaluation = EvaluationRun(graph, plan, options, *alone.front(), torchBackend()).step(options.firstStep, true);
    const std::string file = (folder(name) / "outputs.pt").string();
    mergeAndSave(file, evaluation.outputs, microbatchSizes(kBatch, 4));
    const TensorFile saved(file);
    const MappedTensor output = saved.find(graph.outputNames.front()).value();
    const std::vector<float> expected = tensors(name, "out:").at("result");
    std::vector<float> actual(expected.size());
    std::memcpy(actual.data(), output.data, actual.size() * sizeof(float));
    EXPECT_EQ(test::firstDifference({{name, actual}}, {{name, expected}}, 1e-5, 1e-6), "");
  }
}

TEST_F(FullBatch, EqualsMicrobatchesThatAreWeighedByTheirTargets) {
  expectWholeBatch("token_mean", "output:loss", "auto");
  expectWholeBatch("masked_mean", "output:loss", "auto");
  expectWholeBatch("masked_mean", "output:loss", "mask:ignore=0");
}

TEST_F(FullBatch, EqualsMicrobatchesWhoseDivisorIsClampedOrAddedTo) {
  for (const char* name : {"masked_least", "masked_many", "masked_plus", "masked_quiet", "masked_samples", "masked_region"})
    expectWholeBatch(name, "output:loss", "auto");
}

/// The mask of the last two samples is all zeros: in four microbatches the last is 0 / 0.
TEST_F(FullBatch, EqualsMicrobatchesOfWhichOneIsMaskedOut) {
  expectWholeBatch("masked_all", "output:loss", "auto");
  expectWholeBatch("masked_all", "output:loss", "mask:ignore=0");
}

TEST_F(FullBatch, DiffersFromMicrobatchesThatAreNot) {
  // The last two samples have no targets: in four microbatches the mean of the last is over nothing.
  EXPECT_TRUE(std::isnan(train("token_mean", 1, 4, "output:loss", "").losses.front()));
  const double expected = losses("masked_mean").front();
  EXPECT_GT(std::abs(train("masked_mean", 1, 4, "output:loss", "").losses.front() - expected), 1e-3 * expected);
}

TEST_F(FullBatch, CountsComeFromInputsAlone) {
  const ModelGraph graph = graphOf("token_mean");
  const LossCount count = parseLossCount(graph, parseLoss("output:loss"), "auto");
  EXPECT_EQ(count.ignored, -100);
  EXPECT_FALSE(count.nodes.empty()) << "the labels are shifted first";
  EXPECT_EQ(parseLossCount(graph, parseLoss("output:loss"), "labels").value, graph.inputs[1]);
  EXPECT_THROW(static_cast<void>(parseLossCount(graph, parseLoss("output:loss"), "logits")), UsageError) << "needs parameters";
  EXPECT_THROW(static_cast<void>(parseLossCount(graph, parseLoss("output:loss"), "words")), UsageError);
  EXPECT_THROW(static_cast<void>(parseLossCount(graph, parseLoss("cross_entropy"), "auto")), UsageError);
}

TEST_F(FullBatch, IsTriedOnARandomBatch) {
  const auto tried = [](const std::string& name, const std::string& loss, const std::string& lossCount) {
    torchBackend().prepareProcess(1);
    TrialOptions options;
    options.loss = parseLoss(loss);
    options.lossCount = lossCount;
    return tryMicrobatches(graphOf(name), options, torchBackend());
  };
  const Trial equal = tried("sequence_first", "cross_entropy", "");
  EXPECT_EQ(equal.batch, 4);
  ASSERT_EQ(equal.steps.size(), 3U);
  for (const TrialStep& step : equal.steps) EXPECT_EQ(step.failure, "");
  EXPECT_TRUE(equal.sameResults());
  EXPECT_LT(equal.steps.back().gradients.relative, 1e-5);
  const Trial biased = tried("token_mean", "output:loss", "");
  EXPECT_TRUE(biased.ignoredTargets);
  EXPECT_FALSE(biased.sameResults());
  EXPECT_FALSE(biased.steps.back().lossDifference.equal);
  EXPECT_TRUE(tried("token_mean", "output:loss", "auto").sameResults());
}

TEST(Trial, FindsWhatBatchNormChangesAndSwitchesDropoutOff) {
  torchBackend().prepareProcess(1);
  TrialOptions options;
  options.loss = Loss{};
  const Trial norm = tryMicrobatches(test::sample("resnet18_narrow"), options, torchBackend());
  EXPECT_FALSE(norm.sameResults());
  EXPECT_FALSE(norm.sameBuffers());
  EXPECT_EQ(norm.steps.back().failure.empty(), !norm.steps.back().gradients.name.empty());
  const Trial dropout = tryMicrobatches(test::sample("hf_gpt2"), options, torchBackend());
  EXPECT_FALSE(dropout.switchedOff.empty());
  EXPECT_TRUE(dropout.random.empty());
  EXPECT_TRUE(dropout.sameResults()) << dropout.steps.back().gradients.name << " differs by " << dropout.steps.back().gradients.relative;
}

}  // namespace
}  // namespace pw
