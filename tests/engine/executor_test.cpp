// The executor on a stage of numbers: no tensors, ranks as threads. Stage s maps x to 2x + 1 and doubles gradients on the way back.
#include "engine/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <new>
#include <thread>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Values and gradients are one double per transfer and microbatch. Gradient of the shared parameter: number of backwards done.
class NumberStage final : public StageModule {
 public:
  NumberStage(const Plan& plan, Stage stage) : plan_(plan), stage_(stage) {}

  void beginStep(int /*step*/) override { shared_ = 0, loss_ = 0; }
  Buffer inputBuffer(std::size_t t, Microbatch m) override { return bufferOf(inputs_[{t, m}]); }
  Buffer outputBuffer(std::size_t t, Microbatch m) override { return bufferOf(outputs_[{t, m}]); }
  Buffer outputGradientBuffer(std::size_t t, Microbatch m) override { return bufferOf(outputGradients_[{t, m}]); }
  Buffer inputGradientBuffer(std::size_t t, Microbatch m) override { return bufferOf(inputGradients_[{t, m}]); }
  void forward(Microbatch m) override {
    if (m.value == failAt && stage_ == failStage) throw std::bad_alloc();
    double x = m.value;
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      if (plan_.partition.transfers[t].to == stage_) x = inputs_.at({t, m});
    }
    const double y = 2 * x + 1;
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      if (plan_.partition.transfers[t].from == stage_) outputs_[{t, m}] = y;
    }
    loss_ += y;
    done.push_back("F" + std::to_string(m.value));
  }
  void backward(Microbatch m) override {
    double gradient = 1;
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      if (plan_.partition.transfers[t].from == stage_) gradient = outputGradients_.at({t, m});
    }
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      if (plan_.partition.transfers[t].to == stage_) inputGradients_[{t, m}] = 2 * gradient;
    }
    shared_ += gradient;
    done.push_back("B" + std::to_string(m.value));
  }
  void releaseOutputs(Microbatch m) override { released.push_back(m.value); }
  void releaseInputGradients(Microbatch /*m*/) override {}
  std::optional<double> stepLoss() const override {
    return stage_.index() + 1 == plan_.partition.stages.size() ? std::optional<double>(loss_) : std::nullopt;
  }
  Buffer replicatedGradient(std::size_t /*i*/) override { return bufferOf(shared_); }
  void sumReplicatedGradient(std::size_t /*i*/, const std::vector<Buffer>& parts) override {
    double sum = 0;
    for (const Buffer& part : parts) {
      double value = 0;
      std::memcpy(&value, part.data, sizeof(value));
      sum += value;
    }
    shared_ = sum;
  }
  void optimizerStep() override { ++updates; }
  std::vector<ParameterView> parameters() override { return {}; }
  Bytes bytesAlive() const override { return 42; }

  [[nodiscard]] double shared() const { return shared_; }

  std::vector<std::string> done;
  std::vector<int> released;
  int updates = 0, failAt = -1;
  Stage failStage;

 private:
  static Buffer bufferOf(double& value) { return {reinterpret_cast<std::byte*>(&value), sizeof(value)}; }
  using Key = std::pair<std::size_t, Microbatch>;

  const Plan& plan_;
  Stage stage_;
  double shared_ = 0, loss_ = 0;
  std::map<Key, double> inputs_, outputs_, outputGradients_, inputGradients_;
};

Plan chain(const char* schedule, int ranks, int microbatches) {
  Plan plan;
  plan.schedule = lower(generate(schedule, {ranks, ranks, microbatches}));
  plan.partition.stages.resize(static_cast<std::size_t>(ranks));
  for (int s = 0; s + 1 < ranks; ++s) plan.partition.transfers.push_back({ValueId(s), Stage(s), Stage(s + 1), true, sizeof(double)});
  return plan;
}

struct Job {
  std::vector<NumberStage> stages;
  std::vector<StepLog> logs;
  std::vector<std::string> errors;
};

