#include "schedules/lower.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "tests/support/split_backward.h"

namespace pw {
namespace {

Schedule parsed(const std::string& csv) { return parseCsv(csv, "test", "test.csv"); }

std::vector<std::string> cells(const std::vector<Action>& row) {
  std::vector<std::string> out;
  for (const Action& action : row) out.push_back(toString(action));
  return out;
}

Schedule withoutIdle(Schedule schedule) {
  for (auto& row : schedule.rows) std::erase(row, kIdle);
  return schedule;
}

TEST(Lower, AReceiveStandsInTheGapOfItsMomentAndASendAfterItsAction) {
  // F = 1, B = 2: rank 0 is done with F0 at 1 and F1 at 2; rank 1 does F0 from 1 to 2 and B0 from 2 to 4. So 1RECV_F1 is due at 2, before
  // B0.
  const Schedule lowered = lower(generate("1f1b", {2, 2, 2}));
  EXPECT_EQ(cells(lowered.rows[0]), (std::vector<std::string>{"0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1"}));
  EXPECT_EQ(cells(lowered.rows[1]), (std::vector<std::string>{"1RECV_F0", "1F0", "1RECV_F1", "1B0", "1SEND_B0", "1F1", "1B1", "1SEND_B1"}));
}

TEST(Lower, AMiddleStageReceivesAndSendsBothWays) {
  const Schedule lowered = lower(generate("gpipe", {3, 3, 1}));
  EXPECT_EQ(cells(lowered.rows[1]), (std::vector<std::string>{"1RECV_F0", "1F0", "1SEND_F0", "1RECV_B0", "1B0", "1SEND_B0"}));
}

TEST(Lower, AForwardOnlyScheduleGetsNoBackwardMessages) {
  const Schedule lowered = lower(generate("forward-only", {2, 2, 2}));
  EXPECT_EQ(toCsv(lowered), "0F0,0SEND_F0,0F1,0SEND_F1\r\n1RECV_F0,1F0,1RECV_F1,1F1\r\n");
}

TEST(Lower, StagesOnOneRankHandOverWithoutMessages) {
  // V placement: stages 0 and 3 on rank 0, 1 and 2 on rank 1; only 0-1 and 2-3 cross ranks.
  const Schedule lowered = lower(parsed("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"));
  EXPECT_EQ(cells(lowered.rows[0]), (std::vector<std::string>{"0F0", "0SEND_F0", "3RECV_F0", "3F0", "3B0", "3SEND_B0", "0RECV_B0", "0B0"}));
  EXPECT_EQ(cells(lowered.rows[1]), (std::vector<std::string>{"1RECV_F0", "1F0", "2F0", "2SEND_F0", "2RECV_B0", "2B0", "1B0", "1SEND_B0"}));
  EXPECT_EQ(lower(generate("gpipe", {1, 1, 4})), generate("gpipe", {1, 1, 4}));
}

TEST(Lower, ASplitBackwardSendsTheInputGradientBeforeTheWeightGradient) {
  const Schedule lowered = lower(parsed("0F0,0I0,0W0\n1F0,1I0,1W0\n"));
  EXPECT_EQ(cells(lowered.rows[0]), (std::vector<std::string>{"0F0", "0SEND_F0", "0RECV_B0", "0I0", "0W0"}));
  EXPECT_EQ(cells(lowered.rows[1]), (std::vector<std::string>{"1RECV_F0", "1F0", "1I0", "1SEND_B0", "1W0"}));
}

TEST(Lower, ActionsOfWholeStagesStayInPlace) {
  const Schedule lowered = lower(parsed("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n1F0,1B0,1REDUCE_GRAD\n"));
  EXPECT_EQ(cells(lowered.rows[0]),
            (std::vector<std::string>{"0UNSHARD", "0F0", "0SEND_F0", "0RECV_B0", "0B0", "0REDUCE_GRAD", "0RESHARD"}));
}

TEST(Lower, OfEveryGeneratedScheduleCanBeUndoneAndRepeated) {
  for (const Generator& generator : generators()) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int microbatches = 1; microbatches <= 13; ++microbatches) {
        const Shape shape{ranks, ranks * generator.chunks, microbatches};
        if (generator.refusal(shape)) continue;
        const Schedule lowered = lower(generate(generator.name, shape));
        ASSERT_EQ(computeOnly(lowered), withoutIdle(generate(generator.name, shape))) << generator.name;
        ASSERT_EQ(lower(lowered), lowered) << generator.name;
      }
    }
  }
}

