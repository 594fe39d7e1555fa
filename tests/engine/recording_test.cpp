// Actions that are recorded once and launched as a whole (CUDA graphs): the same training as operator by operator. The device here is the
// host, which keeps the work of a recording and does it at each launch: so what a launch reads and writes is what the recording's tensors
// hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>

#include "schedules/error.h"
#include "tests/support/training.h"

namespace pw {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// What the devices of a test did; a Device is a table of functions.
struct Count {
  std::atomic<int> recorded{0}, launched{0}, failing{-1};
};
Count& count() {
  static Count all;
  return all;
}

Device recordingHost() {
  Device device = hostDevice();
  device.record = [](const std::function<void()>& work, std::shared_ptr<void>& pool) -> std::shared_ptr<void> {
    if (!pool) pool = std::make_shared<int>();
    if (count().recorded++ == count().failing)
      throw Error("CUDA cannot record the work of a stage (operation not permitted when stream is capturing).");
    return std::make_shared<std::function<void()>>(work);
  };
  device.launch = [](const std::shared_ptr<void>& recording) {
    ++count().launched;
    (*static_cast<std::function<void()>*>(recording.get()))();
  };
  return device;
}

constexpr int kSteps = 5, kWarmUp = 2;

struct Outcome {
  test::Trained trained;
  int recorded = 0, launched = 0;
  std::vector<std::string> told;
};

Outcome train(const ModelGraph& graph, const Plan& plan, const Device* device, test::ThreadOptions options = {}) {
  Outcome outcome;
  std::mutex mutex;
  options.stage.seed = 7;
  options.stage.device = device;
  options.stage.tell = [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    outcome.told.push_back(what);
  };
  count().recorded = count().launched = 0;
  outcome.trained = test::trainInThreads(graph, plan, kSteps, options);
  outcome.recorded = count().recorded;
  outcome.launched = count().launched;
  return outcome;
}

int computeActions(const Plan& plan) {
  int actions = 0;
  for (const auto& row : plan.schedule.rows)
    actions += static_cast<int>(std::ranges::count_if(row, [](const Action& a) { return isCompute(a.kind); }));
  return actions;
}

void expectEqual(const test::Trained& actual, const test::Trained& expected) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-6 + 1e-6 * std::abs(expected.losses[i])) << "step " << i;
  EXPECT_EQ(test::firstDifference(actual.parameters, expected.parameters, 1e-5, 1e-6), "");
  EXPECT_EQ(test::firstDifference(actual.buffers, expected.buffers, 1e-5, 1e-6), "");
}

class Recording : public testing::Test {
 protected:
  void SetUp() override { count().failing = -1; }
  Device device_ = recordingHost();
};

TEST_F(Recording, TrainsAsOperatorByOperatorUnderEverySchedule) {
  for (const auto& [model, loss] :
       {std::pair{"gpt_small", "cross_entropy"}, std::pair{"resnet18_narrow", "cross_entropy"}, std::pair{"hf_llama", "output:loss"}}) {
    const ModelGraph graph = test::sample(model);
    const std::int64_t size = batchSymbol(graph).empty() ? exportedBatch(graph) : 1;
    for (const char* const schedule : {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zbv", "dualpipev", "chimera"}) {
      SCOPED_TRACE(std::string(model) + ", " + schedule);
      const Plan plan = test::planFor(graph, schedule, 2, 4, 4 * size, loss);
      const Outcome plain = train(graph, plan, nullptr), recorded = train(graph, plan, &device_);
      expectEqual(recorded.trained, plain.trained);
      EXPECT_EQ(plain.launched, 0);
      EXPECT_EQ(recorded.launched, (kSteps - kWarmUp) * computeActions(plan)) << "every action of a step after the warm-up is a launch";
      EXPECT_THAT(recorded.told, IsEmpty());
    }
  }
}

/// Of 1F1B on 2 ranks, rank 0 has 2 microbatches in flight and rank 1 has one: each is F and B.
TEST_F(Recording, KeepsAsManyMicrobatchesAsAreInFlight) {
  const ModelGraph graph = test::sample("gpt_small");
  EXPECT_EQ(train(graph, test::planFor(graph, "1f1b", 2, 6, 6, "cross_entropy"), &device_).recorded, (2 + 1) * 2);
  EXPECT_EQ(train(graph, test::planFor(graph, "gpipe", 2, 6, 6, "cross_entropy"), &device_).recorded, (6 + 6) * 2);
}

TEST_F(Recording, ComputesInBfloat16AsOperatorByOperator) {
  const ModelGraph graph = test::sample("gpt_small");
  test::ThreadOptions options;
  options.stage.precision = DType::BFloat16;
  for (const char* const schedule : {"1f1b", "zb-h1"}) {
    const Plan plan = test::planFor(graph, schedule, 2, 4, 4, "cross_entropy");
    const Outcome plain = train(graph, plan, nullptr, options), recorded = train(graph, plan, &device_, options);
    expectEqual(recorded.trained, plain.trained);
    EXPECT_EQ(recorded.launched, (kSteps - kWarmUp) * computeActions(plan));
  }
}

TEST_F(Recording, RecomputesAndAveragesOverTheBatch) {
  const ModelGraph graph = test::sample("gpt_small");
  Plan plan = test::planFor(graph, "gpipe", 2, 4, 4, "cross_entropy");
  for (StageSpec& stage : plan.partition.stages) stage.checkpoints = {{stage.begin, stage.end}};
  test::ThreadOptions options;
  options.stage.data.lossOver = LossScope::WholeBatch;
  const Outcome plain = train(graph, plan, nullptr, options), recorded = train(graph, plan, &device_, options);
  expectEqual(recorded.trained, plain.trained);
  EXPECT_EQ(recorded.launched, (kSteps - kWarmUp) * computeActions(plan));
}

/// 10 samples in 4 microbatches: 3, 3, 2, 2.
TEST_F(Recording, LeavesAMicrobatchOfAnotherSizeToItsOperators) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "1f1b", 2, 4, 10, "cross_entropy");
  const Outcome plain = train(graph, plan, nullptr), recorded = train(graph, plan, &device_);
  expectEqual(recorded.trained, plain.trained);
  EXPECT_EQ(recorded.launched, (kSteps - kWarmUp) * computeActions(plan) / 2);
}

