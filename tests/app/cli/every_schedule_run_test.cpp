// Every schedule, and every transport, once with real processes: the step is that of one rank.

#include <ostream>

#include <nlohmann/json.hpp>

#include "schedules/generate.h"
#include "simulator/order/problem/made_schedules.h"
#include "tests/app/cli/job.h"
#include "tests/support/host_transports.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

struct ScheduleCase {
  std::string schedule, transport;

  friend void PrintTo(const ScheduleCase& c, std::ostream* out) { *out << c.schedule << " over " << c.transport; }
};

std::vector<ScheduleCase> cases() {
  std::vector<ScheduleCase> all;
  for (const Generator& generator : generators()) {
    if (generator.name == "forward-only") continue;
    for (const Transport transport : hostTransports()) all.push_back({std::string(generator.name), std::string(nameOf(transport))});
  }
  for (const MadeSchedule& made : kMadeSchedules) all.push_back({std::string(made.name), std::string(nameOf(hostTransports().front()))});
  return all;
}

class RealProcesses : public testing::TestWithParam<ScheduleCase> {};

TEST_P(RealProcesses, TakeTheStepOfOneRank) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4", "--schedule", GetParam().schedule});
  const Outcome outcome = finish({"run", plan, "--backend", GetParam().transport, "--steps", "2", "--verify", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json run = Json::parse(outcome.out);
  EXPECT_EQ(run["verification"]["equal"], true) << run["verification"];
  EXPECT_LT(run["losses"][1], run["losses"][0]) << "the same synthetic batch is learned";
}

INSTANTIATE_TEST_SUITE_P(Of, RealProcesses, testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.schedule + "_over_" + test.param.transport;
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace pw::test
