// Options of a training in addition to its schedule: replicas, sharded optimizers, transmitted weights, recompute, ready order, masked
// microbatches, a loss over the batch, clipping, evaluation. Each gives the numbers of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "backends/messages/in_memory_communicator.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "simulator/partition/recomputed_ranges.h"
#include "tests/support/graph_builder.h"
#include "tests/support/training.h"

namespace pw {
namespace {

constexpr int kSteps = 3;

test::ThreadOptions with(OptimizerSpec::Kind kind, double rate = 0.05) {
  test::ThreadOptions options;
  options.stage.seed = 7;
  options.stage.optimizer.kind = kind;
  options.stage.optimizer.learningRate = rate;
  return options;
}

void expectSame(const test::Trained& actual, const test::Trained& expected) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  EXPECT_LE(std::abs(actual.losses[0] - expected.losses[0]), 1e-5 + 1.3e-6 * std::abs(expected.losses[0]));
  EXPECT_EQ(test::firstDifference(actual.gradients, expected.gradients, 1e-5, 4e-5), "");
  EXPECT_EQ(test::firstDifference(actual.parameters, expected.parameters, 1e-5, 4e-5), "");
}

TEST(Replicas, GiveTheNumbersOfOneRank) {
  const ModelGraph graph = test::sample("several_inputs");  // with dropout: replicas draw as one rank does
  // Adam divides by the root of a gradient's square: where that is near zero its sign decides, so the rate is small.
  for (const auto& [kind, rate] : {std::pair{OptimizerSpec::Kind::Sgd, 0.05}, std::pair{OptimizerSpec::Kind::AdamW, 1e-5}}) {
    const test::ThreadOptions options = with(kind, rate);
    for (const auto& [replicas, microbatches, batch] :
         {std::tuple{2, 2, 8}, std::tuple{3, 2, 12}, std::tuple{2, 4, 10}}) {  // 10 = 2 + 2 + 1 + …
      const test::Trained expected =
          test::trainInThreads(graph, test::planFor(graph, "gpipe", 1, replicas * microbatches, batch, "mse"), kSteps, options);
      for (const int ranks : {1, 2}) {
        for (const bool shard : {false, true}) {
          SCOPED_TRACE("D = " + std::to_string(replicas) + ", R = " + std::to_string(ranks) + ", batch " + std::to_string(batch) +
                       (shard ? ", sharded" : ""));
          test::ThreadOptions these = options;
          these.executor.shardOptimizer = shard;
          const Plan plan = test::planFor(graph, "1f1b", ranks, microbatches, batch, "mse", {}, replicas);
          int unequal = 0;
          const test::Trained actual = test::trainInThreads(graph, plan, kSteps, these, &unequal);
          expectSame(actual, expected);
          EXPECT_EQ(unequal, 0) << "copies of a parameter differ";
        }
      }
    }
  }
}

/// Begins of stages that are moved by so many split points.
std::vector<NodeId> moved(const ModelGraph& graph, const Plan& plan, std::ptrdiff_t by) {
  const auto points = splitPoints(graph, bindBatch(graph, plan.microbatchSize));
  std::vector<NodeId> begins = beginsOf(plan.partition);
  for (NodeId& begin : begins) begin = (std::ranges::find(points, begin, &SplitPoint::begin) + by)->begin;
  return begins;
}

TEST(Replicas, EachWithItsOwnSplitsGiveTheNumbersOfOneRank) {
  test::ThreadOptions options = with(OptimizerSpec::Kind::AdamW, 1e-5);
  options.executor.clipNorm = 0.5;
  for (const auto& [name, schedule, replicas, sharing] :
       {std::tuple{"gpt_small", "1f1b", 2, Sharing::Replicate}, std::tuple{"gpt_small", "zbv", 3, Sharing::Replicate},
        std::tuple{"hf_gpt2", "zb-h1", 2, Sharing::Replicate}, std::tuple{"hf_gpt2", "interleaved-1f1b", 2, Sharing::Transmit}}) {
    const ModelGraph graph = test::sample(name);
    constexpr int kMicrobatches = 4;
    const std::int64_t batch = std::int64_t{2} * replicas * kMicrobatches;
    const test::Trained expected =
        test::trainInThreads(graph, test::planFor(graph, "gpipe", 1, replicas * kMicrobatches, batch, "cross_entropy"), kSteps, options);
    Plan plan = test::planFor(graph, schedule, 2, kMicrobatches, batch, "cross_entropy", {}, replicas);
    std::vector<std::vector<NodeId>> begins;
    for (int d = 0; d < replicas; ++d) begins.push_back(moved(graph, plan, 3 * (d - 1)));
    plan = test::withCuts(std::move(plan), graph, begins);
    for (ReplicaCut& cut : plan.cuts->replicas) {
      for (SharedParameter& shared : cut.partition.shared) shared.sharing = sharing;
    }
    ASSERT_GT(plan.cuts->summed.size(), plan.partition.stages.size()) << "some are together in no other replica";
    for (const bool shard : {false, true}) {
      SCOPED_TRACE(std::string(name) + ", " + schedule + (shard ? ", sharded" : ""));
      test::ThreadOptions these = options;
      these.executor.shardOptimizer = shard;
      int unequal = 0;
      expectSame(test::trainInThreads(graph, plan, kSteps, these, &unequal), expected);
      EXPECT_EQ(unequal, 0) << "copies of a parameter differ";
    }
  }
}

/// Where the kernels here lay a tensor out otherwise than where the model was traced, as attention does on a GPU.
TEST(Views, OfOtherStridesThanTracedOnesAreCopies) {
  const auto graphOf = [](const std::string& op, const std::string& sizes) {
    test::GraphBuilder builder;
    const ValueId x = builder.input("x", test::GraphBuilder::meta({test::GraphBuilder::batch(), {2, ""}, {2, ""}}));
    const ValueId weight = builder.parameter("head.weight");
    const ValueId turned = builder.call("torch.ops.aten.transpose.int", {{"self", x}, {"dim0", std::int64_t{1}}, {"dim1", std::int64_t{2}}},
                                        "turned", test::GraphBuilder::meta({test::GraphBuilder::batch(), {2, ""}, {2, ""}}));
    const ValueId flat = builder.call(op, {{"self", turned}, {sizes, std::vector<std::int64_t>{-1, 4}}}, "flat");
    return builder.done(builder.within({"head"}).call("linear", {{"input", flat}, {"weight", weight}}, "scores"));
  };
  const auto trained = [](const ModelGraph& graph) {
    test::ThreadOptions options = with(OptimizerSpec::Kind::Sgd);
    options.stage.initRandom = true;
    return test::trainInThreads(graph, test::planFor(graph, "gpipe", 1, 2, 4, "mse"), kSteps, options);
  };
  expectSame(trained(graphOf("view", "size")), trained(graphOf("reshape", "shape")));
}

/// Without copies, as the next operator had it in the traced model.
TEST(Messages, HoldPermutedTensorsAsTheyLieInMemory) {
  const ModelGraph graph = test::sample("vit_small");
  const Plan plan = test::planFor(graph, "1f1b", 2, 1, 2, "cross_entropy", {findSplit(graph, "encoder.layers.encoder_layer_2")});
  ASSERT_EQ(plan.partition.transfers.size(), 1U);
  const Value& crossing = graph.value(plan.partition.transfers[0].value);
  const std::vector<std::int64_t> shape = shapeOf(*crossing.tensor, bindBatch(graph, 2));
  ASSERT_EQ(crossing.tensor->memoryOrder, (std::vector<std::int64_t>{1, 0, 2})) << "the sequence is before the batch in memory";
  std::vector<float> inOrder;
  StageOptions options;
  options.observe = [&](const std::string& name, Microbatch, DType, Buffer value) {
    if (name == crossing.name) inOrder = test::floatsOf(value);
  };
  const auto stage = torchBackend().makeTracedStage(graph, plan, Stage(0), options);
  stage->beginStep(0, StepMode::Train);
  stage->forward(Microbatch(0));
  const HeldBuffer message = stage->takeOutput(0, Microbatch(0));
  const std::vector<float> sent = test::floatsOf(message.buffer);
  ASSERT_EQ(sent.size(), inOrder.size());
  const auto [rows, columns, width] = std::tuple(shape.at(0), shape.at(1), shape.at(2));
  for (std::int64_t i = 0; i < rows * columns * width; ++i) {
    const std::int64_t row = i / width / columns, column = i / width % columns, place = (column * rows + row) * width + i % width;
    ASSERT_EQ(sent[static_cast<std::size_t>(place)], inOrder[static_cast<std::size_t>(i)]) << "element " << i;
  }
}

/// Neither what it received nor what it computed: memory does not grow with the number of microbatches.
TEST(Evaluation, HoldsNothingOfMicrobatchesThatAreDone) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "1f1b", 2, 4, 8, "cross_entropy");
  StageOptions options;
  options.keepOutputs = false;
  for (const Stage id : {Stage(0), Stage(1)}) {
    const auto stage = torchBackend().makeTracedStage(graph, plan, id, options);
    stage->beginStep(0, StepMode::Evaluate);
    Bytes first = 0, message = 0;
    for (int m = 0; m < 4; ++m) {
      for (std::size_t t = 0; t < plan.partition.transfers.size(); ++t) {
        if (plan.partition.transfers[t].to == id) stage->setInput(t, Microbatch(m), stage->allocate(t, Microbatch(m)));
      }
      stage->forward(Microbatch(m));
      for (std::size_t t = 0; t < plan.partition.transfers.size(); ++t) {
        if (plan.partition.transfers[t].from == id) static_cast<void>(stage->takeOutput(t, Microbatch(m)));
        message = bytesOf(*graph.value(plan.partition.transfers[t].value).tensor, bindBatch(graph, 2));
      }
      if (m == 0) first = stage->bytesAlive();
    }
    EXPECT_LT(stage->bytesAlive() - first, message) << "three times the microbatches, and less than one value more";
  }
}

