// Numbers that are not finite end or skip a step on all ranks alike.
#include <gtest/gtest.h>

#include <limits>

#include "backends/messages/buffer_math.h"
#include "backends/messages/in_memory_communicator.h"
#include "engine/training_files.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/folder.h"
#include "tests/support/number_stage.h"

namespace pw {
namespace {

using test::NumberJob;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Number>
bool finite(DType dtype, std::vector<Number> numbers) {
  return allFinite(dtype, {reinterpret_cast<std::byte*>(numbers.data()), numbers.size() * sizeof(Number)});
}

TEST(AllFinite, FindsInfinityAndNanAtAnyPlaceOfEveryType) {
  for (const std::size_t place : {0U, 4095U, 4096U, 9999U}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> narrow(10000, std::numeric_limits<float>::max());
      std::vector<double> wide(10000, -std::numeric_limits<double>::max());
      EXPECT_TRUE(finite(DType::Float32, narrow) && finite(DType::Float64, wide)) << "the largest numbers are numbers";
      narrow[place] = bad;
      wide[place] = bad;
      EXPECT_FALSE(finite(DType::Float32, narrow)) << place;
      EXPECT_FALSE(finite(DType::Float64, wide)) << place;
      EXPECT_FALSE(finite(DType::ComplexFloat, narrow)) << place;
    }
  }
  // 65504 and infinity of float16, 3.4e38 and NaN of bfloat16.
  EXPECT_TRUE(finite<std::uint16_t>(DType::Float16, {0x7BFF, 0xFBFF, 1}));
  EXPECT_FALSE(finite<std::uint16_t>(DType::Float16, {0, 0x7C00}));
  EXPECT_TRUE(finite<std::uint16_t>(DType::BFloat16, {0x7F7F, 0x7C00}));
  EXPECT_FALSE(finite<std::uint16_t>(DType::BFloat16, {0, 0xFFC0}));
  EXPECT_TRUE(finite<std::int32_t>(DType::Int32, {-1, 0x7F800000})) << "integers always are";
  EXPECT_TRUE(finite<float>(DType::Float32, {}));
}

/// Two replicas of two stages, 3 microbatches each; the last rank's gradient of its parameter is infinite from its second microbatch on.
class NotFinite : public testing::TestWithParam<bool> {
 protected:
  const Plan plan_ = test::chainPlan(withReductions(lower(generate("1f1b", {2, 2, 3}))), {}, 2);

  /// By rank, the log of one step; `values`: of the parameters afterwards.
  std::vector<StepLog> step(ExecutorOptions options, std::vector<double>& values) {
    options.shardOptimizer = GetParam();
    NumberJob job = test::prepareJob(plan_);
    job.stages.back().rbegin()->second->largest = 9;  // its gradient i grows by i = 1 … 5 for each microbatch: 5, 10
    auto communicators = inMemoryCommunicators(worldSize(plan_), std::chrono::seconds(20));
    test::runJob(job, plan_, communicators, options, [&](Executor& executor, std::size_t) { return executor.step(7, {}); });
    EXPECT_EQ(job.firstError(), "");
    for (const auto& stages : job.stages) values.push_back(stages.begin()->second->values(0).back());
    return job.logs;
  }
};
INSTANTIATE_TEST_SUITE_P(Optimizer, NotFinite, testing::Bool(), [](const auto& test) { return test.param ? "sharded" : "whole"; });

TEST_P(NotFinite, GradientsAreKnownToAllRanksWithActionAndMicrobatchAndChangeNothing) {
  std::vector<double> values;
  const auto logs = step({}, values);
  for (const StepLog& log : logs) {
    EXPECT_EQ(log.notFinite, JobRank(3));
    EXPECT_FALSE(log.skipped) << "nobody wants to continue";
    EXPECT_EQ(std::ranges::count(log.spans, SpanKind::Optimizer, &Span::kind), 0);
  }
  EXPECT_NE(logs[3].whatNotFinite.find("(action 1B1: stage 1, microbatch 1, rank 3)"), std::string::npos) << logs[3].whatNotFinite;
  EXPECT_EQ(values, std::vector<double>(4, 1)) << "the first values";
}

TEST_P(NotFinite, StepsAreSkippedOnAllRanksWhereThatIsWanted) {
  for (const double clipNorm : {0.0, 0.5}) {
    std::vector<double> values;
    for (const StepLog& log : step({.clipNorm = clipNorm, .skipNonFinite = true}, values)) {
      EXPECT_TRUE(log.skipped);
      EXPECT_EQ(log.notFinite.has_value(), true);
    }
    EXPECT_EQ(values, std::vector<double>(4, 1));
  }
}

TEST_P(NotFinite, GradientsOfFloat16AreAnOverflowUntilTheLossScaleIsOne) {
  std::vector<double> values;
  EXPECT_FALSE(step({.scaleLoss = true}, values)[0].notFinite.has_value());
  const auto logs = step({.scaleLoss = true, .lossScale = LossScale(1)}, values);
  EXPECT_TRUE(logs[0].notFinite.has_value());
  EXPECT_EQ(values, std::vector<double>(8, 1));
}

TEST(FiniteSteps, AreNotSaidToBeOtherwise) {
  const NumberJob job = test::stepOf(test::chainPlan(lower(generate("1f1b", {2, 2, 3}))));
  EXPECT_FALSE(job.logs[0].notFinite || job.logs[0].skipped);
  EXPECT_EQ(std::ranges::count(job.logs[0].spans, SpanKind::Optimizer, &Span::kind), 1);
}

TEST(CheckpointPath, HasTheNumberOfStepsWhereItSaysStep) {
  EXPECT_EQ(checkpointPath("ck-{step}.pt", 120), "ck-120.pt");
  EXPECT_EQ(checkpointPath("{step}/model-{step}.pt", 7), "7/model-7.pt");
  EXPECT_EQ(checkpointPath("model.pt", 7), "model.pt");
  EXPECT_TRUE(isHistory("ck-{step}.pt"));
  EXPECT_FALSE(isHistory("ck.pt"));
}

TEST(CheckpointHistory, RemovesTheOldestOfItsOwnBeyondThoseThatAreKept) {
  const test::Folder folder;
  CheckpointHistory history(2);
  const std::string other = folder.with("ck-0.pt", "of another training");
  std::vector<std::string> files;
  for (const int step : {10, 20, 20, 30, 40}) {  // 20 is written twice, and is one file
    files.push_back(folder.with("ck-" + std::to_string(step) + ".pt", "x"));
    history.add(files.back());
  }
  const auto exists = [&](const char* name) { return std::filesystem::exists(folder.file(name)); };
  EXPECT_FALSE(exists("ck-10.pt") || exists("ck-20.pt"));
  EXPECT_TRUE(exists("ck-30.pt") && exists("ck-40.pt") && std::filesystem::exists(other));
}

}  // namespace
}  // namespace pw