Job runJob(const Plan& plan, int failStage = -1, int failAt = -1) {
  const std::size_t ranks = plan.schedule.rows.size();
  Job job;
  for (std::size_t r = 0; r < ranks; ++r) {
    job.stages.emplace_back(plan, Stage(r));
    job.stages.back().failAt = failAt;
    job.stages.back().failStage = Stage(failStage);
  }
  job.logs.resize(ranks);
  job.errors.resize(ranks);
  auto communicators = inMemoryCommunicators(static_cast<int>(ranks), std::chrono::seconds(20));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        Executor executor(plan, {{Stage(r), &job.stages[r]}}, *communicators[r]);
        job.logs[r] = executor.step(3, {});
      } catch (const Error& e) {
        job.errors[r] = e.what();
        communicators[r]->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return job;
}

TEST(Executor, ValuesAndGradientsGoThroughTheChain) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const int ranks : {1, 2, 4}) {
      const Plan plan = chain(schedule, ranks, 5);
      const Job job = runJob(plan);
      // R maps of 2x + 1 take x to 2^R x + 2^R − 1; summed over x = 0..4.
      const double factor = 1 << ranks;
      EXPECT_EQ(job.logs.back().loss, 10 * factor + 5 * (factor - 1)) << schedule << ", R = " << ranks;
      for (int s = 0; s < ranks; ++s) {
        EXPECT_EQ(job.stages[static_cast<std::size_t>(s)].shared(), 5.0 * (1 << (ranks - 1 - s)));
        EXPECT_EQ(job.stages[static_cast<std::size_t>(s)].updates, 1);
      }
    }
  }
}

TEST(Executor, ComputesInTheOrderOfItsRow) {
  const Job job = runJob(chain("1f1b", 2, 3));
  EXPECT_EQ(job.stages[0].done, (std::vector<std::string>{"F0", "F1", "B0", "F2", "B1", "B2"}));
  EXPECT_EQ(job.stages[1].done, (std::vector<std::string>{"F0", "B0", "F1", "B1", "F2", "B2"}));
}

TEST(Executor, ReleasesTheOutputsOfAMicrobatchWhenItsBackwardBegins) {
  const Job job = runJob(chain("1f1b", 2, 3));
  EXPECT_EQ(job.stages[0].released, (std::vector<int>{0, 1, 2}));
}

TEST(Executor, SharedGradientsAreSummedAmongTheirHolders) {
  Plan plan = chain("1f1b", 3, 4);
  plan.partition.replicated.push_back({"w", "w", {Stage(0), Stage(2)}, sizeof(double)});
  const Job job = runJob(plan);
  // Alone stage 0 has 4 · 4, stage 1 4 · 2, stage 2 4 · 1.
  EXPECT_EQ(job.stages[0].shared(), 20);
  EXPECT_EQ(job.stages[1].shared(), 8);
  EXPECT_EQ(job.stages[2].shared(), 20);
}

TEST(Executor, AFailureNamesRankStepAndActionAndEndsThePeers) {
  const Job job = runJob(chain("gpipe", 2, 4), 1, 2);
  EXPECT_THAT(job.errors[1], AllOf(HasSubstr("ank 1"), HasSubstr("step 3"), HasSubstr("1F2"), HasSubstr("out of memory")));
  EXPECT_FALSE(job.errors[0].empty());
}

TEST(JoinTraces, AMessageStartsAtItsSenderAndEndsAtItsReceiver) {
  const Plan plan = chain("1f1b", 2, 3);
  const Job job = runJob(plan);
  const Trace trace = joinTraces(job.logs);
  EXPECT_EQ(trace.ranks, 2);
  int forward = 0, backward = 0, compute = 0;
  for (const Span& span : trace.spans) {
    EXPECT_LE(span.start, span.end);
    compute += isCompute(span.kind) ? 1 : 0;
    if (span.kind != SpanKind::SendForward && span.kind != SpanKind::SendBackward) continue;
    const bool isForward = span.kind == SpanKind::SendForward;
    (isForward ? forward : backward) += 1;
    EXPECT_EQ(span.rank, Rank(isForward ? 0 : 1));
    EXPECT_EQ(span.peer, Rank(isForward ? 1 : 0));
    EXPECT_EQ(span.bytes, static_cast<Bytes>(sizeof(double)));
  }
  EXPECT_EQ(forward, 3);
  EXPECT_EQ(backward, 3);
  EXPECT_EQ(compute, 12);
  EXPECT_EQ(trace.spans.front().start, 0);
}

}  // namespace
}  // namespace pw
