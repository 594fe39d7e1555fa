// What a plan says of its ranks' memory, and what the ranks allocate.

#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

struct MemoryCase {
  std::string model, schedule, recompute;

  friend void PrintTo(const MemoryCase& c, std::ostream* out) { *out << c.model << ", " << c.schedule << ", recompute " << c.recompute; }
};

class MemoryOfRanks : public testing::TestWithParam<MemoryCase> {};

/// Splits that balance parameters do not depend on measured times. A message that waits to be sent may be there or not: two hundredths.
TEST_P(MemoryOfRanks, IsWhatThePlanSays) {
  const MemoryCase& c = GetParam();
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const Outcome made = call({"plan", sample(c.model), "--ranks", "2", "--microbatches", "4", "--schedule", c.schedule, "--recompute",
                             c.recompute, "--balance", "parameters", "--out", plan});  // measured, as estimates know no allocator
  ASSERT_EQ(made.status, 0) << made.err;
  const Outcome predicted = call({"simulate", plan, "--json"});
  ASSERT_EQ(predicted.status, 0) << predicted.err;
  const Outcome outcome = finish({"run", plan, "--steps", "3", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json run = Json::parse(outcome.out), simulated = Json::parse(predicted.out);
  for (std::size_t r = 0; r < 2; ++r) {
    double most = 0;
    for (std::size_t step = 1; step < 3; ++step) most = std::max(most, run["steps"][step]["ranks"][r]["peak_bytes"].get<double>());
    const double said = simulated["ranks"][r]["peak_bytes"];
    EXPECT_NEAR(most / said, 1, 0.02) << "rank " << r << ": " << most << " bytes, and the plan says " << said;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, MemoryOfRanks,
                         testing::Values(MemoryCase{"gpt_small", "gpipe", "none"}, MemoryCase{"gpt_small", "1f1b", "full"},
                                         MemoryCase{"gpt_small", "auto", "none"}, MemoryCase{"hf_bert", "zb-h1", "none"},
                                         MemoryCase{"hf_bert", "zbv", "none"}, MemoryCase{"hf_gpt2", "zb-h1", "full"},
                                         MemoryCase{"vit_small", "gpipe", "full"}, MemoryCase{"vit_small", "1f1b", "none"}),
                         [](const auto& test) {
                           std::string name = test.param.model + "_" + test.param.schedule + "_" + test.param.recompute;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace pw::test
