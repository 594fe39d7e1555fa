#include "engine/ready_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "schedules/generate.h"
#include "tests/support/number_stage.h"

namespace pw {
namespace {

using testing::ElementsAre;

/// Opens a row's actions in their order, then takes what `hasArrived` allows until nothing is left, or may run.
std::vector<std::string> taken(const Plan& plan, Rank rank, const std::function<bool(const Action&)>& hasArrived) {
  std::vector<Op> ops;
  for (const Action& action : plan.schedule.rows[rank.index()]) ops.push_back({Op::Kind::Compute, action});
  ReadyOrder row(plan, rank, ops);
  for (const Op& op : ops) row.open(op.action);
  std::vector<std::string> order;
  while (const auto action = row.take(hasArrived)) {
    order.push_back(toString(*action));
    const bool last = row.finish(*action);
    EXPECT_EQ(last, !row.hasOpen()) << "one stage: it is done with the row";
  }
  if (row.hasOpen()) order.emplace_back("…");
  return order;
}

Plan planOf(const std::string& schedule) { return test::chainPlan(generate(schedule, {2, 2, 4}), {}); }

// The first rank of 1F1B on two ranks: F0 F1 B0 F2 B1 F3 B2 B3, at most two microbatches in flight.

TEST(ReadyOrder, WhereAllHasArrivedItIsTheRow) {
  EXPECT_THAT(taken(planOf("1f1b"), Rank(0), [](const Action&) { return true; }),
              ElementsAre("0F0", "0F1", "0B0", "0F2", "0B1", "0F3", "0B2", "0B3"));
}

TEST(ReadyOrder, AStageHasNoMoreMicrobatchesInFlightThanItsRow) {
  EXPECT_THAT(taken(planOf("1f1b"), Rank(0), [](const Action& a) { return a.kind == ActionKind::Forward; }),
              ElementsAre("0F0", "0F1", "…"));
}

TEST(ReadyOrder, ActionsOfAPartKeepTheirOrder) {
  EXPECT_THAT(taken(planOf("gpipe"), Rank(0), [](const Action& a) { return a.microbatch != Microbatch(1); }),
              ElementsAre("0F0", "0B0", "…"))
      << "F2 has arrived, but waits for F1";
}

TEST(ReadyOrder, AnActionThatIsReadyGoesAheadOfOneThatWaits) {
  int polled = 0;
  const auto late = [&](const Action& a) { return a.kind != ActionKind::Forward || a.microbatch != Microbatch(1) || ++polled > 1; };
  EXPECT_THAT(taken(planOf("gpipe"), Rank(1), late), ElementsAre("1F0", "1B0", "1F1", "1F2", "1F3", "1B1", "1B2", "1B3"));
}

TEST(ReadyOrder, AWeightGradientWaitsForNothingFromElsewhere) {
  const Plan plan = planOf("zb-h1");
  std::vector<std::string> polled;
  static_cast<void>(taken(plan, Rank(0), [&](const Action& a) {
    polled.push_back(toString(a));
    return true;
  }));
  EXPECT_THAT(polled, testing::Each(testing::Not(testing::HasSubstr("W"))));
  EXPECT_EQ(polled.size(), 8U) << "four F and four I, each when it is its turn";
}

}  // namespace
}  // namespace pw
