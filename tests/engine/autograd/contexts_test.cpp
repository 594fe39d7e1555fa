#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/engine/autograd/programs.h"

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

TEST(Contexts, HaveIdsThatSayWhoMadeThem) {
  RemoteJob job(options(3));
  job.start();
  std::set<ContextId> ids;
  for (int worker = 0; worker < 3; ++worker) {
    for (int i = 0; i < 10; ++i) {
      const OpenContext context(job.autograd(worker));
      EXPECT_EQ(context.id().maker(), JobRank(worker));
      EXPECT_EQ(context.id().value >> 48U, static_cast<std::uint64_t>(worker));
      EXPECT_EQ(currentContext(), context.id());
      EXPECT_TRUE(ids.insert(context.id()).second);
    }
  }
  EXPECT_EQ(currentContext(), ContextId());
}

TEST(SendAndReceive, AreAttachedOnlyWhereATensorNeedsAGradientAndAContextIsOpen) {
  RemoteJob job(options(2));
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  EXPECT_FALSE(needsGradient(tensorOf(job.remote(0).rpcSync("worker1", "echo", valueOf(leaf(1)))))) << "no context is open";
  const OpenContext context(job.autograd(0));
  EXPECT_FALSE(needsGradient(tensorOf(job.remote(0).rpcSync("worker1", "echo", valueOf(constant(1))))));
  EXPECT_EQ(numbers(job.remote(0).rpcSync("worker1", "echo", valueOf(integers())).tensor()), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(job.autograd(0).counts().sends + job.autograd(0).counts().receives, 0U);
  EXPECT_EQ(job.autograd(1).counts().contexts, 1U) << "calls made there belong to it";
  EXPECT_TRUE(hasGradFn(tensorOf(job.remote(0).rpcSync("worker1", "echo", valueOf(leaf(1))))));
  EXPECT_EQ(job.autograd(0).counts().sends, 1U);
  EXPECT_EQ(job.autograd(0).counts().receives, 1U);
}

TEST(SendAndReceive, SayWhereATensorCameFromWhenABackwardIsLocal) {
  RemoteJob job(options(2));
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  const OpenContext context(job.autograd(0));
  const Tensor loss = sum(tensorOf(job.remote(0).rpcSync("worker1", "echo", valueOf(leaf(1)))));
  EXPECT_THAT([&] { localBackward({loss}); }, testing::ThrowsMessage<std::exception>(HasSubstr("came from worker1")));
}

TEST(Contexts, AddTheGradientsOfSeveralPasses) {
  RemoteJob job(options(2));
  const Program program = programs().at("OneCall");
  Parameters parameters;
  define(job, program, parameters);
  job.start();
  Here here = hereOn(job.remote(0), parameters);
  const Outcome once = runInOneThread(program);
  const OpenContext context(job.autograd(0));
  const Tensor loss = program.main(here);
  job.autograd(0).backward(context.id(), {loss.handle}, {.mode = BackwardMode::Auto, .keepGraph = true, .deadline = {}});
  job.autograd(0).backward(context.id(), {loss.handle}, {.mode = BackwardMode::Fast, .keepGraph = false, .deadline = {}});
  for (const auto& [key, gradient] : once.gradients) {
    const auto twice = numbers(job.autograd(key.first).gradient(context.id(), parameters.get(key.first, key.second).handle));
    ASSERT_EQ(twice.size(), gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(twice[i], 2 * gradient[i], 1e-9);
  }
}

TEST(Contexts, AThousandLeaveNothingBehind) {
  RemoteJob job(options(3, 7));
  std::map<std::string, Program> all = programs();
  const Program circle = all.at("CircleOfWorkers"), unused = all.at("UnusedProductOfTheNote"), failing = all.at("ExceptionThatIsCaught");
  Parameters parameters;
  define(job, circle, parameters);
  job.start();
  for (int i = 0; i < 1000; ++i) {
    const Program& program = i % 10 == 1 ? unused : i % 10 == 2 ? failing : circle;
    try {
      (void)runOverWorkers(job, program, parameters, i % 2 == 0 ? BackwardMode::Auto : BackwardMode::Fast);
      EXPECT_NE(i % 10, 1) << "FAST takes no unused messages";
    } catch (const Error&) {
      EXPECT_EQ(i % 10, 1);
    }
  }
  expectNothingLeft(job);
}

// Calls that nobody waits for are on their way, or running, when their context ends.
TEST(Contexts, LeaveNothingBehindWhenTheyEndBeforeTheirCalls) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RemoteJob job(options(4, seed));
    const Program program = randomProgram(seed, true);
    Parameters parameters;
    define(job, program, parameters);
    job.start();
    for (int i = 0; i < 5; ++i) {
      const OpenContext context(job.autograd(i % 4));
      for (int k = 0; k < 4; ++k) {
        (void)job.remote(i % 4).rpcAsync("worker" + std::to_string(k), "mix", RemoteValue::List{i + 10 * k, 3, valueOf(leaf(2))});
      }
    }
    expectNothingLeft(job);
  }
}

// Four threads on each of three workers run programs at once, each in contexts of its own.
TEST(Contexts, DoNotMixInSeveralThreadsAndWorkers) {
  const std::map<std::string, Program> all = programs();
  RemoteJob job(options(3, 3));
  Parameters parameters;
  define(job, all.begin()->second, parameters);
  job.start();
  std::vector<std::thread> threads;
  for (const char* name : {"CircleOfWorkers", "OneTensorToTwoWorkersAndBack", "SharedParameters", "UnusedDeepInAChain"}) {
    const Program& program = all.at(name);
    threads.emplace_back([&] {
      const Outcome expected = runInOneThread(program);
      for (int i = 0; i < 20; ++i) {
        Here here = hereOn(job.remote(0), parameters);
        const OpenContext context(job.autograd(0));
        const Tensor loss = program.main(here);
        job.autograd(0).backward(context.id(), {loss.handle});
        for (const auto& [key, gradient] : expected.gradients) {
          std::vector<double> found;
          try {
            found = numbers(job.autograd(key.first).gradient(context.id(), parameters.get(key.first, key.second).handle));
          } catch (const UsageError&) {  // never there
          }
          ASSERT_EQ(found.size(), gradient.size());
          for (std::size_t k = 0; k < gradient.size(); ++k) EXPECT_NEAR(found[k], gradient[k], 1e-6 * std::abs(gradient[k]) + 1e-12);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expectNothingLeft(job);
}

}  // namespace
}  // namespace pw::test
