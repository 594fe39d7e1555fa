// `--verify` names the first value that is not that of one rank; an evaluation gives Python's outputs.
#include "engine/verify.h"
#include "backends/messages/in_memory_communicator.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/evaluation.h"
#include "engine/worker.h"
#include "simulator/partition/split.h"
#include "tests/support/graph_builder.h"
#include "tests/support/training.h"
#include "tests/support/watched_communicator.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

/// `work(rank, communicator)` on a thread per rank.
template <class Work>
void onRanks(const Plan& plan, const std::function<void(JobRank from, std::uint32_t tag, Buffer)>& change, Work work) {
  torchBackend().prepareProcess(1);
  auto communicators = inMemoryCommunicators(worldSize(plan), std::chrono::seconds(60));
  std::vector<std::exception_ptr> failures(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    test::Watch watch;
    watch.change = change;
    communicators[r] = std::make_unique<test::WatchedCommunicator>(std::move(communicators[r]), watch);
    threads.emplace_back([&, r] {
      try {
        work(r, *communicators[r]);
      } catch (...) {
        failures[r] = std::current_exception();
        communicators[r]->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

Verification verified(const ModelGraph& graph, const Plan& plan, TrainOptions options,
                      const std::function<void(JobRank, std::uint32_t, Buffer)>& change = {}) {
  options.verify = true;
  std::vector<Verification> results(static_cast<std::size_t>(worldSize(plan)));
  onRanks(plan, change, [&](std::size_t r, Communicator& communicator) {
    results[r] = trainRank(graph, plan, options, communicator, torchBackend()).verification;
  });
  Verification all = results[0];
  for (const Verification& v : results) all = joinVerifications(all, v);
  return all;
}

/// Adds 1 to the first number of one message of boundary values.
std::function<void(JobRank, std::uint32_t, Buffer)> adding(const Plan& plan, std::size_t transfer, int microbatch, bool gradient) {
  const auto tag = static_cast<std::uint32_t>(
      (transfer * static_cast<std::size_t>(plan.schedule.microbatches) + static_cast<std::size_t>(microbatch)) * 2 + (gradient ? 1 : 0) +
      1);
  return [tag](JobRank, std::uint32_t got, Buffer buffer) {
    if (got != tag) return;
    float number = 0;
    std::memcpy(&number, buffer.data, sizeof(number));
    number += 1;
    std::memcpy(buffer.data, &number, sizeof(number));
  };
}

/// The first transfer from the first to the second stage that carries a gradient.
std::size_t firstTransfer(const Plan& plan, int from) {
  for (std::size_t t = 0; t < plan.partition.transfers.size(); ++t) {
    if (plan.partition.transfers[t].from == Stage(from) && plan.partition.transfers[t].gradient) return t;
  }
  return 0;
}

TEST(Verifier, FindsNothingInARightTraining) {
  const ModelGraph graph = test::sample("weights_embeddings");
  for (const auto& [schedule, replicas] : {std::pair{"1f1b", 1}, std::pair{"zbv", 1}, std::pair{"1f1b", 2}, std::pair{"chimera", 1}}) {
    for (const bool shard : {false, true}) {
      for (const Sharing sharing : {Sharing::Replicate, Sharing::Transmit}) {
        SCOPED_TRACE(std::string(schedule) + ", D = " + std::to_string(replicas) + (shard ? ", sharded" : "") +
                     (sharing == Sharing::Transmit ? ", transmitted" : ""));
        Plan plan = test::planFor(graph, schedule, 2, 4, 16, "cross_entropy", {}, replicas);
        for (SharedParameter& shared : plan.partition.shared) shared.sharing = sharing;
        TrainOptions options;
        options.executor.shardOptimizer = shard;
        const Verification result = verified(graph, plan, options);
        EXPECT_TRUE(result.equal) << result.firstDifference;
      }
    }
  }
}

/// 32 microbatches by four replicas: one rank adds their gradients in another order, and 16 bits round each sum.
TEST(Verifier, FindsNothingButMistakesInTrainingsOf16BitParameters) {
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    SCOPED_TRACE(std::string(nameOf(dtype)));
    test::GraphBuilder g;
    const TensorMeta rows = test::GraphBuilder::rows(dtype), square = test::GraphBuilder::shape({4, 4}, dtype);
    const ValueId x = g.input("x", rows);
    const ValueId h = g.call("linear", {{"input", x}, {"weight", g.parameter("first", "", true, square)}}, "h", rows);
    const ValueId wide = g.call("torch.ops.aten.mul.Tensor", {{"self", h}, {"other", 50.0}}, "wide", rows);
    const ValueId t = g.call("tanh", {{"self", wide}}, "t", rows);
    const ModelGraph graph = g.done(g.call("linear", {{"input", t}, {"weight", g.parameter("last", "", true, square)}}, "y", rows));
    TrainOptions options;
    options.stage.initRandom = true;
    const Plan plan = test::planFor(graph, "1f1b", 2, 8, 128, "mse", {graph.value(t).producer}, 4);
    const Verification right = verified(graph, plan, options);
    EXPECT_TRUE(right.equal) << right.firstDifference;
    EXPECT_GT(right.gradientDifference, 0) << "else nothing was rounded";
    EXPECT_FALSE(verified(graph, plan, options, adding(plan, 0, 1, false)).equal);
  }
}

TEST(Verifier, FindsNothingWhereAStageRecomputesAValueThatItSendsAndUses) {
  const ModelGraph graph = test::sample("gpt_small");
  int crossings = 0;
  for (const SplitPoint& split : splitPoints(graph, bindBatch(graph, 2))) {
    if (split.values < 2) continue;  // within a block, where the sum of the residual crosses beside what is computed from it
    SCOPED_TRACE(split.name);
    Plan plan = test::planFor(graph, "1f1b", 2, 2, 4, "cross_entropy", {split.begin});
    for (StageSpec& stage : plan.partition.stages) stage.checkpoints = {{stage.begin, stage.end}};
    const Verification result = verified(graph, plan, {});
    EXPECT_TRUE(result.equal) << result.firstDifference;
    if (++crossings == 4) break;
  }
  EXPECT_EQ(crossings, 4);
}

TEST(Verifier, NamesTheValueThatAStageComputedFromAWrongOne) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "1f1b", 3, 2, 4, "cross_entropy");
  // What stage 1 gets is wrong in microbatch 1, so the first wrong value that a stage sends is stage 1's.
  const Verification result = verified(graph, plan, {}, adding(plan, firstTransfer(plan, 0), 1, false));
  EXPECT_FALSE(result.equal);
  std::string first;
  std::int32_t lowest = 0;
  for (const Transfer& t : plan.partition.transfers) {
    if (t.from == Stage(1) && (first.empty() || t.value.value < lowest)) first = graph.value(t.value).name, lowest = t.value.value;
  }
  EXPECT_EQ(result.firstDifference.substr(0, 6 + first.size() + 16), "Value " + first + " of microbatch 1") << result.firstDifference;
  EXPECT_GT(result.boundaryDifference, 4e-5);
}

TEST(Verifier, NamesTheGradientOfAValueThatCameBackWrong) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "1f1b", 3, 2, 4, "cross_entropy");
  const std::size_t transfer = firstTransfer(plan, 1);
  const Verification result = verified(graph, plan, {}, adding(plan, transfer, 0, true));
  EXPECT_FALSE(result.equal);
  const std::string name = graph.value(plan.partition.transfers[transfer].value).name;
  EXPECT_EQ(result.firstDifference.substr(0, 16 + name.size() + 16), "The gradient of " + name + " of microbatch 0")
      << result.firstDifference;
}

