#include "engine/autograd/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/two_worlds.h"

namespace pw::test {
namespace {

using testing::HasSubstr;

JobOptions options(int workers, std::uint64_t seed = 0) {
  JobOptions options;
  options.workers = workers;
  options.functions = &testFunctions();
  options.seed = seed;
  return options;
}

/// Parameters on two owners, and a loss whose gradient is `factor` everywhere.
struct Updated {
  explicit Updated(RemoteJob& of) : job(of) {
    for (int i = 0; i < 4; ++i) references.push_back(job.remote(0).remote("worker" + std::to_string(1 + i % 2), "leaf", i));
  }
  void backward(ContextId context, double factor, std::size_t count) const {
    Tensor loss = sum(scaled(tensorOf(job.remote(0).toHere(references[0])), factor));
    for (std::size_t i = 1; i < count; ++i) loss = loss + sum(scaled(tensorOf(job.remote(0).toHere(references[i])), factor));
    job.autograd(0).backward(context, {loss.handle});
  }
  /// How far each element moved.
  void expectMoved(std::size_t index, double by) const {
    const auto before = numbers(leaf(index).handle), after = numbers(job.remote(0).toHere(references[index]).tensor());
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i] + by, 1e-7) << "parameter " << index;
  }
  RemoteJob& job;
  std::vector<Reference> references;
};

void defineLeaf(RemoteJob& job) {
  job.defineEverywhere("leaf", [](Remote&, const RemoteValue& seed) { return valueOf(leaf(static_cast<std::uint64_t>(seed.integer()))); });
}

// Two steps with the gradient 2 everywhere, by the formulas of torch.optim.
TEST(DistributedOptimizer, MakesTheStepsOfEachKind) {
  OptimizerSpec sgd, momentum, adam, rms;
  sgd.learningRate = momentum.learningRate = adam.learningRate = rms.learningRate = 0.1;
  momentum.momentum = 0.5;
  adam.kind = OptimizerSpec::Kind::Adam;
  rms.kind = OptimizerSpec::Kind::RmsProp;
  const double rmsOne = 2 / (std::sqrt(0.01 * 4) + 1e-8), rmsTwo = 2 / (std::sqrt(0.99 * 0.01 * 4 + 0.01 * 4) + 1e-8);
  const std::pair<OptimizerSpec, double> cases[] = {
      {sgd, -0.1 * (2 + 2)}, {momentum, -0.1 * (2 + 3)}, {adam, -0.1 * (1 + 1)}, {rms, -0.1 * (rmsOne + rmsTwo)}};
  for (const auto& [spec, moved] : cases) {
    RemoteJob job(options(3));
    defineLeaf(job);
    job.start();
    {
      const Updated updated(job);
      DistributedOptimizer optimizer(job.remote(0), spec, updated.references);
      for (int step = 0; step < 2; ++step) {
        const OpenContext context(job.autograd(0));
        updated.backward(context.id(), 2, 3);
        optimizer.step(context.id());
      }
      for (std::size_t i = 0; i < 3; ++i) updated.expectMoved(i, moved);
      updated.expectMoved(3, 0);  // has no gradient
    }
    expectNothingLeft(job);
  }
}

// AdamW shrinks the parameter by 1 - rate · decay before Adam's step of the rate.
TEST(DistributedOptimizer, DecaysWeightsAsAdamWDoes) {
  OptimizerSpec spec;
  spec.kind = OptimizerSpec::Kind::AdamW;
  spec.learningRate = 0.1, spec.weightDecay = 0.2;
  RemoteJob job(options(3));
  defineLeaf(job);
  job.start();
  const Updated updated(job);
  DistributedOptimizer optimizer(job.remote(0), spec, updated.references);
  const OpenContext context(job.autograd(0));
  updated.backward(context.id(), 3, 4);
  optimizer.step(context.id());
  for (std::size_t index = 0; index < 4; ++index) {
    const auto before = numbers(leaf(index).handle), after = numbers(job.remote(0).toHere(updated.references[index]).tensor());
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i] * (1 - 0.1 * 0.2) - 0.1, 1e-7);
  }
}

// Optimizers of several threads race on the same parameters; updates of SGD add up, in whatever order.
TEST(DistributedOptimizer, TakesTurnsOnTheSameParameters) {
  RemoteJob job(options(3, 9));
  defineLeaf(job);
  job.start();
  {
    const Updated updated(job);
    OptimizerSpec spec;
    spec.learningRate = 0.01;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        DistributedOptimizer optimizer(job.remote(0), spec, updated.references);
        for (int i = 0; i < 10; ++i) {
          const OpenContext context(job.autograd(0));
          updated.backward(context.id(), t + 1, 4);
          optimizer.step(context.id());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < 4; ++i) updated.expectMoved(i, -0.01 * 10 * (1 + 2 + 3 + 4));
  }
  expectNothingLeft(job);
}

TEST(DistributedOptimizer, RefusesWhatItCannotUse) {
  RemoteJob job(options(2));
  job.defineEverywhere("text", [](Remote&, const RemoteValue&) -> RemoteValue { return "no tensor"; });
  job.start();
  EXPECT_THAT([&] { DistributedOptimizer(job.remote(0), {}, {}); }, testing::ThrowsMessage<UsageError>(HasSubstr("needs parameters")));
  EXPECT_THAT([&] { DistributedOptimizer(job.remote(0), {}, {job.remote(0).remote("worker1", "text")}); },
              testing::ThrowsMessage<RemoteError>(HasSubstr("a text where a tensor is needed")));
}

}  // namespace
}  // namespace pw::test
