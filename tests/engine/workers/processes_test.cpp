// Distributed autograd over processes: the programs of tests/engine/autograd and the examples of PyTorch's note.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <sstream>

#include "engine/processes/launcher.h"
#include "tests/engine/autograd/programs.h"

namespace pw::test {
namespace {

using namespace std::chrono_literals;
using Printed = std::map<std::string, std::vector<double>>;

/// Runs a job of remote_child and returns what its workers printed.
Printed run(int workers, const std::vector<std::string>& words) {
  std::vector<std::string> argv{REMOTE_CHILD};
  argv.insert(argv.end(), words.begin(), words.end());
  Printed printed;
  const auto take = [&](JobRank, const std::string& line) {
    std::istringstream in(line);
    std::string name;
    in >> name;
    std::vector<double>& values = printed[name];
    for (std::string value; in >> value;) values.push_back(std::stod(value));
  };
  const LaunchResult result = launch(workers, argv, 1, take, 300s);
  EXPECT_TRUE(result.ok) << result.failure;
  return printed;
}

Outcome outcomeOf(const std::string& name, const Printed& printed, const Outcome& expected) {
  const auto at = [&](const std::string& key) { return printed.contains(key) ? printed.at(key) : std::vector<double>(); };
  const std::vector<double> loss = at(name + "/loss");
  Outcome outcome{loss.size() == 1 ? loss[0] : std::nan(""), {}};
  for (const auto& [key, gradient] : expected.gradients)
    outcome.gradients[key] = at(name + "/" + std::to_string(key.first) + "/" + std::to_string(key.second));
  return outcome;
}

class OverProcesses : public testing::TestWithParam<std::string> {};

void expectAsInOneProcess(const std::string& transport, const std::string& mode, std::uint64_t count) {
  constexpr std::uint64_t kFirst = 1;
  const bool dropsSome = mode != "fast";
  const Printed printed = run(4, {"programs", transport, mode, std::to_string(kFirst), std::to_string(count)});
  const auto check = [&](const std::string& name, const Program& program) {
    SCOPED_TRACE(name);
    const Outcome expected = runInOneThread(program);
    expectEqual(outcomeOf(name, printed, expected), expected);
  };
  for (const auto& [name, program] : programs()) {
    if (dropsSome || usesAll(name)) check(name, program);
  }
  for (std::uint64_t seed = kFirst; seed < kFirst + count; ++seed) check("seed" + std::to_string(seed), randomProgram(seed, dropsSome));
}

TEST_P(OverProcesses, ProgramsWhoseValuesAreAllUsedHaveTheGradientsOfOneProcessInFastMode) {
  expectAsInOneProcess(GetParam(), "fast", 200);
}
TEST_P(OverProcesses, ProgramsThatDropAThirdHaveTheGradientsOfOneProcessInSmartMode) { expectAsInOneProcess(GetParam(), "smart", 200); }

// d(t3 · t4) with t3 = t1 + t2 is t4 for t1 and t2, and t1 + t2 for t4; the gradient of each parameter is 1, so a step of 0.05 takes 0.05.
TEST_P(OverProcesses, TheExamplesOfTheNoteHaveTheirGradientsAndSteps) {
  for (const int workers : {2, 3}) {
    const Printed printed = run(workers, {"note", GetParam()});
    EXPECT_EQ(printed.size(), 5U * static_cast<std::size_t>(workers));
    for (int worker = 0; worker < workers; ++worker) {
      const auto seed = [worker](int number) { return static_cast<std::uint64_t>(100 * worker + number); };
      const auto found = [&](const char* what, int number) {
        const auto entry = printed.find(what + std::string("/") + std::to_string(worker) + "/" + std::to_string(number));
        return entry == printed.end() ? std::vector<double>() : entry->second;
      };
      EXPECT_EQ(found("add", 1), numbers(leaf(seed(4)).handle));
      EXPECT_EQ(found("add", 2), numbers(leaf(seed(4)).handle));
      EXPECT_EQ(found("add", 4), numbers((leaf(seed(1)) + leaf(seed(2))).handle));
      for (const int number : {5, 6}) {
        std::vector<double> expected = numbers(leaf(seed(number)).handle);
        for (double& value : expected) value -= 0.05;
        EXPECT_THAT(found("step", number), testing::Pointwise(testing::DoubleNear(1e-12), expected));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, OverProcesses, testing::Values("ucx", "gloo"), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace pw::test
