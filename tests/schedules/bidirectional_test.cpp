#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/unit_times.h"

namespace pw {
namespace {

using test::UnitCosts;
using test::UnitTimes;

Schedule oneChunk(std::string_view name, int ranks, int microbatches) { return generate(name, {ranks, ranks, microbatches}); }
Schedule waves(int count, int ranks, int microbatches) { return generate("hanayo", {ranks, 2 * count * ranks, microbatches}); }

std::string text(const std::vector<Action>& row) {
  std::string out;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool inSlot = i > 0 && row[i - 1].overlapsNext;
    out += (out.empty() ? "" : inSlot ? "+" : " ") + toString(row[i]);
  }
  return out;
}

/// Idle time on the flush clock of a rank that works `busy`.
int bubble(const Schedule& schedule, const UnitCosts& costs, int busy) { return UnitTimes(schedule, costs).makespan() - busy; }

void expectSound(const Schedule& schedule) {
  EXPECT_TRUE(test::isComplete(schedule));
  EXPECT_TRUE(UnitTimes(schedule, {}).finished());
  EXPECT_TRUE(check(schedule).empty());
  EXPECT_NO_THROW((void)lower(schedule));
}

TEST(DualPipe, RowsOfTwoRanksFollowTheEightSteps) {
  // R=2, M=6: both ranks are in the middle (0 from it, depth 0). Steps 2: F F; 4: twice, the first pair apart; 6: B I; 8: W.
  // Microbatches 0-2 go down (stage 0 on rank 0), 3-5 up.
  const Schedule schedule = oneChunk("dualpipe", 2, 6);
  EXPECT_EQ(text(schedule.rows[0]), "0F0 1F3 0F1 1B3 1F4+0B0 0F2+1B4 1F5+0B1 1B5 0I2 0W2");
  EXPECT_EQ(text(schedule.rows[1]), "0F3 1F0 0F4 1B0 1F1+0B3 0F5+1B1 1F2+0B4 1B2 0I5 0W5");
}

TEST(DualPipe, RowsOfFourRanksFollowTheEightSteps) {
  // R=4, M=8; rank 0 (1 from the middle, depth 0): 2 F; F F; I W F; 4−4+0+1 = 1 round; B and a slot; B I; W I; W.
  // Rank 1 (middle, depth 1): 4 F in turns; 2 rounds, the first pair apart; B B I I; W W.
  const Schedule schedule = oneChunk("dualpipe", 4, 8);
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 0F2 3F4 3I4 3W4 3F5 0F3+3B5 3F6+0B0 3B6 3F7+0B1 3B7 0I2 0W2 0I3 0W3");
  EXPECT_EQ(text(schedule.rows[1]), "1F0 2F4 1F1 2F5 1F2 2B4 2F6+1B0 1F3+2B5 2F7+1B1 2B6 1B2 2I7 1I3 2W7 1W3");
}

TEST(DualPipe, EveryShapeIsCompleteAndRuns) {
  for (int ranks = 2; ranks <= 16; ranks += 2) {
    for (const int microbatches : {2 * ranks, 2 * ranks + 2, 64}) {
      SCOPED_TRACE(testing::Message() << "R=" << ranks << " M=" << microbatches);
      const Schedule schedule = oneChunk("dualpipe", ranks, microbatches);
      expectSound(schedule);
      EXPECT_EQ(test::peakLive(schedule), std::vector<int>(static_cast<std::size_t>(ranks), ranks + 1));
    }
  }
}

TEST(DualPipe, BubbleIsThatOfTheReport) {
  // Table 2 of the DeepSeek-V3 report: (R/2−1)(F&B + B − 3W), with F&B = F+B. Exact where W ≤ F = I.
  for (const auto& [f, w] : {std::pair{1, 1}, {2, 1}, {3, 2}, {5, 0}}) {
    for (int ranks = 2; ranks <= 16; ranks += 2) {
      for (const int microbatches : {2 * ranks, 2 * ranks + 6}) {
        SCOPED_TRACE(testing::Message() << "R=" << ranks << " M=" << microbatches << " F=I=" << f << " W=" << w);
        const UnitCosts costs{.f = f, .b = f + w, .i = f, .w = w};
        const int pair = costs.f + costs.b;
        const Schedule schedule = oneChunk("dualpipe", ranks, microbatches);
        EXPECT_EQ(bubble(schedule, costs, microbatches * pair), (ranks / 2 - 1) * (pair + costs.b - 3 * w));
      }
    }
  }
}

TEST(DualPipe, RefusesWhatItsTwoDirectionsCannotShare) {
  EXPECT_THROW((void)oneChunk("dualpipe", 3, 8), UsageError);
  EXPECT_THROW((void)oneChunk("dualpipe", 4, 9), UsageError);
  EXPECT_THROW((void)oneChunk("dualpipe", 4, 6), UsageError);
  EXPECT_THROW((void)generate("dualpipe", {4, 8, 8}), UsageError);
  const auto refusal = generatorOf("dualpipe").refusal({4, 4, 11});
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(refusal->ends_with("use 12")) << *refusal;
  EXPECT_TRUE(generatorOf("dualpipe").refusal({4, 4, 5})->ends_with("use 8"));
}

TEST(Chimera, RowsOfFourRanksAreThoseOfThePaper) {
  // Figure 2 of the paper: microbatches 0 and 1 go down, 2 and 3 up. Worked out in units of F = B:
  // rank 0:  F0 F1 .  F2 B2 F3 B3 B0 .  B1
  // rank 1:  .  F0 F2 F1 F3 B2 B0 B3 B1 .
  const Schedule schedule = oneChunk("chimera", 4, 4);
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1");
  EXPECT_EQ(text(schedule.rows[1]), "1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1");
  EXPECT_EQ(text(schedule.rows[2]), "1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3");
  EXPECT_EQ(text(schedule.rows[3]), "0F2 0F3 3F0 3B0 3F1 3B1 0B2 0B3");
  EXPECT_EQ(UnitTimes(schedule, {.b = 1}).makespan(), 10);
  EXPECT_EQ(test::peakLive(schedule), (std::vector{3, 4, 4, 3}));
}

TEST(Chimera, EveryShapeIsCompleteAndRunsWithinTheMemoryOf1f1b) {
  for (int ranks = 2; ranks <= 16; ranks += 2) {
    for (int microbatches = 2; microbatches <= 64; microbatches += 2) {
      SCOPED_TRACE(testing::Message() << "R=" << ranks << " M=" << microbatches);
      const Schedule schedule = oneChunk("chimera", ranks, microbatches);
      expectSound(schedule);
      EXPECT_LE(std::ranges::max(test::peakLive(schedule)), std::min(ranks, microbatches));
    }
  }
}

TEST(Chimera, BubbleIsThatOfThePaper) {
  // Of the time, F = B: (R−2)/(2M+R−2), so R−2 units; B = 2F: (R−2)/(3M/2+R−2), so R−2 units of 2F. The paper has it for M = R.
  for (int ranks = 2; ranks <= 16; ranks += 2) {
    for (const int microbatches : {ranks, ranks + 2, 2 * ranks, 4 * ranks, 6 * ranks - 2}) {
      SCOPED_TRACE(testing::Message() << "R=" << ranks << " M=" << microbatches);
      const Schedule schedule = oneChunk("chimera", ranks, microbatches);
      EXPECT_EQ(bubble(schedule, {.f = 1, .b = 1}, 2 * microbatches), ranks - 2);
      EXPECT_EQ(bubble(schedule, {.f = 1, .b = 2}, 3 * microbatches), 2 * (ranks - 2));
      EXPECT_EQ(bubble(schedule, {.f = 3, .b = 2}, 5 * microbatches), 3 * (ranks - 2));
    }
  }
}

TEST(Chimera, FewMicrobatchesTakeTheTimeOfTheLastOne) {
  // M < R: the last of each direction enters in unit M−2, two units apart from the one before, and takes 2R.
  for (int ranks = 4; ranks <= 16; ranks += 2) {
    for (int microbatches = 2; microbatches < ranks; microbatches += 2) {
      SCOPED_TRACE(testing::Message() << "R=" << ranks << " M=" << microbatches);
      EXPECT_EQ(UnitTimes(oneChunk("chimera", ranks, microbatches), {.b = 1}).makespan(), microbatches - 2 + 2 * ranks);
    }
  }
}

TEST(Chimera, RanksHoldHalfAsManyAndOneUpToAllMicrobatches) {
  // M = R: each direction has R/2 microbatches; rank i < R/2 holds all of the one that enters in its half and i+1 of the other.
  for (int ranks = 2; ranks <= 16; ranks += 2) {
    std::vector<int> expected;
    for (int rank = 0; rank < ranks; ++rank) expected.push_back(ranks / 2 + 1 + std::min(rank, ranks - 1 - rank));
    EXPECT_EQ(test::peakLive(oneChunk("chimera", ranks, ranks)), expected) << "R=" << ranks;
  }
}

TEST(Chimera, RefusesWhatItsTwoDirectionsCannotShare) {
  EXPECT_THROW((void)oneChunk("chimera", 3, 8), UsageError);
  EXPECT_THROW((void)oneChunk("chimera", 4, 7), UsageError);
  EXPECT_THROW((void)generate("chimera", {4, 8, 8}), UsageError);
  EXPECT_NO_THROW((void)oneChunk("chimera", 4, 2));
}

TEST(Hanayo, RowsOfTwoRanksZigzag) {
  // R=2, V=2: stages 0 and 3 on rank 0, 1 and 2 on rank 1. Worked out in units of one chunk's F = B:
  // rank 0:  0F0 0F1 .   3F0 3B0 3F1 3B1 0B0 .  0B1
  // rank 1:  .   1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1
  const Schedule schedule = waves(1, 2, 2);
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1");
  EXPECT_EQ(text(schedule.rows[1]), "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1");
}

TEST(Hanayo, EveryShapeIsCompleteAndRunsWithRMicrobatches) {
  for (const int ranks : {1, 2, 3, 4, 7, 8}) {
    for (const int count : {1, 2, 3}) {
      for (const int microbatches : {1, 2, ranks, ranks + 1, 2 * ranks, 30}) {
        SCOPED_TRACE(testing::Message() << "R=" << ranks << " waves=" << count << " M=" << microbatches);
        const Schedule schedule = waves(count, ranks, microbatches);
        expectSound(schedule);
        EXPECT_LE(std::ranges::max(test::peakLive(schedule)), 2 * count * std::min(ranks, microbatches));
      }
    }
  }
}

TEST(Hanayo, BubbleFallsAsOneOverTheWaves) {
  // The same work per rank cut into more chunks: with F = B, R−1 chunk times pass before the last rank starts, and R−1 between
  // its end and that of rank 0: (R−1)(F+B)/V in all. With unequal times the longer one counts on both ways.
  for (const int ranks : {1, 2, 4, 5, 8}) {
    for (const int microbatches : {ranks, 3 * ranks}) {
      for (const auto& [f, b] : {std::pair{24, 24}, {24, 48}, {48, 24}}) {
        for (const int count : {1, 2, 3, 4}) {
          SCOPED_TRACE(testing::Message() << "R=" << ranks << " M=" << microbatches << " F=" << f << " B=" << b << " waves=" << count);
          const int chunks = 2 * count;
          const UnitCosts chunk{.f = f / chunks, .b = b / chunks};
          EXPECT_EQ(bubble(waves(count, ranks, microbatches), chunk, (f + b) * microbatches), 2 * (ranks - 1) * std::max(chunk.f, chunk.b));
        }
      }
    }
  }
}

TEST(Hanayo, OneWaveBeats1f1bForAnyNumberOfMicrobatches) {
  for (const int ranks : {2, 4, 7}) {
    for (int microbatches = ranks; microbatches <= 4 * ranks; ++microbatches) {
      SCOPED_TRACE(testing::Message() << "R=" << ranks << " M=" << microbatches);
      // 1F1B with F = 2, B = 4: (M+R−1)(F+B).
      EXPECT_LT(UnitTimes(waves(1, ranks, microbatches), {.f = 1, .b = 2}).makespan(), 6 * (microbatches + ranks - 1));
    }
  }
}

TEST(Hanayo, RefusesOddNumbersOfChunks) {
  EXPECT_THROW((void)generate("hanayo", {4, 4, 8}), UsageError);
  EXPECT_THROW((void)generate("hanayo", {4, 12, 8}), UsageError);
  EXPECT_THROW((void)generate("hanayo", {4, 10, 8}), UsageError);
  EXPECT_THROW((void)generate("hanayo", {4, 0, 8}), UsageError);
}

TEST(MergedPipelines, LargeOnesAreGenerated) {
  EXPECT_TRUE(test::isComplete(oneChunk("chimera", 1024, 2)));
  EXPECT_TRUE(test::isComplete(waves(2, 512, 3)));
}

}  // namespace
}  // namespace pw
