#include "schedules/check.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/schedules/random_schedules.h"

namespace pw {
namespace {

Schedule parsed(const std::string& csv) { return parseCsv(csv, "test", "test.csv"); }

/// A problem in short: `rank@position action`.
std::string brief(const Problem& p) { return std::to_string(p.rank.value) + "@" + std::to_string(p.position) + " " + toString(p.action); }

std::vector<std::string> briefs(const Schedule& schedule) {
  std::vector<std::string> out;
  for (const Problem& problem : check(schedule)) out.push_back(brief(problem));
  return out;
}

using Briefs = std::vector<std::string>;

/// The message of the only problem; what there is instead when there is not exactly one.
std::string onlyMessage(const Schedule& schedule) {
  const std::vector<Problem> problems = check(schedule);
  if (problems.size() == 1) return problems[0].message;
  return "there are " + std::to_string(problems.size()) + " problems";
}

TEST(Check, SoundSchedulesHaveNoProblem) {
  EXPECT_EQ(briefs(parsed("0F0,0B0\n1F0,1B0\n")), Briefs{});
  EXPECT_EQ(briefs(parsed("0F0,0I0,0W0\n1F0,1B0\n")), Briefs{}) << "stages may split their backward or not";
  EXPECT_EQ(briefs(parsed("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")), Briefs{}) << "V placement";
  EXPECT_EQ(briefs(parsed("0F1,0F0\n1F1,1F0\n")), Briefs{}) << "microbatches in any order, forwards only";
  EXPECT_EQ(briefs(parsed("0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD,0REDUCE_GRAD\n1F0,1B0\n")), Briefs{});
}

TEST(Check, AnEmptyScheduleSaysWhatItLacks) {
  EXPECT_EQ(check(Schedule{}).size(), 3U);
  Schedule idle = parsed("0F0,0B0\n");
  idle.rows.emplace_back();
  EXPECT_EQ(onlyMessage(idle), "there is nothing to do: row 2 is empty; give it a stage or remove it");
}

TEST(Check, MissingActionsAreNamed) {
  EXPECT_EQ(briefs(parsed("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n")), (Briefs{"1@-1 1F1"}));
  EXPECT_EQ(briefs(parsed("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n")), (Briefs{"0@-1 0B1"}));
  EXPECT_EQ(briefs(parsed("0F0,0I0\n")), (Briefs{"0@-1 0W0"}));
  EXPECT_EQ(briefs(parsed("0F0,0W0\n")), (Briefs{"0@-1 0I0"}));
  EXPECT_EQ(onlyMessage(parsed("0F0,0F1,0B0\n")), "0B1 is missing: rank 0, which holds stage 0, never does it");
}

TEST(Check, DuplicatesAreNamedAtTheSecondPlace) {
  EXPECT_EQ(briefs(parsed("0F0,0F0,0B0\n")), (Briefs{"0@1 0F0"}));
  EXPECT_EQ(onlyMessage(parsed("0F0,0F0,0B0\n")), "0F0 is done twice; first at position 0");
  EXPECT_EQ(briefs(parsed("0F0,0B0,0W0\n")), (Briefs{"0@2 0W0"})) << "B already does W";
  EXPECT_EQ(briefs(parsed("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n")), (Briefs{"0@3 0REDUCE_GRAD"}));
}

TEST(Check, WrongOrderOnAStageIsNamedAtTheActionThatComesTooEarly) {
  EXPECT_EQ(briefs(parsed("0B0,0F0\n")), (Briefs{"0@0 0B0"}));
  EXPECT_EQ(onlyMessage(parsed("0B0,0F0\n")), "0B0 comes before 0F0 (position 1), which it needs");
  EXPECT_EQ(briefs(parsed("0F0,0W0,0I0\n")), (Briefs{"0@1 0W0"}));
  EXPECT_EQ(briefs(parsed("0F0,0F1,0B0,0REDUCE_GRAD,0B1\n")), (Briefs{"0@4 0B1"}));
}

TEST(Check, IdsOutOfRangeAndActionsOnAForeignRankAreNamed) {
  constexpr int kLargest = std::numeric_limits<int>::max();
  const Schedule sound = parsed("0F0,0B0\n1F0,1B0\n");
  for (const int stage : {-1, 2, kLargest, -kLargest}) {
    Schedule bad = sound;
    bad.rows[0].push_back({Stage{stage}, ActionKind::Forward, Microbatch{0}});
    EXPECT_EQ(briefs(bad), (Briefs{"0@2 " + std::to_string(stage) + "F0"}));
  }
  for (const int microbatch : {-1, 1, kLargest, -kLargest}) {
    Schedule bad = sound;
    bad.rows[1].push_back({Stage{1}, ActionKind::SendBackward, Microbatch{microbatch}});
    EXPECT_EQ(check(bad).front().position, -1) << "now lowered, so the other messages are missing";
    EXPECT_EQ(briefs(bad).back(), "1@2 1SEND_B" + std::to_string(microbatch));
  }
  Schedule foreign = sound;
  foreign.rows[0].push_back({Stage{1}, ActionKind::Reshard, Microbatch{-1}});
  EXPECT_EQ(onlyMessage(foreign), "1RESHARD is on rank 0, but stage 1 is on rank 1");
  Schedule placed = sound;
  placed.placement.rankOfStage[1] = Rank{2};
  EXPECT_EQ(onlyMessage(placed), "stage 1 is placed on rank 2, but the ranks are 0 to 1");
}

TEST(Check, AHugeMicrobatchNumberIsOneProblemAndNoHugeTable) {
  EXPECT_EQ(briefs(parsed("0F0,0B0\n1F0,1F999999,1B0\n")), (Briefs{"1@1 1F999999"}));
  EXPECT_EQ(
      onlyMessage(parsed("0F0,0B0\n1F0,1F999999,1B0\n")),
      "2 stages and 1000000 microbatches need at least 2000000 actions, but the schedule has 5; is the largest number a typing error?");
  Schedule hostile = parsed("0F0\n");
  hostile.microbatches = std::numeric_limits<int>::max();
  EXPECT_EQ(check(hostile).size(), 1U);
}

TEST(Check, AComputeOnlyCycleBetweenTwoRanksIsShownActionByAction) {
  // Rank 1 wants microbatch 1 first, rank 0 sends it only after the backward of microbatch 0.
  const Schedule schedule = parsed("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n");
  EXPECT_EQ(briefs(schedule), (Briefs{"0@1 0B0"}));
  EXPECT_EQ(onlyMessage(schedule),
            "deadlock: rank 0 at position 1 (0B0) waits for 1B0 of rank 1; rank 1 at position 0 (1F1) waits for 0F1 of "
            "rank 0");
  EXPECT_EQ(check(schedule)[0].stops, Stops::Always);
}

TEST(Check, ACycleOfThreeRanksLeavesOutTheRankThatOnlyWaitsForIt) {
  // Stages 0 to 5 loop over ranks 1 to 3, and rank 3 has its two in the wrong order; rank 0 waits for it at stage 6.
  EXPECT_EQ(onlyMessage(parsed("6F0\n0F0,3F0\n1F0,4F0\n5F0,2F0\n")),
            "deadlock: rank 1 at position 1 (3F0) waits for 2F0 of rank 3; rank 3 at position 0 (5F0) waits for 4F0 of "
            "rank 2; rank 2 at position 1 (4F0) waits for 3F0 of rank 1");
}

TEST(Check, ARankThatWaitsForItselfIsADeadlock) {
  EXPECT_EQ(onlyMessage(parsed("1F0,0F0\n")), "deadlock: rank 0 at position 0 (1F0) waits for 0F0 of rank 0");
}

/// What 1F1B does where each send follows its action at once and each receive stands right before its use.
const char* const kSendsAtOnce =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0F2,0SEND_F2,0RECV_B1,0B1,0RECV_B2,0B2\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1RECV_F2,1F2,1B2,1SEND_B2\n";

TEST(Check, OneForwardOneBackwardLoweredNeverDeadlocks) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      EXPECT_EQ(briefs(lower(generate("1f1b", {ranks, ranks, microbatches}))), Briefs{}) << ranks << " " << microbatches;
    }
  }
}