TEST(Lower, AnOverlappedPairReceivesBeforeAndSendsAfterBoth) {
  const Schedule lowered = lower(parsed("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"));
  EXPECT_EQ(toCsv(lowered).substr(0, 89), "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,(0F2;0B0)OVERLAP_F_B,0SEND_F2,0RECV_B1,0B1,0RECV_B2,0B");
}

TEST(Lower, RefusesWhatCannotRun) {
  const auto refusal = [](const Schedule& schedule) -> std::string {
    try {
      (void)lower(schedule);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(parsed("0B0,0F0\n1F0,1B0\n")),
            "schedule test cannot be lowered: rank 0 waits at 0B0 for something that never happens; `pipewright check` says why");
  Schedule outside = generate("1f1b", {2, 2, 2});
  outside.rows[1][0].microbatch = Microbatch{7};
  EXPECT_NE(refusal(outside).find("1F7 lies outside its 2 stages and 2 microbatches"), std::string::npos);
}

TEST(Lower, StagesThatTakeNoTimeSendAfterTheirActionsToo) {
  for (const Generator& generator : generators()) {
    const Schedule compute = generate(generator.name, {4, 4 * generator.chunks, 8});
    for (const Ns forward : {Ns(0), Ns(1)}) {
      const std::size_t stages = compute.placement.stages();
      const ActionTimes times{std::vector<Ns>(stages, forward), std::vector<Ns>(stages, Ns(1) - forward), std::vector<Ns>(stages, 0),
                              std::vector<Ns>(stages, 0)};
      const std::vector<Problem> problems = check(lower(compute, times));
      EXPECT_TRUE(problems.empty()) << generator.name << ": " << problems.front().message;
    }
  }
}

TEST(WithReductions, StandAfterTheLastBackwardOfTheirStageAndItsSends) {
  const Schedule reduced = withReductions(lower(generate("1f1b", {2, 2, 2})));
  EXPECT_EQ(cells(reduced.rows[0]),
            (std::vector<std::string>{"0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1", "0REDUCE_GRAD"}));
  EXPECT_EQ(cells(reduced.rows[1]),
            (std::vector<std::string>{"1RECV_F0", "1F0", "1RECV_F1", "1B0", "1SEND_B0", "1F1", "1B1", "1SEND_B1", "1REDUCE_GRAD"}));
  // Of a split backward the W counts, wherever the I was; of an overlapped pair its end.
  EXPECT_EQ(toCsv(withReductions(parsed("0F0,1F0,1I0,0I0,0W0,1W0\n"))), "0F0,1F0,1I0,0I0,0W0,0REDUCE_GRAD,1W0,1REDUCE_GRAD\r\n");
  EXPECT_EQ(toCsv(withReductions(parsed("0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,0B0,0B1\n"))),
            "0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,1REDUCE_GRAD,0B0,0B1,0REDUCE_GRAD\r\n");
  EXPECT_EQ(withReductions(generate("forward-only", {2, 2, 2})), generate("forward-only", {2, 2, 2}));
}

TEST(WithReductions, AreCheckedReadBackAndTakenAwayAgainForEveryGenerator) {
  for (const Generator& generator : generators()) {
    const Schedule lowered = lower(generate(generator.name, {4, 4 * generator.chunks, 8}));
    const Schedule reduced = withReductions(lowered);
    EXPECT_EQ(withReductions(reduced), reduced) << generator.name;
    EXPECT_EQ(computeOnly(reduced), computeOnly(lowered)) << generator.name;
    EXPECT_EQ(check(reduced).size(), check(lowered).size()) << generator.name;
    Schedule again = parseCsv(toCsv(reduced), reduced.name, "test");
    again.lockstep = reduced.lockstep;
    EXPECT_EQ(again, reduced) << generator.name;
  }
}

TEST(SplitBackward, IsUndoneByMergingAndLeavesPairsWhole) {
  const Schedule whole = parsed("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
  EXPECT_EQ(toCsv(test::splitBackward(whole)), "0F0,(0F1;0B0)OVERLAP_F_B,0I1,0W1\r\n");
  for (const Generator& generator : generators()) {
    const Shape shape{4, 4 * generator.chunks, 8};
    const Schedule merged = mergeBackward(generate(generator.name, shape));
    EXPECT_EQ(mergeBackward(test::splitBackward(merged)), merged) << generator.name;
  }
}

TEST(MergeBackward, JoinsOnlyAnIDirectlyFollowedByItsOwnW) {
  EXPECT_EQ(toCsv(mergeBackward(parsed("0F0,0F1,0I0,,0W0,0I1,0F2,0W1,0I2,0W2\n"))), "0F0,0F1,0B0,0I1,0F2,0W1,0B2\r\n");
}

}  // namespace
}  // namespace pw
