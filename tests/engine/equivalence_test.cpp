// Pipelined training equals training on one rank with the same microbatches in order: loss (rtol 1.3e-6, atol 1e-5), every gradient
// (rtol 1e-5, atol 4e-5), and parameters after 3 SGD steps, for all samples, ranks, microbatches and schedules. torch.testing's
// tolerances for float32; sums over microbatches are in the same order on both sides, so most differences are exactly 0.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/training.h"

namespace pw {
namespace {

constexpr int kSteps = 3;

test::ThreadOptions trainedWith(std::uint64_t seed, double rate) {
  test::ThreadOptions options;
  options.stage.seed = seed;
  options.stage.optimizer.learningRate = rate;
  return options;
}

struct Case {
  std::string model, loss;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.model; }
};

class Equivalence : public testing::TestWithParam<Case> {};

TEST_P(Equivalence, PipelinedTrainingEqualsOneRank) {
  const ModelGraph graph = test::sample(GetParam().model);
  const test::ThreadOptions options = trainedWith(7, 0.05);
  for (const int microbatches : {1, 2, 5, 8}) {
    const Plan alone = test::planFor(graph, "1f1b", 1, microbatches, 2 * microbatches, GetParam().loss);
    const test::Trained expected = test::trainInThreads(graph, alone, kSteps, options);
    ASSERT_EQ(expected.losses.size(), static_cast<std::size_t>(kSteps));
    ASSERT_FALSE(expected.gradients.empty());
    EXPECT_NE(expected.losses.front(), expected.losses.back()) << "training does not move";
    for (const int ranks : {2, 3, 4}) {
      for (const char* schedule : {"gpipe", "1f1b"}) {
        SCOPED_TRACE(GetParam().model + ", " + schedule + ", R = " + std::to_string(ranks) + ", M = " + std::to_string(microbatches));
        const Plan plan = test::planFor(graph, schedule, ranks, microbatches, 2 * microbatches, GetParam().loss);
        int unequalCopies = 0;
        const test::Trained actual = test::trainInThreads(graph, plan, kSteps, options, &unequalCopies);
        ASSERT_EQ(actual.losses.size(), expected.losses.size());
        EXPECT_LE(std::abs(actual.losses[0] - expected.losses[0]), 1e-5 + 1.3e-6 * std::abs(expected.losses[0]));
        EXPECT_EQ(test::firstDifference(actual.gradients, expected.gradients, 1e-5, 4e-5), "");
        EXPECT_EQ(test::firstDifference(actual.parameters, expected.parameters, 1e-5, 4e-5), "");
        EXPECT_EQ(unequalCopies, 0) << "copies of a shared parameter differ";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Samples, Equivalence,
                         testing::Values(Case{"gpt_small", "cross_entropy"}, Case{"gpt_split", "cross_entropy"},
                                         Case{"hf_gpt2", "cross_entropy"}, Case{"hf_llama", "output:loss"},
                                         Case{"hf_bert", "cross_entropy"}, Case{"resnet18_narrow", "cross_entropy"},
                                         Case{"vit_small", "cross_entropy"}, Case{"example_code", "mse"},
                                         Case{"two_part_a+two_part_b", "cross_entropy"}, Case{"recurrent", "cross_entropy"},
                                         Case{"unet", "cross_entropy"}, Case{"several_inputs", "mse"}, Case{"mixed", "cross_entropy"},
                                         Case{"attention", "sum"}),
                         [](const auto& test) {
                           std::string name = test.param.model;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

TEST(SplitModel, ResultsDoNotDependOnUnevenMicrobatchesOfADropoutFreeModel) {
  const ModelGraph graph = test::sample("gpt_small");
  const test::ThreadOptions options = trainedWith(3, 0.05);
  const test::Trained whole = test::trainInThreads(graph, test::planFor(graph, "1f1b", 1, 1, 10, "cross_entropy"), kSteps, options);
  const test::Trained cutUp =
      test::trainInThreads(graph, test::planFor(graph, "1f1b", 2, 4, 10, "cross_entropy"), kSteps, options);  // 3, 3, 2, 2
  EXPECT_NEAR(whole.losses[0], cutUp.losses[0], 1e-5);
  EXPECT_EQ(test::firstDifference(cutUp.gradients, whole.gradients, 1e-5, 4e-5), "");
}

TEST(SplitModel, ExampleCodeAtItsMarkersReplicatesWhatItShares) {
  const ModelGraph graph = test::sample("example_code");
  ASSERT_EQ(graph.splitMarkers.size(), 2U);
  const Plan plan = test::planFor(graph, "1f1b", 3, 4, 8, "mse", graph.splitMarkers);
  std::map<std::string, std::vector<int>> replicated;
  for (const SharedParameter& r : plan.partition.shared) {
    for (const Stage s : r.stages) replicated[r.name].push_back(s.value);
  }
  const std::map<std::string, std::vector<int>> expected{{"mm_param", {0, 1}}, {"lin.weight", {1, 2}}, {"lin.bias", {1, 2}}};
  EXPECT_EQ(replicated, expected);
  const test::ThreadOptions options = trainedWith(1, 0.05);
  int unequalCopies = 0;
  const test::Trained actual = test::trainInThreads(graph, plan, kSteps, options, &unequalCopies);
  const test::Trained alone = test::trainInThreads(graph, test::planFor(graph, "1f1b", 1, 4, 8, "mse"), kSteps, options);
  EXPECT_EQ(unequalCopies, 0);
  EXPECT_EQ(test::firstDifference(actual.gradients, alone.gradients, 1e-5, 4e-5), "");
  EXPECT_EQ(test::firstDifference(actual.parameters, alone.parameters, 1e-5, 4e-5), "");
}

TEST(SplitModel, DropoutDependsOnSeedStepAndMicrobatch) {
  const ModelGraph graph = test::sample("hf_gpt2");
  const Plan plan = test::planFor(graph, "1f1b", 2, 2, 4, "cross_entropy");
  const auto losses = [&](std::uint64_t seed, double rate) { return test::trainInThreads(graph, plan, 2, trainedWith(seed, rate)).losses; };
  EXPECT_EQ(losses(5, 0.1), losses(5, 0.1));
  const auto still = losses(5, 0.0);  // nothing learned, same data: only dropout differs between the steps
  EXPECT_NE(still[0], still[1]);
}

}  // namespace
}  // namespace pw
