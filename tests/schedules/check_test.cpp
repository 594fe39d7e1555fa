#include "schedules/check.h"

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/csv.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

Schedule parsed(const std::string& csv) { return parseCsv(csv, "test", "test.csv"); }

/// A problem in short: `rank@position action`.
std::string brief(const Problem& p) {
  return std::to_string(p.rank.value) + "@" + std::to_string(p.position) + " " + toString(p.action);
}

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
  EXPECT_EQ(onlyMessage(idle), "rank 1 has nothing to do");
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
  EXPECT_EQ(onlyMessage(foreign), "1RESHARD stands on rank 0, but stage 1 is on rank 1");
  Schedule placed = sound;
  placed.rankOfStage[1] = Rank{2};
  EXPECT_EQ(onlyMessage(placed), "stage 1 is placed on rank 2, but the ranks are 0 to 1");
}

TEST(Check, AHugeMicrobatchNumberIsOneProblemAndNoHugeTable) {
  EXPECT_EQ(briefs(parsed("0F0,0B0\n1F0,1F999999,1B0\n")), (Briefs{"1@1 1F999999"}));
  EXPECT_EQ(onlyMessage(parsed("0F0,0B0\n1F0,1F999999,1B0\n")),
            "2 stages and 1000000 microbatches need at least 2000000 actions, but the schedule has 5; is the largest "
            "number a slip?");
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
  EXPECT_FALSE(check(schedule)[0].blockingOnly);
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

TEST(Check, OneForwardOneBackwardLoweredDeadlocksUnderBlockingSendsOnly) {
  // Both ranks send at once: rank 0 its second forward, rank 1 its first backward.
  const std::vector<Problem> problems = check(lower(generate("1f1b", {2, 2, 3})));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(problems[0].blockingOnly);
  EXPECT_EQ(problems[0].message,
            "deadlock only under blocking sends (buffered sends avoid it): rank 0 at position 3 (0SEND_F1) waits for "
            "1RECV_F1 of rank 1; rank 1 at position 3 (1SEND_B0) waits for 0RECV_B0 of rank 0");
  EXPECT_TRUE(check(lower(generate("gpipe", {4, 4, 6}))).empty()) << "GPipe never has two ranks sending to each other";
}

TEST(Check, AReceiveInTheWrongPlaceCanDeadlockBufferedSendsToo) {
  // Both ranks receive before they send.
  const Schedule schedule = parsed(
      "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  EXPECT_EQ(onlyMessage(schedule),
            "deadlock: rank 0 at position 2 (0RECV_B0) waits for 1SEND_B0 of rank 1; rank 1 at position 2 (1RECV_F1) "
            "waits for 0SEND_F1 of rank 0");
}

TEST(Check, MessagesMustBePairedPlacedAndNeeded) {
  EXPECT_EQ(briefs(parsed("0F0\n1RECV_F0,1F0\n")), (Briefs{"0@-1 0SEND_F0"}));
  EXPECT_EQ(briefs(parsed("0F0,0SEND_F0\n1F0\n")), (Briefs{"1@-1 1RECV_F0"}));
  EXPECT_EQ(onlyMessage(parsed("0F0,0SEND_F0\n1F0\n")),
            "1RECV_F0 is missing on rank 1: it is the other end of 0SEND_F0 of rank 0");
  EXPECT_EQ(briefs(parsed("0SEND_F0,0F0\n1RECV_F0,1F0\n")), (Briefs{"0@0 0SEND_F0"}));
  EXPECT_EQ(briefs(parsed("0F0,0SEND_F0\n1F0,1RECV_F0\n")), (Briefs{"1@0 1F0"}));
  EXPECT_EQ(onlyMessage(parsed("0F0,1F0,0SEND_F0\n")), "0SEND_F0 is needless: stage 1 is on the same rank 0");
  EXPECT_EQ(onlyMessage(parsed("0RECV_F0,0F0\n")), "0RECV_F0 is needless: the first stage has none before it");
  EXPECT_EQ(onlyMessage(parsed("0F0,0SEND_F0\n")), "0SEND_F0 is needless: the last stage has none after it");
  EXPECT_EQ(onlyMessage(parsed("0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_B0\n")),
            "1SEND_B0 is needless: the schedule has no backward");
}

TEST(Check, ProblemsComeByRankAndPosition) {
  EXPECT_EQ(briefs(parsed("0B0,0F0,0F0\n1B0,1F0\n")), (Briefs{"0@0 0B0", "0@2 0F0", "1@0 1B0"}));
}

// ---- Against a slow reference -----------------------------------------------------------------------------------

/// Whether everything an action needs was done, by the definition of each kind.
bool canRun(const Schedule& s, const Action& a, const std::set<Action>& done, bool lowered) {
  const auto has = [&](int stage, ActionKind kind) {
    return done.contains({Stage{stage}, kind, a.microbatch});
  };
  const auto hasBackward = [&](int stage) {
    return has(stage, ActionKind::Backward) || has(stage, ActionKind::BackwardInput);
  };
  const int stage = a.stage.value;
  const int last = static_cast<int>(s.rankOfStage.size()) - 1;
  const auto local = [&](int other) { return s.rankOfStage[a.stage.index()] == s.rankOfStage[Stage{other}.index()]; };
  switch (a.kind) {
    case ActionKind::Forward:
      if (stage == 0) return true;
      return lowered && !local(stage - 1) ? has(stage, ActionKind::RecvForward) : has(stage - 1, ActionKind::Forward);
    case ActionKind::Backward:
    case ActionKind::BackwardInput:
      if (!has(stage, ActionKind::Forward)) return false;
      if (stage == last) return true;
      return lowered && !local(stage + 1) ? has(stage, ActionKind::RecvBackward) : hasBackward(stage + 1);
    case ActionKind::BackwardWeight: return has(stage, ActionKind::BackwardInput);
    case ActionKind::SendForward: return has(stage, ActionKind::Forward);
    case ActionKind::SendBackward: return hasBackward(stage);
    case ActionKind::RecvForward: return has(stage - 1, ActionKind::SendForward);
    case ActionKind::RecvBackward: return has(stage + 1, ActionKind::SendBackward);
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard: return true;
  }
  return false;
}

/// Sweeps over the ranks until nothing moves; whether all rows ended. With `blocking`, a receive runs only together
/// with the send that another rank stands at.
bool runsToTheEnd(const Schedule& s, bool lowered, bool blocking) {
  std::vector<std::size_t> at(s.rows.size(), 0);
  std::set<Action> done;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < s.rows.size(); ++rank) {
      if (at[rank] == s.rows[rank].size()) continue;
      const Action& a = s.rows[rank][at[rank]];
      if (blocking && isSend(a.kind)) continue;  // moved by its receiver
      if (blocking && isReceive(a.kind)) {
        const Action send = counterpart(a);
        const std::size_t peer = s.rankOfStage[send.stage.index()].index();
        if (at[peer] == s.rows[peer].size() || s.rows[peer][at[peer]] != send) continue;
        if (!canRun(s, send, done, lowered)) continue;
        done.insert(send);
        ++at[peer];
      }
      if (!canRun(s, a, done, lowered)) continue;
      done.insert(a);
      ++at[rank];
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < s.rows.size(); ++rank) {
    if (at[rank] != s.rows[rank].size()) return false;
  }
  return true;
}

