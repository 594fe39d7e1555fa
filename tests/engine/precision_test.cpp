// Autocast: products in bfloat16, parameters and sums of gradients in float32. The host can do it, too, so it is tested without a GPU.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/support/training.h"

namespace pw {
namespace {

test::ThreadOptions inBfloat16() {
  test::ThreadOptions options;
  options.stage.seed = 7;
  options.stage.precision = DType::BFloat16;
  return options;
}

double distance(const test::Tensors& a, const test::Tensors& b) {
  double difference = 0, size = 0;
  for (const auto& [name, values] : a) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(static_cast<double>(values[i]) - static_cast<double>(b.at(name)[i]), 2);
      size += std::pow(static_cast<double>(values[i]), 2);
    }
  }
  return std::sqrt(difference / size);
}

TEST(Bfloat16, RoundsProductsAndKeepsTheRest) {
  const ModelGraph graph = test::sample("attention");
  const Plan plan = test::planFor(graph, "gpipe", 1, 2, 4, "sum");
  test::ThreadOptions exact = inBfloat16();
  exact.stage.precision = DType::Unknown;
  const test::Trained rounded = test::trainInThreads(graph, plan, 1, inBfloat16()), full = test::trainInThreads(graph, plan, 1, exact);
  const double far = distance(full.gradients, rounded.gradients);
  EXPECT_GT(far, 1e-4) << "bfloat16 keeps 8 bits: something was rounded";
  EXPECT_LT(far, 0.05) << "each product is off by 2^-9 at most";
  bool isFine = false;  // a sum has more bits than bfloat16
  for (const auto& [name, values] : rounded.parameters) {
    for (const float value : values) isFine = isFine || (std::bit_cast<std::uint32_t>(value) & 0xFFFFU) != 0;
  }
  EXPECT_TRUE(isFine) << "parameters stay float32";
}

TEST(Bfloat16, OnSeveralRanksIsAsNearToFloat32AsOnOne) {
  for (const auto& [name, loss] :
       {std::pair{"attention", "sum"}, std::pair{"unet", "cross_entropy"}, std::pair{"gpt_small", "cross_entropy"}}) {
    const ModelGraph graph = test::sample(name);
    test::ThreadOptions exact = inBfloat16();
    exact.stage.precision = DType::Unknown;
    const test::Trained full = test::trainInThreads(graph, test::planFor(graph, "gpipe", 1, 4, 8, loss), 2, exact);
    const test::Trained whole = test::trainInThreads(graph, test::planFor(graph, "gpipe", 1, 4, 8, loss), 2, inBfloat16());
    const double near = distance(full.gradients, whole.gradients);
    test::Tensors first;
    for (const char* const schedule : {"gpipe", "1f1b", "zb-h1"}) {
      SCOPED_TRACE(std::string(name) + ", " + schedule);
      const test::Trained split = test::trainInThreads(graph, test::planFor(graph, schedule, 2, 4, 8, loss), 2, inBfloat16());
      // A value crosses in its traced type, which holds more than bfloat16: what adds to it after the cut rounds less than on one rank.
      EXPECT_LT(distance(full.gradients, split.gradients), 1.5 * near + 1e-6);
      if (first.empty()) first = split.gradients;
      EXPECT_EQ(test::firstDifference(split.gradients, first, 1e-5, 1e-6), "") << "the schedule changes nothing but the order of sums";
    }
  }
}

/// Weights are rounded into copies: were those not made again after an update, products would still use the old ones and the loss fall
/// less.
TEST(Bfloat16, FollowsTheOptimizer) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "gpipe", 1, 2, 4, "cross_entropy");
  test::ThreadOptions rounds = inBfloat16(), exact = inBfloat16();
  exact.stage.precision = DType::Unknown;
  for (test::ThreadOptions* const options : {&rounds, &exact}) options->stage.optimizer.learningRate = 0.1;
  const std::vector<double> losses = test::trainInThreads(graph, plan, 4, rounds).losses,
                            full = test::trainInThreads(graph, plan, 4, exact).losses;
  const double fall = full.front() - full.back();
  ASSERT_GT(fall, 0.1);
  EXPECT_NEAR(losses.front() - losses.back(), fall, 0.05 * fall);
}

/// The history of a sum needs no values: what the loss is computed from is kept where one loss waits for the whole batch, and only there.
TEST(LastStage, KeepsNoOutputBesideItsHistory) {
  const ModelGraph graph = test::sample("gpt_small");
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(1);
  const Plan plan = test::planFor(graph, "gpipe", 1, 2, 4, "sum");
  const auto held = [&](LossScope scope) {
    StageOptions options;
    options.data.lossOver = scope;
    const auto stage = torch.makeTracedStage(graph, plan, Stage(0), options);
    stage->beginStep(0, StepMode::Train);
    const Bytes before = stage->bytesAlive();
    stage->forward(Microbatch(0));
    return stage->bytesAlive() - before;
  };
  const Value& output = graph.value(graph.outputs.front());
  const Bytes logits = bytesOf(*output.tensor, bindBatch(graph, 2));
  ASSERT_GT(logits, 10'000);
  EXPECT_NEAR(static_cast<double>(held(LossScope::WholeBatch) - held(LossScope::PerMicrobatch)), static_cast<double>(logits), 1000)
      << "beside the losses themselves";
}

TEST(Bfloat16, RecomputesInTheSameType) {
  const ModelGraph graph = test::sample("attention");
  Plan plan = test::planFor(graph, "1f1b", 2, 2, 4, "sum");
  const test::Trained kept = test::trainInThreads(graph, plan, 1, inBfloat16());
  for (StageSpec& stage : plan.partition.stages) stage.checkpoints = {{stage.begin, stage.end}};
  const test::Trained again = test::trainInThreads(graph, plan, 1, inBfloat16());
  EXPECT_EQ(test::firstDifference(again.gradients, kept.gradients, 0, 0), "");
}

}  // namespace
}  // namespace pw
