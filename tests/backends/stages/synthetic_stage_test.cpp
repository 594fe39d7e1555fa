// Synthetic stages one by one. Durations are checked on a device that only records its calls; the host's clock gives lower bounds alone.
#include "backends/stages/synthetic_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "schedules/error.h"

namespace pw {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Le;

constexpr Microbatch kM0(0), kM1(1), kM2(2);
constexpr std::size_t kFirst = 0, kSecond = 1, kSkip = 2;  // transfers

/// Stages 0, 1, 2 on a rank each: a value of 640 bytes from each to the next, and one of 200 bytes without a gradient from 0 to 2. Three
/// microbatches, the last half as large.
Plan smallPlan() {
  Plan plan;
  plan.schedule = {"by hand", 3, {{Rank(0), Rank(1), Rank(2)}}, {{}, {}, {}}};
  plan.partition.stages.resize(3);
  plan.partition.transfers = {{ValueId(0), Stage(0), Stage(1), true, 640},
                              {ValueId(1), Stage(1), Stage(2), true, 640},
                              {ValueId(2), Stage(0), Stage(2), false, 200}};
  plan.costs.stages.resize(3);
  for (StageCost& cost : plan.costs.stages) {
    cost.forward = 100'000;
    cost.backward = 250'000;
    cost.backwardInput = 140'000;
    cost.backwardWeight = 90'000;
  }
  plan.costs.microbatchScale = {1, 1, 0.5};
  return plan;
}

/// A device like a GPU in that a stage asks it to be busy, and allocates all that the plan says.
struct NotingDevice {
  Device device = hostDevice();
  std::vector<std::int64_t> spins;  // [ns]
  SyntheticDevice on;