/// As matrix products on GPUs want it; and no update may move what lies between.
TEST(Parameters, BeginAtMultiplesOf64BytesWithZerosBetween) {
  const ModelGraph graph = test::sample("unet");
  const Plan plan = test::planFor(graph, "1f1b", 1, 2, 4, "cross_entropy");
  StageOptions options = with(OptimizerSpec::Kind::AdamW).stage;
  options.optimizer.weightDecay = 0.1;
  const auto stage = torchBackend().makeTracedStage(graph, plan, Stage(0), options);
  const auto alone = inMemoryCommunicators(1, std::chrono::minutes(1));
  ExecutorOptions clipping;
  clipping.clipNorm = 0.5;
  Executor executor(plan, {{Stage(0), stage.get()}}, *alone.front(), clipping);
  for (int step = 0; step < kSteps; ++step) static_cast<void>(executor.step(step, {}));
  std::map<const std::byte*, std::size_t> parameters;
  for (const ParameterView& parameter : stage->parameters()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameter.value.data) % 64, 0U) << parameter.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameter.gradient.data) % 64, 0U) << parameter.name;
    parameters[parameter.value.data] = parameter.value.bytes;
    parameters[parameter.gradient.data] = parameter.gradient.bytes;
  }
  std::size_t between = 0;
  for (const ParameterGroup& group : stage->groups()) {
    for (const Buffer& flat : {group.values, group.gradients}) {
      for (std::size_t at = 0; at < flat.bytes;) {
        if (const auto found = parameters.find(flat.data + at); found != parameters.end()) {
          at += found->second;
          continue;
        }
        EXPECT_EQ(flat.data[at++], std::byte{0});
        ++between;
      }
    }
  }
  EXPECT_GT(between, 0U) << "the sample has parameters of odd sizes";
}

