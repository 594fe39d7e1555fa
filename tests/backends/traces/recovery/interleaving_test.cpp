// Which interleaved 1F1B a job did, by the order and times of its actions alone.
#include "backends/traces/recovery/interleaving.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "schedules/generate.h"
#include "simulator/layout/rules.h"
#include "simulator/step/simulate.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

/// As a trace without names shows it; `skew`: what the clock of each next rank is ahead.
UnnamedStep stepOf(const Schedule& schedule, const CostTable& costs, Ns skew) {
  const std::size_t ranks = schedule.rows.size();
  UnnamedStep step{std::vector<std::vector<std::pair<Ns, Ns>>>(ranks), std::vector<std::vector<std::pair<Ns, Ns>>>(ranks)};
  for (const Span& span : simulate(schedule, costs).spans) {
    if (!isCompute(span.kind)) continue;
    auto& rows = span.kind == SpanKind::Forward ? step.forwards : step.backwards;
    const Ns ahead = skew * span.rank.value;
    rows[span.rank.index()].emplace_back(span.start + ahead, span.end + ahead);
  }
  return step;
}

TEST(Interleaving, IsFoundForAllGroupsThatMegatronTakes) {
  int checked = 0, ofSeveral = 0;
  std::mt19937_64 random(5);
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (int chunks = 2; chunks <= 4; ++chunks) {
      for (int microbatches = ranks; microbatches <= 6 * ranks; ++microbatches) {
        for (int group = ranks; group <= microbatches; ++group) {
          if (refusalOfMicrobatches(ranks, chunks, microbatches, group)) continue;
          const Schedule schedule = interleavedWithGroups({ranks, ranks * chunks, microbatches}, group);
          CostTable costs;
          for (int s = 0; s < ranks * chunks; ++s) {
            StageCost& stage = costs.stages.emplace_back();
            stage.forward = draw<Ns>(random, 900, 1'100);
            stage.backward = 2 * stage.forward;
          }
          for (int s = 1; s < ranks * chunks; ++s) {
            costs.messages.push_back({Stage(s - 1), Stage(s), false, 0, 30, 0});
            costs.messages.push_back({Stage(s), Stage(s - 1), true, 0, 30, 0});
          }
          for (const Ns skew : {Ns(0), Ns(-700), Ns(12'345)}) {
            const UnnamedStep step = stepOf(schedule, costs, skew);
            const auto found = interleavingOf(step);
            ASSERT_TRUE(found) << ranks << " ranks, " << chunks << " chunks, " << microbatches << " in groups of " << group;
            EXPECT_EQ(found->chunks, chunks) << ranks << " ranks, " << microbatches << " in groups of " << group << ", skew " << skew.value;
            EXPECT_EQ(found->microbatches, microbatches);
            EXPECT_EQ(found->group, group);
            ++checked;
            ofSeveral += group > ranks ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 300);
  EXPECT_GT(ofSeveral, 200);
}

TEST(Interleaving, IsNotFoundInOtherOrders) {
  CostTable costs;
  costs.stages.resize(4);
  for (StageCost& stage : costs.stages) stage.forward = 10, stage.backward = 20;
  EXPECT_FALSE(interleavingOf(stepOf(generate("1f1b", {4, 4, 8}), costs, 0)));
  EXPECT_FALSE(interleavingOf({}));
  EXPECT_FALSE(interleavingOf({{{}}, {{}}}));
}

}  // namespace
}  // namespace pw::test