TEST(Check, OneForwardOneBackwardWithSendsAtOnceDeadlocksOnOneChannelAndUnderBlockingSends) {
  // Both ranks send at once: rank 0 its second forward, rank 1 its first backward. Both are the pair's second operation.
  const Schedule schedule = parsed(kSendsAtOnce);
  ASSERT_EQ(computeOnly(schedule).rows, generate("1f1b", {2, 2, 3}).rows);
  const std::vector<Problem> problems = check(schedule);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(brief(problems[0]), "0@3 0SEND_F1");
  EXPECT_EQ(problems[0].stops, Stops::OneChannel);
  EXPECT_EQ(problems[0].message,
            "deadlock where ranks 0 and 1 share one channel for both directions (separate channels avoid it): operation 2 on "
            "it is 0SEND_F1 of rank 0 (position 3), but 1SEND_B0 of rank 1 (position 3)");
  EXPECT_EQ(brief(problems[1]), "0@3 0SEND_F1");
  EXPECT_EQ(problems[1].stops, Stops::Blocking);
  EXPECT_EQ(problems[1].message,
            "deadlock only under blocking sends (buffered sends avoid it): rank 0 at position 3 (0SEND_F1) waits for "
            "1RECV_F1 of rank 1; rank 1 at position 3 (1SEND_B0) waits for 0RECV_B0 of rank 0");
}