TEST(Sharing, TransmittedWeightsEqualReplicatedOnes) {
  const ModelGraph graph = test::sample("weights_embeddings");  // the embedding is the head
  const test::ThreadOptions options = with(OptimizerSpec::Kind::AdamW, 1e-3);
  for (const auto& [schedule, ranks, replicas] :
       {std::tuple{"1f1b", 2, 1}, std::tuple{"zbv", 2, 1}, std::tuple{"1f1b", 2, 2}, std::tuple{"chimera", 2, 2}}) {
    SCOPED_TRACE(schedule);
    Plan plan = test::planFor(graph, schedule, ranks, 4, 16, "cross_entropy", {}, replicas);
    ASSERT_FALSE(plan.partition.shared.empty());
    const test::Trained replicated = test::trainInThreads(graph, plan, kSteps, options);
    for (SharedParameter& shared : plan.partition.shared) shared.sharing = Sharing::Transmit;
    int unequal = 0;
    const test::Trained transmitted = test::trainInThreads(graph, plan, kSteps, options, &unequal);
    EXPECT_EQ(unequal, 0);
    expectSame(transmitted, replicated);
  }
}

/// Recomputes the whole of every stage where that can be, else its outermost modules that can; returns how many ranges.
int recompute(const ModelGraph& graph, Plan& plan, bool parts) {
  int ranges = 0;
  for (StageSpec& stage : plan.partition.stages) {
    stage.checkpoints.clear();
    const std::int32_t length = stage.end.value - stage.begin.value, step = parts ? std::max(3, length / 3) : length;
    for (std::int32_t begin = stage.begin.value; begin < stage.end.value; begin += step) {
      const NodeRange range{NodeId(begin), NodeId(std::min(begin + step, stage.end.value))};
      if (obstacleToRecompute(graph, range)) continue;
      stage.checkpoints.push_back(range);
      ++ranges;
    }
  }
  return ranges;
}

