#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/cycles.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/split_backward.h"
#include "tests/support/unit_times.h"

namespace pw {
namespace {

Schedule lockstep(int ranks, int microbatches) { return generate("lockstep", {ranks, ranks, microbatches}); }

std::string text(const std::vector<Action>& row) {
  std::string out;
  for (const Action& action : row) out += (out.empty() ? "" : " ") + toString(action);
  return out;
}

TEST(Lockstep, RowsOfThreeRanksAreThoseOfPopArtsDiagram) {
  // The diagram of the notes on PopART's pipelining transform: 3 IPUs, 5 microbatches; PS3 and PS4 are the backwards of IPU 1 and 0.
  const Schedule schedule = lockstep(3, 5);
  ASSERT_EQ(schedule.rows.size(), 3U);
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B2 0B3 0B4");
  EXPECT_EQ(text(schedule.rows[1]), "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1B3 1B4");
  EXPECT_EQ(text(schedule.rows[2]), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4");
  EXPECT_TRUE(schedule.lockstep);
  EXPECT_EQ(lockstepCycles({3, 3, 5}), 9);
}

TEST(Lockstep, EveryShapeIsCompleteAndRuns) {
  for (const int ranks : {1, 2, 3, 5, 16}) {
    for (const int microbatches : {1, 2, 4, 9, 40}) {
      SCOPED_TRACE(testing::Message() << "R=" << ranks << " M=" << microbatches);
      const Schedule schedule = lockstep(ranks, microbatches);
      EXPECT_TRUE(test::isComplete(schedule));
      EXPECT_TRUE(test::UnitTimes(schedule, {}).finished());
      EXPECT_TRUE(check(schedule).empty());
      EXPECT_NO_THROW((void)lower(schedule));
    }
  }
}

TEST(Lockstep, NoActionNeedsWhatAnotherRankMakesInTheSameCycle) {
  const int ranks = 5;
  const Schedule schedule = lockstep(ranks, 7);
  std::map<Action, int> cycles;
  for (const auto& row : schedule.rows) {
    int before = 0;
    for (const Action& action : row) {
      const int cycle = lockstepCycle(ranks, action);
      EXPECT_GE(cycle, before) << toString(action);
      EXPECT_LT(cycle, lockstepCycles(shapeOf(schedule))) << toString(action);
      cycles[action] = before = cycle;
    }
  }
  for (const auto& [action, cycle] : cycles) {
    const bool forward = action.kind == ActionKind::Forward;
    const int needed = action.stage.value + (forward ? -1 : 1);
    if (needed < 0 || needed >= ranks) continue;
    EXPECT_EQ(cycles.at({Stage{needed}, action.kind, action.microbatch}), cycle - 1) << toString(action);
  }
  // The last rank's forward and backward are one pair; the first backward of all ends the fill.
  EXPECT_EQ(lockstepCycle(ranks, {Stage{4}, ActionKind::Forward, Microbatch{2}}), 6);
  EXPECT_EQ(lockstepCycle(ranks, {Stage{4}, ActionKind::Backward, Microbatch{2}}), 6);
  EXPECT_EQ(lockstepCycle(ranks, {Stage{0}, ActionKind::BackwardInput, Microbatch{0}}), 2 * ranks - 2);
}

TEST(Lockstep, FirstAndLastCycleAreUsed) {
  // N = 2(P−1) + (G−(P−1)) of the notes, with P = 2R−1 pipeline stages and G = M, holds for M below P too.
  for (const int ranks : {1, 2, 4, 9}) {
    for (const int microbatches : {1, 3, 20}) {
      const int stages = 2 * ranks - 1;
      EXPECT_EQ(lockstepCycles({ranks, ranks, microbatches}), 2 * (stages - 1) + microbatches - (stages - 1));
      const Schedule schedule = lockstep(ranks, microbatches);
      EXPECT_EQ(lockstepCycle(ranks, schedule.rows[0].front()), 0);
      EXPECT_EQ(lockstepCycle(ranks, schedule.rows[0].back()), lockstepCycles(shapeOf(schedule)) - 1);
    }
  }
}

TEST(Lockstep, RankHoldsTheMicrobatchesOfItsRoundTrip) {
  // A gradient is back 2(R−1−i) cycles after the forward, one more forward is in that cycle: 2(R−1−i)+1, at most M.
  EXPECT_EQ(test::peakLive(lockstep(4, 9)), (std::vector{7, 5, 3, 1}));
  EXPECT_EQ(test::peakLive(lockstep(4, 4)), (std::vector{4, 4, 3, 1}));
  EXPECT_EQ(test::peakLive(lockstep(1, 4)), (std::vector{1}));
}

TEST(Lockstep, LargestPipelineIsGenerated) {
  const Schedule schedule = lockstep(1024, 2);
  EXPECT_TRUE(test::isComplete(schedule));
  EXPECT_EQ(text(schedule.rows[1023]), "1023F0 1023B0 1023F1 1023B1");
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 0B0 0B1");
}

// Derived by hand: stage i does F m in cycle m+i and B m in cycle m+4−i; what it made in a cycle is copied at its end.
constexpr const char* kThreeRanks =
    "phase         fill                                main     flush\n"
    "cycle         0        1        2        3        4        5        6        7        8\n"
    "rank 0 load   in0      in1      in2      in3      in4\n"
    "       main   F0       F1       F2       F3       F4 B0    B1       B2       B3       B4\n"
    "       store\n"
    "       copy   F0>      F1>      F2>      F3>      F4>\n"
    "rank 1 load\n"
    "       main            F0       F1       F2 B0    F3 B1    F4 B2    B3       B4\n"
    "       store\n"
    "       copy            F0>      F1>      F2> <B0  F3> <B1  F4> <B2  <B3      <B4\n"
    "rank 2 load                     target0  target1  target2  target3  target4\n"
    "       main                     F0 B0    F1 B1    F2 B2    F3 B3    F4 B4\n"
    "       store                    out0     out1     out2     out3     out4\n"
    "       copy                     <B0      <B1      <B2      <B3      <B4\n";

TEST(CycleTable, ShowsLanesOfThreeRanks) { EXPECT_EQ(cycleTable(lockstep(3, 5), 200), kThreeRanks); }

TEST(CycleTable, CutsWideTablesIntoBlocks) {
  // A label of 12 and columns of 2+7 characters: 57 characters hold five cycles, so nine need two blocks.
  const std::string table = cycleTable(lockstep(3, 5), 57);
  const std::size_t cut = table.find("\n\n");
  ASSERT_NE(cut, std::string::npos);
  EXPECT_EQ(table.find("\n\n", cut + 1), std::string::npos);
  EXPECT_TRUE(table.substr(cut + 2).starts_with("phase         flush\ncycle         5        6        7        8\n"));
  std::size_t longest = 0;
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = table.find('\n', at);
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  EXPECT_LE(longest, 57U);
  // The 57 are needed for all five: with one less, four cycles fit.
  EXPECT_NE(cycleTable(lockstep(3, 5), 56).find("\ncycle         4        5        6        7\n"), std::string::npos);
  // Too narrow for anything: one cycle in each block.
  const std::string narrow = cycleTable(lockstep(3, 5), 1);
  EXPECT_NE(narrow.find("phase         main\ncycle         4\nrank 0 load   in4\n"), std::string::npos);
}

TEST(CycleTable, OneRankLoadsComputesAndStoresInEachCycle) {
  EXPECT_EQ(cycleTable(lockstep(1, 2), 80),
            "phase         main\n"
            "cycle         0            1\n"
            "rank 0 load   in0 target0  in1 target1\n"
            "       main   F0 B0        F1 B1\n"
            "       store  out0         out1\n"
            "       copy\n");
}

TEST(CycleTable, FewMicrobatchesFlushWithoutMainPhase) {
  // R = 3, M = 2: microbatches enter in cycles 0 and 1 of 6; the pipeline is never full.
  const std::string table = cycleTable(lockstep(3, 2), 200);
  EXPECT_TRUE(table.starts_with("phase         fill              flush\n")) << table;
}

TEST(CycleTable, LoweredAndSplitSchedulesShowTheirComputeActions) {
  const Schedule schedule = lockstep(3, 5);
  EXPECT_EQ(cycleTable(lower(schedule), 200), kThreeRanks);
  const std::string split = cycleTable(test::splitBackward(schedule), 200);
  EXPECT_NE(split.find("F2 I0 W0  F3 I1 W1"), std::string::npos) << split;
  EXPECT_EQ(split.find("<B0 <B0"), std::string::npos) << "a W sends nothing";
}

TEST(CycleTable, RefusesWhatDoesNotRunInCycles) {
  EXPECT_THROW((void)cycleTable(generate("gpipe", {3, 3, 5}), 200), UsageError);
  Schedule twoChunks{.name = "two", .microbatches = 4, .placement = loopPlacement({2, 4, 4}), .rows = {{}, {}}, .lockstep = true};
  EXPECT_THROW((void)cycleTable(twoChunks, 200), UsageError);
  Schedule swapped = lockstep(3, 5);
  std::swap(swapped.rows[1][0], swapped.rows[1][1]);  // F1 before F0
  EXPECT_THROW(requireCycles(swapped), UsageError);
  EXPECT_NO_THROW(requireCycles(test::splitBackward(lockstep(3, 5))));
  Schedule beyond = lockstep(2, 2);
  beyond.microbatches = 1;
  EXPECT_THROW((void)cycleTable(beyond, 200), UsageError);
}

}  // namespace
}  // namespace pw