/// A sound schedule of a random shape: 1F1B, or microbatch by microbatch on loop or V placement with whole or split
/// backwards.
Schedule randomSchedule(std::mt19937& random) {
  const int ranks = 1 + static_cast<int>(random() % 4);
  const int microbatches = 1 + static_cast<int>(random() % 4);
  if (random() % 3 == 0) return generate("1f1b", {ranks, ranks, microbatches});
  const int chunks = 1 + static_cast<int>(random() % 2);
  const bool split = random() % 2 == 0;
  Schedule s{"random", microbatches, {}, std::vector<std::vector<Action>>(static_cast<std::size_t>(ranks))};
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    s.rankOfStage.emplace_back(stage < ranks ? stage : 2 * ranks - 1 - stage);
  }
  const auto add = [&](int stage, ActionKind kind, int m) {
    s.rows[s.rankOfStage[Stage{stage}.index()].index()].push_back({Stage{stage}, kind, Microbatch{m}});
  };
  for (int m = 0; m < microbatches; ++m) {
    for (int stage = 0; stage < ranks * chunks; ++stage) add(stage, ActionKind::Forward, m);
  }
  for (int m = 0; m < microbatches; ++m) {
    for (int stage = ranks * chunks - 1; stage >= 0; --stage) {
      add(stage, split ? ActionKind::BackwardInput : ActionKind::Backward, m);
      if (split) add(stage, ActionKind::BackwardWeight, m);
    }
  }
  return s;
}

