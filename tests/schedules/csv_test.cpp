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
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (int microbatches = 1; microbatches <= 11; ++microbatches) {
        const Schedule schedule = generate(generator.name, {ranks, ranks, microbatches});
        EXPECT_EQ(parseCsv(toCsv(schedule), schedule.name, "memory"), schedule);
        EXPECT_EQ(parseCsv(toCsv(lower(schedule)), schedule.name, "memory"), lower(schedule));
      }
    }
  }
}

TEST(Csv, ReadsEveryKindOfAction) {
  const std::string text =
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD\r\n1RECV_F0,1F0,1B0,1SEND_B0\r\n";
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
  EXPECT_EQ(schedule.rankOfStage, (std::vector{Rank{0}, Rank{1}, Rank{1}, Rank{0}}));
}

TEST(Csv, DropsIdleSlotsAndTakesEitherLineEndBlanksAndAMissingLastOne) {
  const Schedule expected = parsed("0F0,0B0\r\n1F0,1B0\r\n");
  EXPECT_EQ(parsed("0F0,,,0B0\n,1F0,1B0,\n"), expected);
  EXPECT_EQ(parsed("0F0, 0B0\n\t1F0 ,1B0"), expected);
}

TEST(Csv, AnEmptyRowIsARankWithoutWork) {
  const Schedule schedule = parsed("0F0\r\n\r\n1F0\r\n");
  ASSERT_EQ(schedule.rows.size(), 3U);
  EXPECT_TRUE(schedule.rows[1].empty());
  EXPECT_EQ(schedule.rankOfStage[1], Rank{2});
}

TEST(Csv, NamesRowCellAndTextOfWhatCannotBeRead) {
  const std::string form = " is not an action; write stage, kind and microbatch, like 0F3 or 1SEND_B0";
  EXPECT_EQ(refusal("0F0,0B0\r\n1F0,,1F0x\r\n"), "a.csv: row 2 (rank 1), cell 3: \"1F0x\"" + form);
  for (const char* cell : {"F0", "0", "0F-1", "-1F0", "0f0", "0FF0", "0F0F0", "0 F0", "0F 0", "0SEND0", "0SEND_F0_",
                           "\"0F0\"", "0OVERLAP_F_B0", "0.5F0", "+0F0"}) {
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
  EXPECT_NE(refusal("0REDUCE_GRAD1").find("belongs to the whole stage"), std::string::npos);
}

TEST(Csv, RefusesOverlappedPairsByName) {
  EXPECT_NE(refusal("(0F1;0B0)OVERLAP_F_B").find("overlaps actions, which is not supported"), std::string::npos);
}

TEST(Csv, RefusesAStageComputedOnTwoRanksAndAStageNobodyComputes) {
  EXPECT_EQ(refusal("0F0\n0B0\n"),
            "a.csv: row 2 (rank 1), cell 1: \"0B0\" computes stage 0 on rank 1, but rank 0 computes it too; a stage "
            "has one rank");
  EXPECT_EQ(refusal("0F0\n2F0\n"),
            "a.csv: stage 1 of 3 has no compute action; stages are numbered from 0 without gaps");
  EXPECT_EQ(refusal("0F0,1SEND_F0\n"),
            "a.csv: stage 1 of 2 has no compute action; stages are numbered from 0 without gaps");
}

TEST(Csv, RefusesTextWithoutActions) {
  for (const char* text : {"", "\n", "\r\n\r\n", ",,,\n", " \t\n"}) {
    EXPECT_EQ(refusal(text), "a.csv: holds no action; a schedule has one row of cells like 0F0 per rank");
  }
}

TEST(Csv, BoundsRanksStagesAndMicrobatches) {
  EXPECT_NE(refusal("1000000F0").find("stage number beyond 999999"), std::string::npos);
  EXPECT_NE(refusal("0F1000000").find("microbatch number beyond 999999"), std::string::npos);
  EXPECT_NE(refusal("0F99999999999999999999999999").find("microbatch number beyond 999999"), std::string::npos);
  EXPECT_NE(refusal("4294967296F0").find("stage number beyond 999999"), std::string::npos);
  EXPECT_NE(refusal("999999F0").find("stage 0 of 1000000 has no compute action"), std::string::npos);
  EXPECT_EQ(parsed("0F999999").microbatches, 1'000'000);
  std::string rows;
  for (int rank = 0; rank < kMaxRanks; ++rank) rows += std::to_string(rank) + "F0\n";
  EXPECT_EQ(parsed(rows).rows.size(), 4096U);
  EXPECT_EQ(refusal(rows + "\n"), "a.csv: row 4097 is one rank too many; at most 4096 are supported");
}

/// Damages a text in one of the ways files are damaged.
void mutate(std::string& text, std::mt19937& random) {
  static constexpr std::string_view kLikely = "0123456789FBIW_SENDRECV,\r\n() ;-";
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  const std::size_t at = text.empty() ? 0 : below(text.size());
  switch (below(6)) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(below(256));
      return;
    case 1:
      if (!text.empty()) text[at] = kLikely[below(kLikely.size())];
      return;
    case 2: text.insert(at, 1, kLikely[below(kLikely.size())]); return;
    case 3: text.erase(at, 1 + below(8)); return;
    case 4: text.insert(at, text.substr(below(text.size() + 1), 1 + below(30))); return;
    default: text.resize(at); return;
  }
}

TEST(Csv, SurvivesTwentyThousandDamagedFiles) {
  constexpr unsigned kSeed = 20'260'101;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  std::vector<std::string> originals;
  for (const Generator& generator : generators()) {
    originals.push_back(toCsv(generate(generator.name, {3, 3, 4})));
    originals.push_back(toCsv(lower(generate(generator.name, {2, 2, 3}))));
  }
  int taken = 0;
  int sound = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = originals[random() % originals.size()];
    for (auto damage = 1 + random() % 6; damage > 0; --damage) mutate(text, random);
    try {
      const Schedule schedule = parsed(text);
      ++taken;
      ASSERT_EQ(parsed(toCsv(schedule)), schedule) << "case " << i;
      sound += check(schedule).empty() ? 1 : 0;
    } catch (const UsageError& error) {
      ASSERT_EQ(std::string(error.what()).substr(0, 7), "a.csv: ") << "case " << i;
    }
  }
  // The damage must reach the code behind the parser, and not all of it may go unnoticed.
  EXPECT_GT(taken, 1'000);
  EXPECT_LT(taken, 19'000);
  EXPECT_GT(sound, 0);
  EXPECT_LT(sound, taken);
}

}  // namespace
}  // namespace pw
