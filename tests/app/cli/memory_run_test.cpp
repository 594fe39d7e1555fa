// What a plan says of its ranks' memory, and what the ranks allocate.

#include <algorithm>
#include <cctype>
#include <ostream>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

struct MemoryCase {
  std::string model, schedule, recompute, split{};

  friend void PrintTo(const MemoryCase& c, std::ostream* out) { *out << c.model << ", " << c.schedule << ", recompute " << c.recompute; }
};

std::string nameOf(const testing::TestParamInfo<MemoryCase>& test) {
  std::string name = test.param.model + "_" + test.param.schedule + "_" + test.param.recompute + "_" + test.param.split;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_'; });
  return name;
}

/// Of the ranks of a plan: the most bytes in a step after the first, against the prediction.
void expectPredicted(std::vector<std::string> arguments, double tolerance) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  arguments.insert(arguments.end(), {"--ranks", "2", "--out", plan});
  const Outcome made = call(arguments);  // measured, as estimates know no allocator
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
    EXPECT_NEAR(most / said, 1, tolerance) << "rank " << r << ": " << most << " bytes, and the plan says " << said;
  }
}

class MemoryOfRanks : public testing::TestWithParam<MemoryCase> {};

/// Splits that balance parameters do not depend on measured times. A message that waits to be sent may be there or not: two hundredths.
TEST_P(MemoryOfRanks, IsWhatThePlanSays) {
  const MemoryCase& c = GetParam();
  expectPredicted(
      {"plan", sample(c.model), "--microbatches", "4", "--schedule", c.schedule, "--recompute", c.recompute, "--balance", "parameters"},
      0.02);
}

class MemoryOfOneMicrobatch : public testing::TestWithParam<MemoryCase> {};

/// One tensor that crosses the cut is more than the tolerance: each is counted from where it is made to where it is freed.
TEST_P(MemoryOfOneMicrobatch, CountsEveryTensor) {
  const MemoryCase& c = GetParam();
  expectPredicted(
      {"plan", sample(c.model), "--microbatches", "1", "--schedule", c.schedule, "--recompute", c.recompute, "--split", c.split}, 0.003);
}

TEST(ProcessOfRanks, HoldsLessWithoutTheOperatorsOfOtherRanks) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const Outcome made = call({"plan", sample("vit_small"), "--ranks", "2", "--schedule", "1f1b", "--microbatches", "4", "--out", plan});
  ASSERT_EQ(made.status, 0) << made.err;
  const Json predicted = Json::parse(call({"simulate", plan, "--json"}).out)["ranks"];
  const Json run = Json::parse(finish({"run", plan, "--steps", "3", "--json"}).out);
  const auto beside = [](const Json& process, const char* resident, const Json& rank) {
    return process[resident].get<double>() - rank["peak_bytes"].get<double>();
  };
  const double expected = beside(predicted[0], "resident_bytes", predicted[0]) - beside(predicted[1], "resident_bytes", predicted[1]);
  const Json &processes = run["processes"], &ranks = run["steps"].back()["ranks"];
  const double found = beside(processes[0], "resident_peak_bytes", ranks[0]) - beside(processes[1], "resident_peak_bytes", ranks[1]);
  EXPECT_GT(expected, 3e6) << "what the only convolution loads, less what the loss does";
  EXPECT_GT(found, 3e6);
}

INSTANTIATE_TEST_SUITE_P(Of, MemoryOfRanks,
                         testing::Values(MemoryCase{"gpt_small", "gpipe", "none"}, MemoryCase{"gpt_small", "1f1b", "full"},
                                         MemoryCase{"gpt_small", "auto", "none"}, MemoryCase{"hf_bert", "zb-h1", "none"},
                                         MemoryCase{"hf_bert", "zbv", "none"}, MemoryCase{"hf_gpt2", "zb-h1", "full"},
                                         MemoryCase{"vit_small", "gpipe", "full"}, MemoryCase{"vit_small", "1f1b", "none"}),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(Of, MemoryOfOneMicrobatch,
                         testing::Values(MemoryCase{"gpt_split", "zb-h1", "none", "blocks.2.attention.query_key_value:end"},
                                         MemoryCase{"gpt_split", "zb-h1", "none", "blocks.2"},
                                         MemoryCase{"gpt_split", "1f1b", "full", "blocks.2"},
                                         MemoryCase{"gpt_small", "zb-h1", "full", "blocks.1"},
                                         // the gradient of what the stage adds last is held by a W, too
                                         MemoryCase{"gpt_small", "zb-h1", "none", "blocks.2.attention.query_key_value:end"},
                                         // attention with dropout keeps copies of what the stage receives
                                         MemoryCase{"hf_bert", "gpipe", "none", "bert.encoder.layer.2.attention.self.key:end"},
                                         // W's of both stages hold one value
                                         MemoryCase{"resnet18_narrow", "zb-h1", "none", "layer3.0.bn1"}),
                         nameOf);

}  // namespace
}  // namespace pw::test