TEST(Recompute, ChangesNothingInAnySample) {
  const std::vector<std::pair<std::string, std::string>> samples{
      {"gpt_small", "cross_entropy"}, {"gpt_split", "cross_entropy"}, {"hf_gpt2", "cross_entropy"},
      {"hf_llama", "output:loss"},    {"hf_bert", "cross_entropy"},   {"resnet18_narrow", "cross_entropy"},
      {"vit_small", "cross_entropy"}, {"example_code", "mse"},        {"recurrent", "cross_entropy"},
      {"unet", "cross_entropy"},      {"several_inputs", "mse"},      {"mixed", "cross_entropy"},
      {"attention", "sum"},           {"weights_norms", "mse"}};
  int ranges = 0, without = 0;
  for (const auto& [name, loss] : samples) {
    const ModelGraph graph = test::sample(name);
    const std::int64_t batch = batchSymbol(graph).empty() ? exportedBatch(graph) * 2 : 4;
    for (const char* schedule : {"gpipe", "zb-h1"}) {
      Plan plan = test::planFor(graph, schedule, schedule[0] == 'g' ? 1 : 2, 2, batch, loss);
      const test::Trained expected = test::trainInThreads(graph, plan, 2, with(OptimizerSpec::Kind::Sgd));
      for (const bool parts : {false, true}) {
        SCOPED_TRACE(name + ", " + schedule + (parts ? ", in parts" : ""));
        const int found = recompute(graph, plan, parts);
        ranges += found;
        without += found == 0 ? 1 : 0;
        EXPECT_TRUE(found > 0 || !changesInPlace(graph).empty()) << "only a change in place stands in the way";
        const test::Trained actual = test::trainInThreads(graph, plan, 2, with(OptimizerSpec::Kind::Sgd));
        expectSame(actual, expected);  // without autograd some kernels round otherwise
        EXPECT_EQ(test::firstDifference(actual.buffers, expected.buffers, 1e-5, 4e-5), "") << "running statistics move once per microbatch";
      }
    }
  }
  EXPECT_GT(ranges, 150);
  EXPECT_LE(without, 6);
}