TEST(Check, ThreeRanksThatSendInACircleDeadlockUnderBlockingSendsOnly) {
  // Each pair has one message, so its order cannot differ; but each rank sends before it receives.
  const std::vector<Problem> problems =
      check(parsed("0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,3F0,3RECV_F1,3F1\n"
                   "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1\n"
                   "2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1\n"));
  EXPECT_TRUE(problems.empty()) << "two microbatches fit into the three hops";
  const std::vector<Problem> circle =
      check(parsed("0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,3RECV_F0,3F0,3RECV_F1,3F1,3RECV_F2,3F2\n"
                   "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,1RECV_F2,1F2,1SEND_F2\n"
                   "2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,2RECV_F2,2F2,2SEND_F2\n"));
  ASSERT_EQ(circle.size(), 1U);
  EXPECT_EQ(circle[0].stops, Stops::Blocking);
  EXPECT_EQ(circle[0].message,
            "deadlock only under blocking sends (buffered sends avoid it): rank 0 at position 5 (0SEND_F2) waits for "
            "1RECV_F2 of rank 1; rank 1 at position 5 (1SEND_F1) waits for 2RECV_F1 of rank 2; rank 2 at position 2 "
            "(2SEND_F0) waits for 3RECV_F0 of rank 0");
}

TEST(Check, ReceivesStandInTheOrderOfTheirSends) {
  const Schedule schedule = parsed("0F0,0F1,0SEND_F0,0SEND_F1\n1RECV_F1,1F1,1RECV_F0,1F0\n");
  EXPECT_EQ(briefs(schedule), (Briefs{"1@0 1RECV_F1"}));
  EXPECT_EQ(check(schedule)[0].stops, Stops::Always);
  EXPECT_EQ(onlyMessage(schedule),
            "1RECV_F1 is receive 1 from rank 0, but rank 0's send 1 to rank 1 is 0SEND_F0 (position 2); a channel hands "
            "messages over in the order they are sent");
  // Rank 0 sends to rank 1 for two stages; the order holds across them.
  EXPECT_EQ(briefs(parsed("0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1\n"
                          "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,1RECV_F1,1F1,1SEND_F1,3RECV_F1,3F1\n")),
            (Briefs{"1@3 3RECV_F0"}));
}

