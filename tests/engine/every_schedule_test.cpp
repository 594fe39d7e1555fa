// Every schedule of the language on every sample: loss and gradients of a step equal those on one rank with the same microbatches
// (torch.testing's tolerances for float32), for R in 1..4 and M of 4, 8 and the least that the schedule's rule allows.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "schedules/error.h"
#include "tests/support/training.h"

namespace pw {
namespace {

struct Case {
  std::string model, loss;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.model; }
};

class EverySchedule : public testing::TestWithParam<Case> {};

/// M of 4 and 8 where the rule allows them, and the least that it allows.
std::set<int> microbatchesFor(const Generator& generator, int ranks) {
  const auto allows = [&](int m) { return !generator.refusal || !generator.refusal({ranks, ranks * generator.chunks, m}); };
  std::set<int> all;
  for (const int m : {4, 8}) {
    if (allows(m)) all.insert(m);
  }
  for (int m = 1; m <= 8; ++m) {
    if (!allows(m)) continue;
    all.insert(m);
    break;
  }
  return all;
}

TEST_P(EverySchedule, GivesTheLossAndGradientsOfOneRank) {
  const ModelGraph graph = test::sample(GetParam().model);
  test::ThreadOptions options;
  options.stage.seed = 7;
  const std::int64_t size = batchSymbol(graph).empty() ? exportedBatch(graph) : 1;
  std::map<int, test::Trained> alone;  // by M
  int runs = 0;
  for (const Generator& generator : generators()) {
    if (generator.name == "forward-only") continue;
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int m : microbatchesFor(generator, ranks)) {
        SCOPED_TRACE(GetParam().model + ", " + std::string(generator.name) + ", R = " + std::to_string(ranks) +
                     ", M = " + std::to_string(m));
        if (!alone.contains(m))
          alone[m] = test::trainInThreads(graph, test::planFor(graph, "gpipe", 1, m, size * m, GetParam().loss), 1, options);
        const test::Trained& expected = alone[m];
        const Plan plan = test::planFor(graph, std::string(generator.name), ranks, m, size * m, GetParam().loss);
        int unequalCopies = 0;
        const test::Trained actual = test::trainInThreads(graph, plan, 1, options, &unequalCopies);
        EXPECT_LE(std::abs(actual.losses[0] - expected.losses[0]), 1e-5 + 1.3e-6 * std::abs(expected.losses[0]));
        EXPECT_EQ(test::firstDifference(actual.gradients, expected.gradients, 1e-5, 4e-5), "");
        EXPECT_EQ(unequalCopies, 0) << "copies of a parameter differ";
        ++runs;
      }
    }
  }
  RecordProperty("runs", runs);
  EXPECT_GE(runs, 100);
}

INSTANTIATE_TEST_SUITE_P(Samples, EverySchedule,
                         testing::Values(Case{"gpt_small", "cross_entropy"}, Case{"gpt_split", "cross_entropy"},
                                         Case{"hf_gpt2", "cross_entropy"}, Case{"hf_llama", "output:loss"},
                                         Case{"hf_bert", "cross_entropy"}, Case{"resnet18_narrow", "cross_entropy"},
                                         Case{"vit_small", "cross_entropy"}, Case{"example_code", "mse"},
                                         Case{"two_part_a+two_part_b", "cross_entropy"}, Case{"recurrent", "cross_entropy"},
                                         Case{"unet", "cross_entropy"}, Case{"several_inputs", "mse"}, Case{"mixed", "cross_entropy"},
                                         Case{"attention", "sum"}),
                         [](const auto& test) {
                           std::string name = test.param.model;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

}  // namespace
}  // namespace pw