TEST(Recompute, RunningStatisticsMoveOncePerMicrobatch) {
  const ModelGraph graph = test::sample("resnet18_narrow");
  Plan plan = test::planFor(graph, "gpipe", 1, 2, 4, "cross_entropy");
  plan.partition.stages[0].checkpoints = {{plan.partition.stages[0].begin, plan.partition.stages[0].end}};
  const test::Trained trained = test::trainInThreads(graph, plan, 3, with(OptimizerSpec::Kind::Sgd));
  int counters = 0;
  for (const auto& [name, values] : trained.buffers) {
    if (!name.ends_with("num_batches_tracked")) continue;
    EXPECT_EQ(values, std::vector<float>{6.0F}) << name << ": 3 steps of 2 microbatches";
    ++counters;
  }
  EXPECT_EQ(counters, 20);  // ResNet-18: one after each of its 17 convolutions and 3 projections
}

TEST(ReadyOrder, EqualsTheOrderOfThePlan) {
  const ModelGraph graph = test::sample("recurrent");
  for (const Generator& generator : generators()) {
    const Shape shape{2, 2 * generator.chunks, 4};
    if (generator.name == "forward-only" || (generator.refusal && generator.refusal(shape))) continue;
    SCOPED_TRACE(std::string(generator.name));
    const Plan plan = test::planFor(graph, std::string(generator.name), 2, 4, 8, "cross_entropy");
    test::ThreadOptions options = with(OptimizerSpec::Kind::Sgd);
    const test::Trained expected = test::trainInThreads(graph, plan, 1, options);
    options.executor.order = Order::Ready;
    const test::Trained actual = test::trainInThreads(graph, plan, 1, options);
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_EQ(test::firstDifference(actual.gradients, expected.gradients, 0, 0), "") << "gradients are added in the same order";
  }
}

TEST(Masked, MicrobatchesWithBatchNormEqualTheWholeBatch) {
  for (const auto& [name, loss] : {std::pair{"unet", "cross_entropy"}, std::pair{"weights_norms", "mse"}}) {
    const ModelGraph graph = test::sample(name);
    test::ThreadOptions options = with(OptimizerSpec::Kind::Sgd);
    const test::Trained whole = test::trainInThreads(graph, test::planFor(graph, "gpipe", 1, 1, 8, loss), 1, options);
    const test::Trained plain = test::trainInThreads(graph, test::planFor(graph, "gpipe", 1, 4, 8, loss), 1, options);
    EXPECT_NE(test::firstDifference(plain.gradients, whole.gradients, 1e-5, 4e-5), "") << "batch norm depends on the microbatch: " << name;
    options.stage.data.masked = true;
    for (const auto& [schedule, ranks, replicas] : {std::tuple{"gpipe", 1, 1}, std::tuple{"1f1b", 2, 1}, std::tuple{"1f1b", 2, 2}}) {
      SCOPED_TRACE(std::string(name) + ", " + schedule);
      expectSame(test::trainInThreads(graph, test::planFor(graph, schedule, ranks, 4 / replicas, 8, loss, {}, replicas), 1, options),
                 whole);
    }
  }
}

TEST(LossOverBatch, EqualsTheLossOfMicrobatchesWithGPipe) {
  for (const auto& [name, loss] :
       {std::pair{"recurrent", "cross_entropy"}, std::pair{"several_inputs", "mse"}, std::pair{"attention", "sum"}}) {
    const ModelGraph graph = test::sample(name);
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(std::string(name) + ", D = " + std::to_string(replicas));
      const Plan plan = test::planFor(graph, "gpipe", 2, 2, 4 * replicas, loss, {}, replicas);
      test::ThreadOptions options = with(OptimizerSpec::Kind::Sgd);
      const test::Trained expected = test::trainInThreads(graph, plan, 2, options);
      options.stage.data.lossOver = LossScope::WholeBatch;
      expectSame(test::trainInThreads(graph, plan, 2, options), expected);
    }
  }
}

