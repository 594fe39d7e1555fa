#include "schedules/lower.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/generate.h"

namespace pw {
namespace {

Schedule parsed(const std::string& csv) { return parseCsv(csv, "test", "test.csv"); }

std::vector<std::string> cells(const std::vector<Action>& row) {
  std::vector<std::string> out;
  for (const Action& action : row) out.push_back(toString(action));
  return out;
}

TEST(Lower, ReceivesStandBeforeAndSendsAfterTheirComputeAction) {
  const Schedule lowered = lower(generate("1f1b", {2, 2, 2}));
  EXPECT_EQ(cells(lowered.rows[0]),
            (std::vector<std::string>{"0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1"}));
  EXPECT_EQ(cells(lowered.rows[1]),
            (std::vector<std::string>{"1RECV_F0", "1F0", "1B0", "1SEND_B0", "1RECV_F1", "1F1", "1B1", "1SEND_B1"}));
}

TEST(Lower, AMiddleStageReceivesAndSendsBothWays) {
  const Schedule lowered = lower(generate("gpipe", {3, 3, 1}));
  EXPECT_EQ(cells(lowered.rows[1]),
            (std::vector<std::string>{"1RECV_F0", "1F0", "1SEND_F0", "1RECV_B0", "1B0", "1SEND_B0"}));
}

TEST(Lower, AForwardOnlyScheduleGetsNoBackwardMessages) {
  const Schedule lowered = lower(generate("forward-only", {2, 2, 2}));
  EXPECT_EQ(toCsv(lowered), "0F0,0SEND_F0,0F1,0SEND_F1\r\n1RECV_F0,1F0,1RECV_F1,1F1\r\n");
}

TEST(Lower, StagesOnOneRankHandOverWithoutMessages) {
  // V placement: stages 0 and 3 on rank 0, 1 and 2 on rank 1; only 0-1 and 2-3 cross ranks.
  const Schedule lowered = lower(parsed("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"));
  EXPECT_EQ(cells(lowered.rows[0]), (std::vector<std::string>{"0F0", "0SEND_F0", "3RECV_F0", "3F0", "3B0", "3SEND_B0",
                                                             "0RECV_B0", "0B0"}));
  EXPECT_EQ(cells(lowered.rows[1]), (std::vector<std::string>{"1RECV_F0", "1F0", "2F0", "2SEND_F0", "2RECV_B0", "2B0",
                                                             "1B0", "1SEND_B0"}));
  EXPECT_EQ(lower(generate("gpipe", {1, 1, 4})), generate("gpipe", {1, 1, 4}));
}

TEST(Lower, ASplitBackwardSendsTheInputGradientBeforeTheWeightGradient) {
  const Schedule lowered = lower(parsed("0F0,0I0,0W0\n1F0,1I0,1W0\n"));
  EXPECT_EQ(cells(lowered.rows[0]), (std::vector<std::string>{"0F0", "0SEND_F0", "0RECV_B0", "0I0", "0W0"}));
  EXPECT_EQ(cells(lowered.rows[1]), (std::vector<std::string>{"1RECV_F0", "1F0", "1I0", "1SEND_B0", "1W0"}));
}

TEST(Lower, ActionsOfWholeStagesStayInPlace) {
  const Schedule lowered = lower(parsed("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n1F0,1B0,1REDUCE_GRAD\n"));
  EXPECT_EQ(cells(lowered.rows[0]), (std::vector<std::string>{"0UNSHARD", "0F0", "0SEND_F0", "0RECV_B0", "0B0",
                                                             "0REDUCE_GRAD", "0RESHARD"}));
}

TEST(Lower, OfEveryGeneratedScheduleIsCorrectAndCanBeUndone) {
  for (const Generator& generator : generators()) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int microbatches = 1; microbatches <= 13; ++microbatches) {
        const Schedule schedule = generate(generator.name, {ranks, ranks, microbatches});
        const Schedule lowered = lower(schedule);
        ASSERT_EQ(computeOnly(lowered), schedule);
        ASSERT_EQ(lower(lowered), lowered);
        for (const Problem& problem : check(lowered)) ASSERT_TRUE(problem.blockingOnly) << problem.message;
      }
    }
  }
}

}  // namespace
}  // namespace pw