TEST(Verifier, OfTwoDifferencesTheFirstInTheOrderOfComputationIsKept) {
  Verification early, late, none;
  early.equal = late.equal = false;
  early.position = 3, early.firstDifference = "early", early.lossDifference = 1;
  late.position = 9, late.firstDifference = "late", late.gradientDifference = 2;
  for (const Verification& both : {joinVerifications(early, late), joinVerifications(late, early)}) {
    EXPECT_EQ(both.firstDifference, "early");
    EXPECT_EQ(both.lossDifference, 1);
    EXPECT_EQ(both.gradientDifference, 2);
    EXPECT_FALSE(both.equal);
  }
  EXPECT_EQ(joinVerifications(none, late).firstDifference, "late");
  EXPECT_EQ(joinVerifications(late, none).firstDifference, "late");
  EXPECT_TRUE(joinVerifications(none, none).equal);
}

TEST(Evaluation, GivesTheOutputsOfPlainPyTorchInEvaluationMode) {
  const std::vector<std::string> models{"several_inputs", "unet", "weights_norms", "attention"};
  const fs::path out = fs::temp_directory_path() / ("pipewright-evaluation-" + std::to_string(getpid()));
  std::string command = "OMP_NUM_THREADS=1 " + std::string(PW_PYTHON) + " -W ignore " + PW_SOURCE_DIR +
                        "/tests/support/python/evaluation_reference.py " + out.string() + " 7";
  for (const std::string& model : models) command += " " + test::samplePath(model);
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const std::string& model : models) {
    const ModelGraph graph = test::sample(model);
    std::ifstream file(out / model / "0.bin", std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto expected = test::floatsOf({reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
    for (const auto& [schedule, ranks, replicas] : {std::tuple{"gpipe", 1, 1}, std::tuple{"1f1b", 2, 1}, std::tuple{"1f1b", 2, 2}}) {
      SCOPED_TRACE(model + ", R = " + std::to_string(ranks) + ", D = " + std::to_string(replicas));
      const Plan plan = test::planFor(graph, schedule, ranks, 4 / replicas, 7, "mse", {}, replicas);  // 2, 2, 2, 1
      TrainOptions options;
      options.stage.data.file = (out / model / "data.pt").string();
      std::vector<float> joined;
      onRanks(plan, {}, [&](std::size_t r, Communicator& communicator) {
        const Evaluation evaluation = EvaluationRun(graph, plan, options, communicator, torchBackend()).step(options.firstStep, true);
        if (r != 0) return;
        for (const auto& part : evaluation.outputs.at(0).parts) {
          const auto numbers = test::floatsOf(part.data);
          joined.insert(joined.end(), numbers.begin(), numbers.end());
        }
      });
      EXPECT_EQ(test::firstDifference({{"output", joined}}, {{"output", expected}}, 1e-5, 4e-5), "");
    }
  }
  fs::remove_all(out);
}

}  // namespace
}  // namespace pw
