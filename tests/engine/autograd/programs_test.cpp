#include "tests/engine/autograd/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/counts.h"

namespace pw::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

JobOptions options(int workers, std::uint64_t seed) {
  JobOptions options;
  options.workers = workers;
  options.functions = &testFunctions();
  options.seed = seed;
  options.deadline = std::chrono::seconds(60);
  return options;
}

class EveryProgram : public testing::TestWithParam<std::string> {
 protected:
  Program program = programs().at(GetParam());
  Outcome expected = runInOneThread(program);

  void expectEqualIn(BackwardMode mode) {
    for (const std::uint64_t seed : {0, 1, 2, 3}) {
      Parameters parameters;
      RemoteJob job(options(program.workers, seed));
      define(job, program, parameters);
      job.start();
      expectEqual(runOverWorkers(job, program, parameters, mode), expected);
      expectNothingLeft(job);
    }
  }
};

TEST_P(EveryProgram, HasTheGradientsOfOneProcessInSmartMode) { expectEqualIn(BackwardMode::Smart); }
TEST_P(EveryProgram, HasTheGradientsOfOneProcessInAutoMode) { expectEqualIn(BackwardMode::Auto); }

std::vector<std::string> names(bool unused) {
  std::vector<std::string> all;
  for (const auto& [name, program] : programs()) {
    if (unused || usesAll(name)) all.push_back(name);
  }
  return all;
}

class FastProgram : public EveryProgram {};
TEST_P(FastProgram, HasTheGradientsOfOneProcessInFastMode) { expectEqualIn(BackwardMode::Fast); }

const auto kName = [](const auto& test) { return test.param; };
INSTANTIATE_TEST_SUITE_P(Programs, EveryProgram, testing::ValuesIn(names(true)), kName);
INSTANTIATE_TEST_SUITE_P(Programs, FastProgram, testing::ValuesIn(names(false)), kName);

// Worker 0 uses t, sends it to worker 1 and uses what comes back; worker 1 also sends it on to worker 2 for nothing. Both wait.
TEST(FastMode, NamesTheMessageThatIsNotUsedAndNotOneAfterIt) {
  RemoteJob job(options(3, 0));
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.defineEverywhere("wasteful", [](Remote& here, const RemoteValue& value) -> RemoteValue {
    (void)here.rpcSync("worker2", "echo", value);
    return valueOf(tanh(tensorOf(value)));
  });
  job.start();
  const OpenContext context(job.autograd(0));
  const Tensor t = tanh(leaf(1));
  const Tensor loss = sum(t * tensorOf(job.remote(0).rpcSync("worker1", "wasteful", valueOf(t))));
  try {
    job.autograd(0).backward(context.id(), {loss.handle}, {.mode = BackwardMode::Fast, .keepGraph = false, .deadline = {}});
    FAIL() << "FAST takes no unused messages";
  } catch (const Error& problem) {
    EXPECT_THAT(problem.what(), AllOf(HasSubstr("worker1 waits for the gradient"), HasSubstr("sent to worker2"), HasSubstr("SMART")));
  }
}

TEST(FastMode, NamesTheMessageThatNobodyUsesAndSmartMode) {
  const Program program = programs().at("UnusedProductOfTheNote");
  Parameters parameters;
  RemoteJob job(options(2, 0));
  define(job, program, parameters);
  job.start();
  EXPECT_THAT([&] { (void)runOverWorkers(job, program, parameters, BackwardMode::Fast); },
              testing::ThrowsMessage<Error>(
                  AllOf(HasSubstr("worker0 waits for the gradient of message"), HasSubstr("it sent to worker1"), HasSubstr("SMART"))));
  expectNothingLeft(job);
}

/// How many random programs, by PW_RANDOM_GRAPHS.
std::uint64_t count() { return countFrom("PW_RANDOM_GRAPHS", 500); }

/// One job runs many programs one after the other: a new one for each hundred.
void runRandom(BackwardMode mode, bool dropsSome) {
  for (std::uint64_t first = 1; first <= count(); first += 100) {
    Parameters parameters;
    RemoteJob job(options(4, first));
    const Program any = randomProgram(first, dropsSome);
    define(job, any, parameters);
    job.start();
    for (std::uint64_t seed = first; seed < first + 100 && seed <= count(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const Program program = randomProgram(seed, dropsSome);
      const Outcome expected = runInOneThread(program);
      Outcome outcome = runOverWorkers(job, program, parameters, mode);
      for (auto entry = outcome.gradients.begin(); entry != outcome.gradients.end();) {  // parameters of earlier programs
        entry = expected.gradients.contains(entry->first) ? std::next(entry) : outcome.gradients.erase(entry);
      }
      expectEqual(outcome, expected);
      if (testing::Test::HasFailure()) return;
    }
    expectNothingLeft(job);
  }
}

TEST(RandomPrograms, HaveTheGradientsOfOneProcessInFastMode) { runRandom(BackwardMode::Fast, false); }
TEST(RandomPrograms, HaveTheGradientsOfOneProcessInSmartModeWithAThirdUnused) { runRandom(BackwardMode::Smart, true); }
TEST(RandomPrograms, HaveTheGradientsOfOneProcessInAutoModeWithAThirdUnused) { runRandom(BackwardMode::Auto, true); }

}  // namespace
}  // namespace pw::test