TEST(LossOverBatch, IsRefusedWhereABackwardComesBeforeTheLastForward) {
  const ModelGraph graph = test::sample("recurrent");
  test::ThreadOptions options = with(OptimizerSpec::Kind::Sgd);
  options.stage.data.lossOver = LossScope::WholeBatch;
  try {
    static_cast<void>(test::trainInThreads(graph, test::planFor(graph, "1f1b", 2, 4, 8, "cross_entropy"), 1, options));
    FAIL() << "1F1B ran";
  } catch (const std::exception& e) {
    // Rank 1 finds it; rank 0 may be the first to say that it waits for rank 1.
    EXPECT_THAT(e.what(), ::testing::AnyOf(::testing::HasSubstr("all forwards before the first backward"),
                                           ::testing::HasSubstr("rank 0 was waiting for rank 1 (tag 2) when rank 1 gave up")));
  }
  const Plan plan = test::planFor(graph, "1f1b", 1, 2, 4, "cross_entropy");
  try {
    static_cast<void>(test::trainInThreads(graph, plan, 1, options));
    FAIL() << "1F1B ran";
  } catch (const UsageError& e) {
    EXPECT_STREQ(
        e.what(),
        "A loss over the whole batch needs all forwards before the first backward; use --schedule gpipe, or --loss-over microbatch.");
  }
}

double normOf(const test::Tensors& gradients) {
  double squares = 0;
  for (const auto& [name, values] : gradients) {
    for (const float x : values) squares += static_cast<double>(x) * static_cast<double>(x);
  }
  return std::sqrt(squares);
}

TEST(Clipping, UsesTheNormOfTheWholeModelOnce) {
  const ModelGraph graph = test::sample("weights_embeddings");  // tied: the weight counts once
  const test::ThreadOptions plain = with(OptimizerSpec::Kind::Sgd, 0.5);
  const Plan alone = test::planFor(graph, "gpipe", 1, 4, 8, "cross_entropy");
  const test::Trained start = test::trainInThreads(graph, alone, 1, with(OptimizerSpec::Kind::Sgd, 0));
  const double norm = normOf(start.gradients), limit = norm / 3;
  // torch.nn.utils.clip_grad_norm_ multiplies by min(1, limit / (norm + 1e-6)).
  const double factor = std::min(1.0, limit / (norm + 1e-6));
  test::Tensors expected = start.parameters;
  for (auto& [name, values] : expected) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] -= static_cast<float>(0.5 * factor * static_cast<double>(start.gradients.at(name)[i]));
  }
  test::ThreadOptions options = plain;
  options.executor.clipNorm = limit;
  for (const auto& [schedule, ranks, replicas, shard, sharing] :
       {std::tuple{"gpipe", 1, 1, false, Sharing::Replicate}, std::tuple{"1f1b", 2, 1, false, Sharing::Replicate},
        std::tuple{"1f1b", 2, 2, false, Sharing::Replicate}, std::tuple{"1f1b", 2, 2, true, Sharing::Replicate},
        std::tuple{"1f1b", 2, 2, false, Sharing::Transmit}, std::tuple{"zbv", 2, 1, false, Sharing::Replicate},
        std::tuple{"chimera", 2, 2, false, Sharing::Replicate}}) {
    SCOPED_TRACE(std::string(schedule) + ", D = " + std::to_string(replicas) + (shard ? ", sharded" : ""));
    Plan plan = test::planFor(graph, schedule, ranks, 4 / replicas, 8, "cross_entropy", {}, replicas);
    for (SharedParameter& shared : plan.partition.shared) shared.sharing = sharing;
    options.executor.shardOptimizer = shard;
    const test::Trained clipped = test::trainInThreads(graph, plan, 1, options);
    ASSERT_EQ(clipped.norms.size(), 1U);
    EXPECT_NEAR(clipped.norms[0], norm, 1e-5 * norm);
    EXPECT_EQ(test::firstDifference(clipped.parameters, expected, 1e-5, 4e-5), "");
  }
  options.executor.clipNorm = norm * 2;
  const test::Trained unclipped = test::trainInThreads(graph, alone, 1, options), without = test::trainInThreads(graph, alone, 1, plain);
  EXPECT_EQ(test::firstDifference(unclipped.parameters, without.parameters, 0, 0), "") << "a gradient within the limit stays";
}

}  // namespace
}  // namespace pw