TEST_F(Recording, GoesOnOperatorByOperatorWhereTheDeviceCannotRecordAndSaysWhy) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "zb-h1", 2, 4, 4, "cross_entropy");
  const Outcome plain = train(graph, plan, nullptr);
  for (const int failing : {0, 1, 2}) {
    count().failing = failing;
    const Outcome recorded = train(graph, plan, &device_);
    expectEqual(recorded.trained, plain.trained);
    EXPECT_THAT(recorded.told, SizeIs(1)) << "the other stage can";
    EXPECT_THAT(recorded.told,
                Each(AllOf(HasSubstr("operator by operator, without CUDA graphs, because CUDA cannot record"), HasSubstr("capturing"))));
  }
}

TEST_F(Recording, IsNotForStagesThatDrawRandomNumbersNorWhereItIsNotWanted) {
  const ModelGraph graph = test::sample("several_inputs");
  const Plan plan = test::planFor(graph, "1f1b", 2, 4, 4, "mse");
  const Outcome plain = train(graph, plan, nullptr), recorded = train(graph, plan, &device_);
  expectEqual(recorded.trained, plain.trained);
  EXPECT_THAT(recorded.told, Not(IsEmpty()));
  EXPECT_THAT(recorded.told, Each(HasSubstr("random numbers (dropout)")));
  test::ThreadOptions unwanted;
  unwanted.stage.graphs = false;
  const Outcome off = train(graph, plan, &device_, unwanted);
  EXPECT_EQ(off.launched, 0);
  EXPECT_THAT(off.told, IsEmpty());
}

TEST_F(Recording, RunsInReadyOrder) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "zb-h1", 2, 6, 6, "cross_entropy");
  test::ThreadOptions ready;
  ready.executor.order = Order::Ready;
  const Outcome plain = train(graph, plan, nullptr), recorded = train(graph, plan, &device_, ready);
  expectEqual(recorded.trained, plain.trained);
  EXPECT_GT(recorded.launched, 0);
}

/// A device whose clock only work moves: a timestamp takes 1 ns, the first of the recordings that launch in turn 8 ms, the second 20 ms.
constexpr Ns kForward = 8'000'000, kBackward = 20'000'000;
std::atomic<std::int64_t> counted{0};  // [ns]

Device clockedHost() {
  Device device = recordingHost();
  device.timestamp = []() -> Timestamp { return {++counted}; };
  device.timeOf = [](Timestamp timestamp) -> Ns { return Ns(timestamp.number); };
  device.launch = [](const std::shared_ptr<void>& recording) {
    counted += count().launched++ % 2 == 0 ? kForward.value : kBackward.value;
    (*static_cast<std::function<void()>*>(recording.get()))();
  };
  return device;
}

/// What a recording takes is shared out by what the operators took one by one, less the time for getting its inputs (one timestamp).
TEST_F(Recording, IsWhatAProfileMeasures) {
  const ModelGraph graph = test::sample("gpt_small");
  const Device clocked = clockedHost();
  ProfileOptions options;
  options.stage.device = &clocked;
  options.stage.initRandom = true;
  options.samples = 4;
  count().recorded = count().launched = 0;
  const Profile profile = torchBackend().measureProfile(graph, options, nullptr, {});
  EXPECT_EQ(count().recorded, 2) << "the forward and the backward of the model";
  EXPECT_EQ(count().launched, 2 * 2 * options.samples) << "each sample twice";
  Ns forward = profile.loss.forward, backward = profile.loss.backward;
  for (const NodeCost& node : profile.nodes) {
    forward += node.forward;
    backward += node.backward;
  }
  const double cut = static_cast<double>(profile.nodes.size()) + 4;  // each is cut off to a nanosecond
  EXPECT_NEAR(static_cast<double>(forward), static_cast<double>(kForward), cut);
  EXPECT_NEAR(static_cast<double>(backward), static_cast<double>(kBackward), cut);
}

TEST_F(Recording, IsNotWhatAProfileMeasuresWhereItIsNotWantedOrCannotBe) {
  const ModelGraph graph = test::sample("gpt_small");
  std::vector<std::string> told;
  ProfileOptions options;
  options.stage.device = &device_;
  options.stage.initRandom = true;
  options.stage.tell = [&](const std::string& what) { told.push_back(what); };
  options.samples = 2;
  options.stage.graphs = false;
  count().recorded = count().launched = 0;
  static_cast<void>(torchBackend().measureProfile(graph, options, nullptr, {}));
  EXPECT_EQ(count().recorded, 0);
  EXPECT_THAT(told, IsEmpty());
  options.stage.graphs = true;
  count().failing = 0;
  static_cast<void>(torchBackend().measureProfile(graph, options, nullptr, {}));
  EXPECT_EQ(count().launched, 0);
  EXPECT_THAT(told,
              testing::ElementsAre(AllOf(HasSubstr("measured operator by operator, without CUDA graphs, because CUDA cannot record"))));
}

}  // namespace
}  // namespace pw