TEST(Check, AReceiveInTheWrongPlaceCanDeadlockBufferedSendsToo) {
  // Both ranks receive before they send.
  const Schedule schedule =
      parsed("0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  EXPECT_EQ(onlyMessage(schedule),
            "deadlock: rank 0 at position 2 (0RECV_B0) waits for 1SEND_B0 of rank 1; rank 1 at position 2 (1RECV_F1) "
            "waits for 0SEND_F1 of rank 0");
}

TEST(Check, MessagesMustBePairedPlacedAndNeeded) {
  EXPECT_EQ(briefs(parsed("0F0\n1RECV_F0,1F0\n")), (Briefs{"0@-1 0SEND_F0"}));
  EXPECT_EQ(briefs(parsed("0F0,0SEND_F0\n1F0\n")), (Briefs{"1@-1 1RECV_F0"}));
  EXPECT_EQ(onlyMessage(parsed("0F0,0SEND_F0\n1F0\n")), "1RECV_F0 is missing on rank 1: it is the other end of 0SEND_F0 of rank 0");
  EXPECT_EQ(briefs(parsed("0SEND_F0,0F0\n1RECV_F0,1F0\n")), (Briefs{"0@0 0SEND_F0"}));
  EXPECT_EQ(briefs(parsed("0F0,0SEND_F0\n1F0,1RECV_F0\n")), (Briefs{"1@0 1F0"}));
  EXPECT_EQ(onlyMessage(parsed("0F0,1F0,0SEND_F0\n")), "0SEND_F0 is not needed: stage 1 is on the same rank 0");
  EXPECT_EQ(onlyMessage(parsed("0RECV_F0,0F0\n")), "0RECV_F0 is not needed: there is no stage before the first");
  EXPECT_EQ(onlyMessage(parsed("0F0,0SEND_F0\n")), "0SEND_F0 is not needed: there is no stage after the last");
  EXPECT_EQ(onlyMessage(parsed("0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_B0\n")), "1SEND_B0 is not needed: the schedule has no backward");
}

TEST(Check, ProblemsComeByRankAndPosition) {
  EXPECT_EQ(briefs(parsed("0B0,0F0,0F0\n1B0,1F0\n")), (Briefs{"0@0 0B0", "0@2 0F0", "1@0 1B0"}));
}

TEST(Check, IdleCellsMeanNothing) {
  EXPECT_EQ(briefs(parsed("0F0,,0B0,\n,1F0,1B0\n")), Briefs{});
  Schedule idle = parsed("0F0,0B0\n");
  idle.rows.push_back({kIdle, kIdle});
  EXPECT_EQ(onlyMessage(idle), "there is nothing to do: row 2 is empty; give it a stage or remove it");
  Schedule odd = parsed("0F0,0B0\n");
  odd.rows[0].push_back({Stage{-7}, ActionKind::Idle, Microbatch{99}});
  EXPECT_EQ(briefs(odd), Briefs{}) << "whatever their ids";
  EXPECT_EQ(briefs(parsed("0F0,,0F0,0B0\n")), (Briefs{"0@2 0F0"})) << "but they count as positions";
}

// ---- Slots -------------------------------------------------------------------------------------------------------

TEST(Check, ASlotIsAForwardRightBeforeABackwardOfAnother) {
  EXPECT_EQ(briefs(parsed("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n")), Briefs{});
  EXPECT_EQ(briefs(parsed("0F0,0SEND_F0,0RECV_B0,(0F1;0B0)OVERLAP_F_B,0SEND_F1,0RECV_B1,0B1\n"
                          "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n")),
            Briefs{})
      << "receives before, sends after the pair";
  const auto flagged = [](const char* csv, std::size_t at) {
    Schedule s = parsed(csv);
    s.rows[0][at].overlapsNext = true;
    return onlyMessage(s);
  };
  EXPECT_EQ(flagged("0F0,0B0\n", 0), "0F0 overlaps 0B0, which needs it; a slot takes a B of another stage or microbatch");
  const auto next = [](const char* action, const char* follower) {
    return std::string(action) + " is marked to overlap the next action, which is " + follower + "; a slot is an F right before a B";
  };
  EXPECT_EQ(flagged("0F0,0B0\n", 1), next("0B0", "nothing"));
  EXPECT_EQ(flagged("0F0,0F1,0B0,0B1\n", 0), next("0F0", "0F1"));
  EXPECT_EQ(flagged("0F0,0F1,0I0,0W0,0B1\n", 1), next("0F1", "0I0"));
  EXPECT_EQ(flagged("0F0,0F1,,0B0,0B1\n", 1), next("0F1", "an idle cell"));
  EXPECT_EQ(flagged("0F0,,0B0\n", 1), next("an idle cell", "0B0"));
}