  NotingDevice() {
    device.index = 0;
    device.allocate = [](std::size_t bytes) {
      if (bytes > 1'000'000) throw Error("out of memory");
      return hostDevice().allocate(bytes);
    };
    on = {&device, [this](Ns duration) { spins.push_back(duration.value); }, nullptr};
  }
  NotingDevice(const NotingDevice&) = delete;
};

/// The sentence of what an action throws; empty where it does not.
template <class Work>
std::string errorOf(Work work) {
  try {
    work();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

/// Stages 0 to 2 on the host, at step 4.
struct Pipeline {
  Plan plan;
  SyntheticDevice host = syntheticHost();
  std::vector<std::unique_ptr<StageModule>> stages;

  explicit Pipeline(Plan of = smallPlan()) : plan(std::move(of)) {
    for (int s = 0; s < 3; ++s) stages.push_back(makeSyntheticStage(plan, Stage(s), host, {}));
    for (const auto& stage : stages) stage->beginStep(4, StepMode::Train);
  }
  Pipeline(const Pipeline&) = delete;
};

TEST(SyntheticStage, AsksADeviceForTheTimesOfThePlanScaledByTheMicrobatch) {
  const Plan plan = smallPlan();
  NotingDevice gpu;
  const auto stage = makeSyntheticStage(plan, Stage(1), gpu.on, {});
  stage->beginStep(0, StepMode::Train);
  for (const Microbatch m : {kM0, kM2}) {
    stage->setInput(kFirst, m, stage->allocate(kFirst, m));
    stage->forward(m);
    stage->setOutputGradient(kSecond, m, stage->allocate(kSecond, m));
  }
  stage->backward(kM0);
  stage->backwardInput(kM2);
  stage->backwardWeight(kM2);
  EXPECT_THAT(gpu.spins, ElementsAre(100'000, 50'000, 250'000, 70'000, 45'000));
}

TEST(SyntheticStage, LastsAsLongOnTheHostAndLetsMessagesMoveEvery50Microseconds) {
  const Plan plan = smallPlan();
  SyntheticDevice host = syntheticHost();
  std::vector<std::int64_t> spins;  // [ns]
  int looks = 0;
  const auto spin = host.spin;
  host.spin = [&](Ns duration) {
    spins.push_back(duration.value);
    EXPECT_EQ(looks, static_cast<int>(spins.size())) << "a spin without a look before";
    spin(duration);
  };
  const auto stage = makeSyntheticStage(plan, Stage(0), host, [&] { ++looks; });
  stage->beginStep(0, StepMode::Train);
  const auto begin = std::chrono::steady_clock::now();
  stage->forward(kM0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::microseconds(100));
  EXPECT_THAT(spins, Each(Le(50'000)));
  EXPECT_EQ(looks, static_cast<int>(spins.size()) + 1);
}

TEST(SyntheticStage, AValueHasTheBytesOfItsTransferTimesTheScaleAtBothEnds) {
  Pipeline p;
  p.stages[0]->forward(kM0);
  p.stages[0]->forward(kM2);
  EXPECT_EQ(p.stages[0]->takeOutput(kFirst, kM0).buffer.bytes, 640U);
  EXPECT_EQ(p.stages[0]->takeOutput(kSkip, kM2).buffer.bytes, 100U);
  EXPECT_EQ(p.stages[1]->allocate(kFirst, kM0).buffer.bytes, 640U);
  EXPECT_EQ(p.stages[2]->allocate(kSkip, kM2).buffer.bytes, 100U);
}

TEST(SyntheticStage, AMicrobatchGoesThroughAllStagesAndBack) {
  Pipeline p;
  auto& s = p.stages;
  s[0]->forward(kM0);
  s[1]->setInput(kFirst, kM0, s[0]->takeOutput(kFirst, kM0));
  s[1]->forward(kM0);
  s[2]->setInput(kSecond, kM0, s[1]->takeOutput(kSecond, kM0));
  s[2]->setInput(kSkip, kM0, s[0]->takeOutput(kSkip, kM0));
  s[2]->forward(kM0);
  s[2]->backward(kM0);
  s[1]->setOutputGradient(kSecond, kM0, s[2]->takeInputGradient(kSecond, kM0));
  s[1]->backwardInput(kM0);
  s[0]->setOutputGradient(kFirst, kM0, s[1]->takeInputGradient(kFirst, kM0));
  s[1]->backwardWeight(kM0);
  s[0]->backward(kM0);
  EXPECT_EQ(s[2]->stepLoss(), 0);
  EXPECT_FALSE(s[1]->stepLoss().has_value());
  EXPECT_THAT(errorOf([&] { static_cast<void>(s[2]->takeInputGradient(kSkip, kM0)); }),
              HasSubstr("the gradient of transfer 2, microbatch 0"));
}

TEST(SyntheticStage, WhatIsAnotherMessageIsRefusedByName) {
  Pipeline p;
  p.stages[0]->forward(kM0);
  p.stages[0]->forward(kM1);
  EXPECT_THAT(errorOf([&] { p.stages[1]->setInput(kFirst, kM0, p.stages[0]->takeOutput(kFirst, kM1)); }),
              AllOf(HasSubstr("the value of transfer 0, microbatch 0, step 4 went astray"),
                    HasSubstr("holds byte 0 of 640 bytes of the value of transfer 0, microbatch 1, step 4")));
  p.stages[1]->beginStep(5, StepMode::Train);
  EXPECT_THAT(errorOf([&] { p.stages[1]->setInput(kFirst, kM0, p.stages[0]->takeOutput(kFirst, kM0)); }),
              AllOf(HasSubstr("microbatch 0, step 5 went astray"), HasSubstr("microbatch 0, step 4")));
  p.stages[0]->forward(kM2);
  EXPECT_THAT(errorOf([&] { p.stages[1]->setInput(kFirst, kM1, p.stages[0]->takeOutput(kFirst, kM2)); }),
              HasSubstr("has 320 bytes and not 640"));
  EXPECT_THAT(errorOf([&] { p.stages[1]->setInput(kSkip, kM0, p.stages[1]->allocate(kSkip, kM0)); }), HasSubstr("is not for stage 1"));
  EXPECT_THAT(errorOf([&] { p.stages[1]->setOutputGradient(kFirst, kM0, p.stages[1]->allocate(kFirst, kM0)); }),
              HasSubstr("is not for stage 1"));
}

TEST(SyntheticStage, AWrongByteAtTheBeginTheMiddleAndTheEndIsSeen) {
  for (const std::size_t place : {0U, 63U, 288U, 351U, 576U, 639U}) {
    Pipeline p;
    p.stages[0]->forward(kM0);
    const HeldBuffer value = p.stages[0]->takeOutput(kFirst, kM0);
    value.buffer.data[place] ^= std::byte{1};
    EXPECT_THAT(errorOf([&] { p.stages[1]->setInput(kFirst, kM0, value); }),
                HasSubstr("the value of transfer 0, microbatch 0, step 4 went astray"))
        << place;
  }
}

TEST(SyntheticStage, MessagesOfAFewBytesAreCheckedToo) {
  for (const std::int64_t bytes : {0, 1, 8, 65, 128, 191, 192}) {
    Plan plan = smallPlan();
    plan.costs.microbatchScale.clear();
    plan.partition.transfers[kFirst].bytes = Bytes(bytes);
    Pipeline p(plan);
    p.stages[0]->forward(kM0);
    p.stages[0]->forward(kM1);
    const HeldBuffer right = p.stages[0]->takeOutput(kFirst, kM0), other = p.stages[0]->takeOutput(kFirst, kM1);
    EXPECT_EQ(errorOf([&] { p.stages[1]->setInput(kFirst, kM0, right); }), "") << bytes;
    if (bytes == 0) continue;
    EXPECT_THAT(errorOf([&] { p.stages[1]->setInput(kFirst, kM2, other); }), HasSubstr("went astray")) << bytes;
  }
}

TEST(SyntheticStage, WhatBreaksTheLifeOfAMicrobatchIsRefused) {
  Pipeline p;
  StageModule& middle = *p.stages[1];
  EXPECT_THAT(errorOf([&] { middle.forward(kM0); }), HasSubstr("stage 1 was to run without the value of transfer 0, microbatch 0, step 4"));
  EXPECT_THAT(errorOf([&] { middle.backward(kM1); }), HasSubstr("a backward ran before its forward"));
  p.stages[0]->forward(kM0);
  EXPECT_THAT(errorOf([&] { p.stages[0]->forward(kM0); }), HasSubstr("a forward ran twice: stage 0, microbatch 0"));
  EXPECT_THAT(errorOf([&] { p.stages[0]->backward(kM0); }), HasSubstr("without the gradient of transfer 0, microbatch 0"));
  EXPECT_THAT(errorOf([&] { p.stages[0]->backwardWeight(kM0); }), HasSubstr("a W ran before its I"));
  static_cast<void>(p.stages[0]->takeOutput(kFirst, kM0));
  EXPECT_THAT(errorOf([&] { static_cast<void>(p.stages[0]->takeOutput(kFirst, kM0)); }), HasSubstr("has not made the value of transfer 0"));
  Plan wrong = smallPlan();
  wrong.costs.stages.pop_back();
  EXPECT_THROW(static_cast<void>(makeSyntheticStage(wrong, Stage(0), syntheticHost(), {})), UsageError);
  wrong = smallPlan();
  wrong.costs.microbatchScale.pop_back();
  EXPECT_THROW(static_cast<void>(makeSyntheticStage(wrong, Stage(0), syntheticHost(), {})), UsageError);
}

/// Stage 0: 4000 bytes are trained, of which 800 are shared with stage 2; 1000 are not.
Plan trainedPlan() {
  Plan plan = smallPlan();
  plan.partition.shared.push_back({"tied", "tied", {Stage(0), Stage(2)}, 800});
  StageCost& cost = plan.costs.stages[0];
  cost.parameterBytes = 5000;
  cost.gradientBytes = cost.updatedBytes = 4000;
  cost.optimizerBytes = 8000;
  cost.optimizer = 40'000;
  return plan;
}

TEST(SyntheticStage, HasAGroupOfItsOwnParametersAndOneForEachSharedOne) {
  Pipeline p(trainedPlan());
  const auto groups = p.stages[0]->groups();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_FALSE(groups[0].shared.has_value());
  EXPECT_EQ(groups[0].values.bytes, 3200U);
  EXPECT_EQ(groups[0].gradients.bytes, 3200U);
  EXPECT_EQ(groups[1].shared, 0U);
  EXPECT_EQ(groups[1].values.bytes, 800U);
  EXPECT_TRUE(p.stages[1]->groups().empty());
  ASSERT_EQ(p.stages[2]->groups().size(), 1U);
  EXPECT_EQ(p.stages[2]->groups()[0].values.bytes, 800U);
  EXPECT_TRUE(p.stages[0]->state().empty());
  EXPECT_TRUE(p.stages[0]->parameters().empty());
}

TEST(SyntheticStage, AnUpdateTakesItsShareOfTheTimeAndSubtractsTheGradientsOfItsRange) {
  const Plan plan = trainedPlan();
  NotingDevice gpu;
  const auto noted = makeSyntheticStage(plan, Stage(0), gpu.on, {});
  noted->beginStep(0, StepMode::Train);
  noted->optimizerStep(0, 0, 800, 1);
  noted->optimizerStep(1, 50, 150, 1);  // of 1000 floats in all
  noted->optimizerStep(1, 7, 7, 1);
  EXPECT_THAT(gpu.spins, ElementsAre(32'000, 4'000));

  Pipeline p(plan);
  const auto group = p.stages[0]->groups()[0];
  std::vector<float> gradients(800), values(800);
  std::memcpy(gradients.data(), group.gradients.data, 3200);
  EXPECT_GE(std::ranges::count(gradients, 1.0F), 64);
  EXPECT_EQ(std::ranges::count(gradients, 1.0F) + std::ranges::count(gradients, 0.0F), 800);
  p.stages[0]->optimizerStep(0, 400, 800, 0.5);
  std::memcpy(values.data(), group.values.data, 3200);
  for (std::size_t i = 0; i < 800; ++i) EXPECT_EQ(values[i], i < 400 ? 0 : -0.5F * gradients[i]) << i;
}

TEST(SyntheticStage, CountsTheMemoryThatThePlanSays) {
  Plan plan = trainedPlan();
  StageCost& cost = plan.costs.stages[0];
  cost.fixedBytes = 30;
  cost.dataBytes = 100;
  cost.activationBytes = 10'000;
  cost.forwardPeak = 12'000;
  cost.freedByInput = 7'000;
  cost.addedByInput = 500;
  cost.backwardPeak = 6'000;
  cost.inputPeak = 5'000;
  cost.weightPeak = 300;
  SyntheticDevice host = syntheticHost();
  const auto stage = makeSyntheticStage(plan, Stage(0), host, {});
  const Bytes constant = 5000 + 4000 + 30 + 3 * 100;
  stage->beginStep(0, StepMode::Train);
  EXPECT_EQ(stage->bytesAlive(), constant);
  const auto peakOf = [&](auto work) {
    static_cast<void>(stage->peakBytes());
    work();
    return stage->peakBytes();
  };
  EXPECT_EQ(peakOf([&] { stage->forward(kM0); }), constant + 12'000);
  EXPECT_EQ(stage->bytesAlive(), constant + 10'000);
  EXPECT_EQ(peakOf([&] { stage->forward(kM1); }), constant + 22'000);

  // The gradient that is received counts until it is used.
  HeldBuffer gradient = stage->allocate(kFirst, kM0);
  EXPECT_EQ(stage->bytesAlive(), constant + 20'640);
  stage->beginStep(0, StepMode::Train);
  EXPECT_EQ(stage->bytesAlive(), constant) << "a step begins with nothing in flight";

  Pipeline p(plan);
  auto& s = p.stages;
  const Bytes before = s[0]->bytesAlive();
  EXPECT_EQ(before, constant) << "the stages of a rank count together; the others have nothing";
}

TEST(SyntheticStage, BackwardsGiveBackWhatTheyFree) {
  Plan plan = smallPlan();
  StageCost& cost = plan.costs.stages[2];
  cost.activationBytes = 10'000;
  cost.freedByInput = 7'000;
  cost.addedByInput = 500;
  cost.backwardPeak = 6'000;
  cost.inputPeak = 5'000;
  cost.weightPeak = 300;
  SyntheticDevice host = syntheticHost();
  const auto before = makeSyntheticStage(plan, Stage(1), syntheticHost(), {}),
             first = makeSyntheticStage(plan, Stage(0), syntheticHost(), {});
  const auto stage = makeSyntheticStage(plan, Stage(2), host, {});
  for (StageModule* s : {before.get(), first.get(), stage.get()}) s->beginStep(0, StepMode::Train);
  for (const Microbatch m : {kM0, kM1}) {
    first->forward(m);
    before->setInput(kFirst, m, first->takeOutput(kFirst, m));
    before->forward(m);
    const HeldBuffer in = stage->allocate(kSecond, m);
    const HeldBuffer made = before->takeOutput(kSecond, m);
    std::memcpy(in.buffer.data, made.buffer.data, made.buffer.bytes);
    EXPECT_EQ(host.memory->alive, 640 + (m == kM1 ? 10'000 : 0));
    stage->setInput(kSecond, m, in);
    stage->setInput(kSkip, m, first->takeOutput(kSkip, m));
    stage->forward(m);
    EXPECT_EQ(stage->bytesAlive(), (m == kM1 ? 20'000 : 10'000)) << "what was received is part of the activations";
  }
  static_cast<void>(stage->peakBytes());
  stage->backward(kM0);
  EXPECT_EQ(stage->peakBytes(), 26'000);
  EXPECT_EQ(stage->bytesAlive(), 10'000 + 640) << "the gradient for another rank is still here";
  const HeldBuffer in = before->allocate(kSecond, kM0);
  std::memcpy(in.buffer.data, stage->takeInputGradient(kSecond, kM0).buffer.data, 640);
  EXPECT_EQ(stage->bytesAlive(), 10'000);
  EXPECT_EQ(before->bytesAlive(), 640) << "a received gradient counts until it is used";
  before->setOutputGradient(kSecond, kM0, in);
  before->backward(kM0);
  static_cast<void>(before->takeInputGradient(kFirst, kM0));
  EXPECT_EQ(before->bytesAlive(), 0);
  static_cast<void>(stage->peakBytes());
  stage->backwardInput(kM1);
  static_cast<void>(stage->takeInputGradient(kSecond, kM1));
  EXPECT_EQ(stage->peakBytes(), 15'000);
  EXPECT_EQ(stage->bytesAlive(), 10'000 - 7'000 + 500);
  stage->backwardWeight(kM1);
  EXPECT_EQ(stage->peakBytes(), 3'800);
  EXPECT_EQ(stage->bytesAlive(), 0);
}

TEST(SyntheticStage, OptimizerStateCountsFromTheFirstUpdateOn) {
  Pipeline p(trainedPlan());
  const Bytes before = p.stages[0]->bytesAlive();
  p.stages[0]->optimizerStep(0, 0, 400, 1);  // 1600 of 4000 bytes
  EXPECT_EQ(p.stages[0]->bytesAlive(), before + 3200);
  p.stages[0]->optimizerStep(0, 0, 400, 1);
  EXPECT_EQ(p.stages[0]->bytesAlive(), before + 3200);
}

TEST(SyntheticStage, APlanThatDoesNotFitTheDeviceFailsWithASentence) {
  NotingDevice gpu;
  Plan plan = smallPlan();
  plan.costs.stages[0].activationBytes = 2'000'000;
  const auto stage = makeSyntheticStage(plan, Stage(0), gpu.on, {});
  stage->beginStep(0, StepMode::Train);
  EXPECT_THAT(errorOf([&] { stage->forward(kM0); }),  // 840 bytes of the activations are its outputs
              AllOf(HasSubstr("no memory for the activations of a microbatch of stage 0 (1999160 bytes)"), HasSubstr("out of memory")));
  plan.costs.stages[0].fixedBytes = 3'000'000;
  EXPECT_THAT(errorOf([&] { static_cast<void>(makeSyntheticStage(plan, Stage(0), gpu.on, {})); }),
              HasSubstr("no memory for parameters, buffers and data of stage 0"));
}

TEST(SyntheticStage, AnEvaluationKeepsNothing) {
  Plan plan = smallPlan();
  plan.costs.stages[0].activationBytes = 10'000;
  Pipeline p(plan);
  p.stages[0]->beginStep(0, StepMode::Evaluate);
  p.stages[0]->forward(kM0);
  EXPECT_EQ(p.stages[0]->bytesAlive(), 0);
  EXPECT_EQ(p.stages[0]->takeOutput(kFirst, kM0).buffer.bytes, 640U);
}

}  // namespace
}  // namespace pw