TEST(Check, AgreesWithASlowExecutionOnTenThousandShuffledSchedules) {
  constexpr unsigned kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  int sound = 0;
  int blockingOnly = 0;
  for (int i = 0; i < 10'000; ++i) {
    Schedule schedule = randomSchedule(random);
    const bool lowered = random() % 2 == 0 && schedule.rows.size() > 1;
    if (lowered) schedule = lower(schedule);
    for (auto swaps = random() % 6; swaps > 0; --swaps) {
      auto& row = schedule.rows[random() % schedule.rows.size()];
      const std::size_t from = random() % row.size();
      const std::size_t to = std::min<std::size_t>(row.size() - 1, from + random() % 4);
      std::swap(row[from], row[to]);
    }
    const std::vector<Problem> problems = check(schedule);
    const bool buffered = runsToTheEnd(schedule, lowered, false);
    const bool blocking = buffered && runsToTheEnd(schedule, lowered, true);
    sound += blocking ? 1 : 0;
    blockingOnly += buffered && !blocking ? 1 : 0;
    ASSERT_EQ(problems.empty(), blocking) << "case " << i << "\n" << toCsv(schedule);
    const bool foundBlockingOnly = !problems.empty() && problems[0].blockingOnly;
    ASSERT_EQ(foundBlockingOnly, buffered && !blocking) << "case " << i << "\n" << toCsv(schedule);
  }
  EXPECT_GT(sound, 1'000);
  EXPECT_GT(blockingOnly, 100);
  EXPECT_LT(sound + blockingOnly, 9'000);
}

TEST(Check, SurvivesHostileIds) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  constexpr int kLeast = std::numeric_limits<int>::min();
  constexpr int kLargest = std::numeric_limits<int>::max();
  const std::vector<int> odd{kLeast, -2, -1, 0, 1, 2, 3, 7, 1'000'000, kLargest};
  for (int i = 0; i < 10'000; ++i) {
    Schedule schedule = randomSchedule(random);
    if (random() % 2 == 0) schedule = lower(schedule);
    auto& row = schedule.rows[random() % schedule.rows.size()];
    Action& action = row[random() % row.size()];
    const int value = odd[random() % odd.size()];
    switch (random() % 5) {
      case 0: action.stage = Stage{value}; break;
      case 1: action.microbatch = Microbatch{value}; break;
      case 2: action.kind = static_cast<ActionKind>(random() % 11); break;
      case 3: schedule.rankOfStage[random() % schedule.rankOfStage.size()] = Rank{value}; break;
      default: schedule.microbatches = value; break;
    }
    for (const Problem& problem : check(schedule)) ASSERT_FALSE(problem.message.empty());
    (void)computeOnly(lower(schedule));
  }
}

}  // namespace
}  // namespace pw