TEST(Check, ASlotStartsWhenBothOfItsActionsAreReady) {
  // One after the other, rank 0's F1 would set rank 1 going, and rank 1 would then give the gradient.
  EXPECT_EQ(briefs(parsed("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")), Briefs{});
  EXPECT_EQ(onlyMessage(parsed("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n")),
            "deadlock: rank 0 at position 2 (0B0) waits for 1B0 of rank 1; rank 1 at position 1 (1F1) waits for 0F1 of rank 0");
  EXPECT_EQ(briefs(parsed("0F0,0F1,0B1,0B0\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n")), Briefs{}) << "rank 1's slot needs 0F1 only";
}

// ---- Two replicas of each stage ----------------------------------------------------------------------------------

/// Two ranks, a pipeline in each direction: microbatch 0 goes down, 1 goes up.
Schedule twoWays() { return parsed("0F0,1F1,1B1,0B0,0REDUCE_GRAD,1REDUCE_GRAD\n0F1,1F0,1B0,0B1,1REDUCE_GRAD,0REDUCE_GRAD\n"); }

TEST(Check, InABidirectionalScheduleTheMicrobatchDecidesTheRank) {
  const Schedule sound = twoWays();
  ASSERT_TRUE(sound.placement.bidirectional());
  EXPECT_EQ(briefs(sound), Briefs{}) << "each replica has its own REDUCE_GRAD";
  EXPECT_EQ(briefs(lower(computeOnly(sound))), Briefs{});
  Schedule foreign = sound;
  foreign.rows[0].push_back({Stage{0}, ActionKind::Forward, Microbatch{1}});
  EXPECT_EQ(onlyMessage(foreign), "0F1 is on rank 0, but stage 0 of microbatch 1 is on rank 1");
  Schedule twice = sound;
  twice.rows[0].push_back({Stage{1}, ActionKind::ReduceGrad, Microbatch{-1}});
  EXPECT_EQ(onlyMessage(twice), "1REDUCE_GRAD is done twice; first at position 5");
  Schedule early = sound;
  std::swap(early.rows[1][3], early.rows[1][5]);
  EXPECT_EQ(onlyMessage(early), "0B1 comes after 0REDUCE_GRAD (position 3), which would miss it");
}

TEST(Check, ReplicasOnRanksThatAreNotThereAreNamed) {
  Schedule shorter = twoWays();
  shorter.placement.mirrorOfStage.pop_back();
  EXPECT_EQ(onlyMessage(shorter), "the placement has 2 stages, but second replicas of 1");
  Schedule nowhere = twoWays();
  nowhere.placement.mirrorOfStage[0] = Rank{2};
  EXPECT_EQ(onlyMessage(nowhere), "the second replica of stage 0 is placed on rank 2, but the ranks are 0 to 1");
  Schedule third = twoWays();
  third.rows.push_back({{Stage{0}, ActionKind::Unshard, Microbatch{-1}}});
  EXPECT_EQ(onlyMessage(third), "0UNSHARD is on rank 2, but stage 0 is on rank 0 and rank 1");
}

// ---- Sizes -------------------------------------------------------------------------------------------------------

