#include <gtest/gtest.h>

#include "engine/autograd/optimizer.h"
#include "tests/support/two_worlds.h"

namespace pw::test {
namespace {

JobOptions options(int workers = 2) {
  JobOptions options;
  options.workers = workers;
  options.functions = &testFunctions();
  return options;
}

void defineArithmetic(RemoteJob& job) {
  job.defineEverywhere("add", [](Remote&, const RemoteValue& a) { return valueOf(tensorOf(a.at(0)) + tensorOf(a.at(1))); });
  job.defineEverywhere("leaf", [](Remote&, const RemoteValue& a) { return valueOf(leaf(static_cast<std::uint64_t>(a.integer()))); });
}

// Its functions may be gone before it runs: only what it expects is kept.
TEST(LocalPass, RefusesGradientsThatItDoesNotExpect) {
  const AutogradFunctions& functions = testFunctions();
  const Tensor parameter = leaf(1);
  const NodeHandle send = functions.attachSend({tanh(parameter).handle}), other = functions.attachSend({parameter.handle});
  const LocalPassHandle pass = functions.makePass({}, false);
  int leaves = 0;
  const GradientSink sink{[](AutogradMessageId, const std::vector<TensorHandle>&) {},
                          [&](const TensorHandle&, const TensorHandle&) { ++leaves; }};
  functions.expect(pass, {send});
  EXPECT_THROW(functions.run(pass, other, {constant(3).handle}, sink), Error);
  EXPECT_EQ(leaves, 0);
  functions.run(pass, send, {constant(3).handle}, sink);
  EXPECT_EQ(leaves, 1);
}

class EveryMode : public testing::TestWithParam<BackwardMode> {};

// The note's first example: t3 = worker1.add(t1, t2), t5 = t3 · t4, the loss is its sum. So dt1 = dt2 = t4 and dt4 = t1 + t2.
TEST_P(EveryMode, AddsOnThePeerAndMultipliesHere) {
  RemoteJob job(options());
  defineArithmetic(job);
  job.start();
  const Tensor t1 = leaf(1), t2 = leaf(2), t4 = leaf(4);
  {
    const OpenContext context(job.autograd(0));
    const Tensor t3 = tensorOf(job.remote(0).rpcSync("worker1", "add", RemoteValue::List{valueOf(t1), valueOf(t2)}));
    const Tensor loss = sum(t3 * t4);
    job.autograd(0).backward(context.id(), {loss.handle}, {.mode = GetParam(), .keepGraph = false, .deadline = {}});
    EXPECT_EQ(numbers(job.autograd(0).gradient(context.id(), t1.handle)), numbers(t4.handle));
    EXPECT_EQ(numbers(job.autograd(0).gradient(context.id(), t2.handle)), numbers(t4.handle));
    EXPECT_EQ(numbers(job.autograd(0).gradient(context.id(), t4.handle)), numbers((t1 + t2).handle));
    EXPECT_TRUE(gradOf(t1).empty()) << "gradients belong to the context";
    EXPECT_EQ(job.autograd(0).gradients(context.id()).size(), 3U);
    EXPECT_EQ(job.autograd(1).counts().sends, 1U);
    EXPECT_EQ(job.autograd(1).counts().receives, 1U);
  }
  expectNothingLeft(job);
}

// The second: two parameters on the peer are fetched, the loss is the sum of their sum, and an optimizer makes a step of 0.05 on each.
TEST_P(EveryMode, FetchesParametersAndUpdatesThemOnTheirOwner) {
  RemoteJob job(options());
  defineArithmetic(job);
  job.start();
  {
    const OpenContext context(job.autograd(0));
    const Reference one = job.remote(0).remote("worker1", "leaf", 1), two = job.remote(0).remote("worker1", "leaf", 2);
    const Tensor loss = sum(tensorOf(job.remote(0).toHere(one)) + tensorOf(job.remote(0).toHere(two)));
    job.autograd(0).backward(context.id(), {loss.handle}, {.mode = GetParam(), .keepGraph = false, .deadline = {}});
    OptimizerSpec sgd;
    sgd.learningRate = 0.05;
    DistributedOptimizer optimizer(job.remote(0), sgd, {one, two});
    optimizer.step(context.id());
    for (const auto& [reference, seed] : {std::pair(one, 1), std::pair(two, 2)}) {
      const auto before = numbers(leaf(static_cast<std::uint64_t>(seed)).handle), after = numbers(job.remote(0).toHere(reference).tensor());
      for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i] - 0.05, 1e-12);
    }
  }
  expectNothingLeft(job);
}

TEST(Graphs, ArePassedThroughOnceUnlessTheyAreKept) {
  RemoteJob job(options());
  job.defineEverywhere("multiply", [](Remote&, const RemoteValue& a) { return valueOf(tensorOf(a.at(0)) * tensorOf(a.at(1))); });
  job.start();
  const OpenContext context(job.autograd(0));
  const Tensor loss = sum(tensorOf(job.remote(0).rpcSync("worker1", "multiply", RemoteValue::List{valueOf(leaf(1)), valueOf(leaf(2))})));
  job.autograd(0).backward(context.id(), {loss.handle});
  try {
    job.autograd(0).backward(context.id(), {loss.handle});
    FAIL() << "the values that the product saved are gone";
  } catch (const RemoteError& problem) {
    EXPECT_EQ(problem.worker(), "worker1");
    EXPECT_NE(problem.text().find("second time"), std::string::npos) << problem.text();
  }
}

const auto kName = [](const auto& test) -> std::string {
  return test.param == BackwardMode::Fast ? "Fast" : test.param == BackwardMode::Smart ? "Smart" : "Auto";
};
INSTANTIATE_TEST_SUITE_P(Modes, EveryMode, testing::Values(BackwardMode::Fast, BackwardMode::Smart, BackwardMode::Auto), kName);

}  // namespace
}  // namespace pw::test
