#include "schedules/csv.h"

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

Schedule parsed(const std::string& csv) { return parseCsv(csv, "test", "a.csv"); }

/// The sentence with which the text is refused; empty when it is not.
std::string refusal(const std::string& csv) {
  try {
    (void)parsed(csv);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Csv, IsWrittenAsTorchDoesWithOneRowPerRank) {
  EXPECT_EQ(toCsv(generate("1f1b", {2, 2, 2})), "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
}

TEST(Csv, RoundTripsEveryGeneratedScheduleComputeOnlyAndLowered) {
  for (const Generator& generator : generators()) {
    int shapes = 0;
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (int chunks = 1; chunks <= 4; ++chunks) {
        for (int microbatches = 1; microbatches <= 11; ++microbatches) {
          const Shape shape{ranks, ranks * chunks, microbatches};
          if (generator.refusal(shape)) continue;
          ++shapes;
          for (const Schedule& schedule : {generate(generator.name, shape), lower(generate(generator.name, shape))}) {
            const Schedule read = parsed(toCsv(schedule));
            ASSERT_EQ(read.rows, schedule.rows) << toCsv(schedule);
            ASSERT_EQ(read.placement, schedule.placement) << toCsv(schedule);
          }
        }
      }
    }
    EXPECT_GT(shapes, 0) << generator.name;
  }
}

TEST(Csv, ReadsEveryKindOfAction) {
  const std::string text = "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD\r\n1RECV_F0,1F0,1B0,1SEND_B0\r\n";
  const Schedule schedule = parsed(text);
  EXPECT_EQ(toCsv(schedule), text);
  EXPECT_EQ(schedule.rows[0][0], (Action{Stage{0}, ActionKind::Unshard, Microbatch{-1}}));
  EXPECT_EQ(schedule.rows[0][4], (Action{Stage{0}, ActionKind::BackwardInput, Microbatch{0}}));
  EXPECT_EQ(schedule.rows[1][3], (Action{Stage{1}, ActionKind::SendBackward, Microbatch{0}}));
}

TEST(Csv, InfersPlacementAndMicrobatchCount) {
  const Schedule schedule = parsed("0F0,3F0,0F11\n1F0,2F0\n");
  EXPECT_EQ(schedule.name, "test");
  EXPECT_EQ(schedule.microbatches, 12);
  EXPECT_EQ(schedule.placement.rankOfStage, (std::vector{Rank{0}, Rank{1}, Rank{1}, Rank{0}}));
}

TEST(Csv, TakesEitherLineEndBlanksAndAMissingLastOne) { EXPECT_EQ(parsed("0F0, 0B0\n\t1F0 ,1B0"), parsed("0F0,0B0\r\n1F0,1B0\r\n")); }

TEST(Csv, PassesOverTheByteOrderMarkOfSpreadsheets) {
  EXPECT_EQ(parsed("\xef\xbb\xbf"
                   "0F0,0B0\n"),
            parsed("0F0,0B0\n"));
  EXPECT_NE(refusal("0F0,\xef\xbb\xbf"
                    "0B0\n"),
            "")
      << "only at the beginning";
}

TEST(Csv, KeepsIdleCells) {
  const std::string text = "0F0,,,0B0\r\n,1F0,1B0,\r\n\"\"\r\n\r\n";
  const Schedule schedule = parsed(text);
  EXPECT_EQ(schedule.rows[0][1], kIdle);
  EXPECT_EQ(schedule.rows[1].size(), 4U);
  EXPECT_EQ(schedule.rows[2], std::vector{kIdle}) << "Python's csv module writes a single empty cell in quotes";
  EXPECT_TRUE(schedule.rows[3].empty());
  EXPECT_EQ(toCsv(schedule), text);
}

TEST(Csv, ReadsAndWritesOverlappedPairs) {
  const std::string text = "0F0,(0F1;1B0)OVERLAP_F_B,0B0\r\n";
  const Schedule schedule = parsed(text);
  ASSERT_EQ(schedule.rows[0].size(), 4U);
  EXPECT_EQ(schedule.rows[0][1], (Action{Stage{0}, ActionKind::Forward, Microbatch{1}, true}));
  EXPECT_EQ(schedule.rows[0][2], (Action{Stage{1}, ActionKind::Backward, Microbatch{0}}));
  EXPECT_EQ(toCsv(schedule), text);
  EXPECT_EQ(parsed("0F0,( 0F1 ; 1B0 ) OVERLAP_F_B ,0B0"), schedule);
  for (const char* cell : {"(0F1)OVERLAP_F_B", "(0F1;1B0)", "(0F1;1B0;1B1)OVERLAP_F_B", "(1B0;0F1)OVERLAP_F_B", "(0F1;1I0)OVERLAP_F_B",
                           "(0F1;1B0)OVERLAP_F_B0", "(;)OVERLAP_F_B", "(", "()", "(0F1;1B0"}) {
    EXPECT_TRUE(refusal(cell).starts_with("a.csv: row 1 (rank 0), cell 1: \"" + std::string(cell) + "\" is not an ")) << refusal(cell);
  }
}

TEST(Csv, InfersABidirectionalPlacementFromMirroredRanks) {
  const std::string text = "0F0,1F1,0B0,1B1\r\n1F0,0F1,1B0,0B1\r\n";
  const Schedule schedule = parsed(text);
  EXPECT_EQ(schedule.placement, bidirectionalPlacement({2, 2, 2}));
  EXPECT_EQ(schedule.placement.rankOf(Stage{0}, Microbatch{0}), Rank{0});
  EXPECT_EQ(schedule.placement.rankOf(Stage{0}, Microbatch{1}), Rank{1});
  EXPECT_EQ(toCsv(schedule), text);
  // Three ranks: stage 1 is its own mirror.
  EXPECT_EQ(parsed("0F0,2F1\n1F0,1F1\n2F0,0F1\n").placement, bidirectionalPlacement({3, 3, 2}));
}

TEST(Csv, ReadsTheLettersOfTheZeroBubblePapers) {
  const Schedule schedule = parseCsv("0F0,0B0,0F1,0W0,0B1\n", "a", "a.csv", Letters::ZeroBubble);
  EXPECT_EQ(schedule.rows[0][1].kind, ActionKind::BackwardInput);
  EXPECT_EQ(schedule.rows[0][4].kind, ActionKind::Backward) << "no W of microbatch 1: the whole backward";
  EXPECT_EQ(toCsv(schedule), "0F0,0I0,0F1,0W0,0B1\r\n");
  EXPECT_EQ(toCsv(schedule, Letters::ZeroBubble), "0F0,0B0,0F1,0W0,0B1\r\n");
}

TEST(Csv, AnEmptyRowIsARankWithoutWork) {
  const Schedule schedule = parsed("0F0\r\n\r\n1F0\r\n");
  ASSERT_EQ(schedule.rows.size(), 3U);
  EXPECT_TRUE(schedule.rows[1].empty());
  EXPECT_EQ(schedule.placement.rankOfStage[1], Rank{2});
}

TEST(Csv, NamesRowCellAndTextOfWhatCannotBeRead) {
  const std::string form = " is not an action; write stage, kind and microbatch, like 0F3 or 1B0";
  EXPECT_EQ(refusal("0F0,0B0\r\n1F0,,1F0x\r\n"), "a.csv: row 2 (rank 1), cell 3: \"1F0x\"" + form);
  for (const char* cell : {"F0", "0", "0F-1", "-1F0", "0f0", "0FF0", "0F0F0", "0 F0", "0F 0", "0SEND0", "0SEND_F0_", "\"0F0\"",
                           "0OVERLAP_F_B0", "0.5F0", "+0F0"}) {
    EXPECT_EQ(refusal(cell), "a.csv: row 1 (rank 0), cell 1: \"" + std::string(cell) + "\"" + form);
  }
}

TEST(Csv, ShowsForeignBytesEscapedAndShortened) {
  EXPECT_TRUE(refusal("0F\x1b[31m").starts_with("a.csv: row 1 (rank 0), cell 1: \"0F\\x1b[31m\" is not"));
  EXPECT_NE(refusal("\xff").find("\"\\xff\""), std::string::npos);
  EXPECT_NE(refusal(std::string(3, '\0')).find("\"\\x00\\x00\\x00\""), std::string::npos);
  EXPECT_NE(refusal(std::string(100'000, 'x')).find("\"" + std::string(40, 'x') + "...\""), std::string::npos);
  EXPECT_NE(refusal("0F0\r0B0\n").find("\"0F0\\x0d0B0\""), std::string::npos);
}

TEST(Csv, WantsAMicrobatchExactlyWhereOneBelongs) {
  EXPECT_EQ(refusal("0F"), "a.csv: row 1 (rank 0), cell 1: \"0F\" lacks its microbatch number");
  EXPECT_NE(refusal("0REDUCE_GRAD1").find("applies to the whole stage"), std::string::npos);
}

TEST(Csv, RefusesAStageComputedOnTwoRanksAndAStageNobodyComputes) {
  EXPECT_EQ(refusal("0F0\n0B0\n"),
            "a.csv: row 2 (rank 1), cell 1: computes stage 0 on rank 1, but rank 0 computes it too; a stage has one rank, "
            "or two mirrored ones of which one takes the first microbatches");
  // Stage 0 has two ranks, but stage 1 only one: no mirror.
  EXPECT_NE(refusal("0F0,0B0,0F1,0B1\n1F0,1B0,0F2,0B2,1F1,1F2\n").find("row 2 (rank 1), cell 3: computes stage 0 on rank 1"),
            std::string::npos);
  // Rank 1 takes microbatches on both sides of rank 0's.
  EXPECT_NE(refusal("0F1,1F0\n1F1,0F0,0F2,1F2\n").find("computes stage"), std::string::npos);
  EXPECT_NE(refusal("0F0\n0F1\n0F2\n").find("ranks 0 and 1 compute it too"), std::string::npos);
  EXPECT_EQ(refusal("0F0,,\n2F0\n"), "a.csv: stage 1 of 3 has no compute action; stages are numbered from 0 without gaps");
  EXPECT_EQ(refusal("0F0,1SEND_F0\n"), "a.csv: stage 1 of 2 has no compute action; stages are numbered from 0 without gaps");
}

TEST(Csv, RefusesTextWithoutActions) {
  for (const char* text : {"", "\n", "\r\n\r\n", ",,,\n", " \t\n"}) {
    EXPECT_EQ(refusal(text), "a.csv: contains no action; a schedule has one row of cells like 0F0 per rank");
  }
}

TEST(Csv, BoundsRanksStagesAndMicrobatches) {
  EXPECT_NE(refusal("1000000F0").find("stage number greater than 999999"), std::string::npos);
  EXPECT_NE(refusal("0F1000000").find("microbatch number greater than 999999"), std::string::npos);
  EXPECT_NE(refusal("0F99999999999999999999999999").find("microbatch number greater than 999999"), std::string::npos);
  EXPECT_NE(refusal("4294967296F0").find("stage number greater than 999999"), std::string::npos);
  EXPECT_NE(refusal("999999F0").find("names stage 999999, but 1 cells cannot fill the stages below it"), std::string::npos);
  EXPECT_EQ(parsed("0F999999").microbatches, 1'000'000);
  std::string rows;
  for (int rank = 0; rank < kMaxRanks; ++rank) rows += std::to_string(rank) + "F0\n";
  EXPECT_EQ(parsed(rows).rows.size(), 4096U);
  EXPECT_EQ(refusal(rows + "\n"), "a.csv: row 4097 is beyond the supported number of ranks, 4096");
}

}  // namespace
}  // namespace pw