TEST(CheckSizes, ReceiversThatExpectOtherSizesAreNamedAtTheirFirstReceive) {
  const Schedule compute = generate("1f1b", {3, 3, 2});
  EXPECT_TRUE(checkSizes(compute, {{64, 32, 0}, {0, 64, 32}}).empty());
  EXPECT_TRUE(checkSizes(compute, {{64, 32, 7}, {7, 64, 32}}).empty()) << "the ends of the pipeline have no message";
  const auto computed = checkSizes(compute, {{64, 32, 0}, {0, 64, 31}});
  ASSERT_EQ(computed.size(), 1U);
  EXPECT_EQ(brief(computed[0]), "2@0 2F0");
  EXPECT_EQ(computed[0].message,
            "stage 1 sends 32 bytes to stage 2, which expects 31 bytes (2F0): the receive hangs or reads wrong values, and so does that of "
            "the gradient");
  const auto lowered = checkSizes(lower(compute), {{64, 32, 0}, {0, 0, 31}});
  ASSERT_EQ(lowered.size(), 2U);
  EXPECT_EQ(brief(lowered[0]), "1@0 1RECV_F0");
  EXPECT_EQ(brief(lowered[1]), "2@0 2RECV_F0");
  EXPECT_EQ(lowered[1].stops, Stops::Always);
}

TEST(CheckSizes, StagesOnOneRankHaveNoMessage) {
  const Schedule v = parsed("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
  EXPECT_TRUE(checkSizes(v, {{64, 0, 16, 0}, {0, 64, 99, 16}}).empty());
  EXPECT_EQ(checkSizes(v, {{64, 0, 16, 0}, {0, 64, 99, 17}}).size(), 1U);
}

TEST(CheckSizes, ListsThatDoNotFitTheStagesAreRefused) {
  const Schedule schedule = generate("1f1b", {2, 2, 2});
  EXPECT_THROW((void)checkSizes(schedule, {{64}, {0, 64}}), UsageError);
  EXPECT_THROW((void)checkSizes(schedule, {{64, 0}, {0, 64, 0}}), UsageError);
  EXPECT_THROW((void)checkSizes(schedule, {{64, 0}, {0, -64}}), UsageError);
}

// ---- Hostile -----------------------------------------------------------------------------------------------------

/// One number of the schedule replaced by an odd one.
void makeOdd(test::Random& random, Schedule& schedule) {
  constexpr int kLeast = std::numeric_limits<int>::min();
  constexpr int kLargest = std::numeric_limits<int>::max();
  constexpr std::array kOdd{kLeast, -2, -1, 0, 1, 2, 3, 7, 1'000'000, kLargest};
  auto& row = schedule.rows[random() % schedule.rows.size()];
  Placement& placement = schedule.placement;
  const int value = kOdd[random() % kOdd.size()];
  if (row.empty()) return;
  Action& action = row[random() % row.size()];
  switch (random() % 8) {
    case 0: action.stage = Stage{value}; break;
    case 1: action.microbatch = Microbatch{value}; break;
    case 2: action.kind = static_cast<ActionKind>(random() % 12); break;
    case 3: action.overlapsNext = !action.overlapsNext; break;
    case 4: placement.rankOfStage[random() % placement.rankOfStage.size()] = Rank{value}; break;
    case 5: placement.firstMirrored = Microbatch{value}; break;
    case 6: placement.mirrorOfStage.resize(random() % (2 * placement.stages()), Rank{value}); break;
    default: schedule.microbatches = value; break;
  }
}

TEST(Check, SurvivesHostileIds) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  test::Random random(kSeed);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    Schedule schedule = test::Grower(random, {random() % 2 == 0, test::Transport::Rendezvous}).grow();
    for (auto damages = 1 + random() % 2; damages > 0; --damages) makeOdd(random, schedule);
    const std::vector<Problem> problems = check(schedule);
    for (const Problem& problem : problems) ASSERT_FALSE(problem.message.empty());
    const std::size_t stages = schedule.placement.stages();
    (void)checkSizes(schedule, {std::vector<Bytes>(stages, 1), std::vector<Bytes>(stages, 2)});
    try {
      (void)computeOnly(lower(schedule));
    } catch (const UsageError&) {
      ASSERT_FALSE(problems.empty()) << "case " << i << ": what can be run can be lowered\n" << toCsv(schedule);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1'000);
}

}  // namespace
}  // namespace pw
