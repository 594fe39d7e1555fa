// Interleaved schedules where torch has none: uneven groups of microbatches, and Megatron's group size.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

std::string forwards(const std::vector<Action>& row) {
  std::string text;
  for (const Action& a : row) text += a.kind == ActionKind::Forward ? toString(a) + " " : "";
  return text;
}

/// What is wrong with it under any lowering; empty when nothing is.
std::string firstProblem(const Schedule& schedule) {
  for (const Problem& problem : check(schedule)) return problem.message;
  for (const Lowering lowering : {Lowering::Deferred, Lowering::Torch, Lowering::TorchRuntime}) {
    const Schedule lowered = lower(schedule, lowering);
    for (const Problem& problem : check(lowered)) return problem.message;
    if (lower(lowered, lowering) != lowered) return "lowering twice is not lowering once";
  }
  return {};
}

TEST(Interleaved, UnevenMicrobatchesGoInGroupsAsEqualAsPossibleLargerOnesFirst) {
  // 2 ranks, 7 microbatches: 7 div 2 = 3 groups, of 3, 2 and 2. Rank 1 has stages 1 and 3.
  const Schedule schedule = generate("interleaved-1f1b", {2, 4, 7});
  EXPECT_EQ(forwards(schedule.rows[1]), "1F0 1F1 1F2 3F0 3F1 3F2 1F3 1F4 3F3 3F4 1F5 1F6 3F5 3F6 ");
  EXPECT_EQ(forwards(generate("interleaved-zb", {2, 4, 7}).rows[1]), forwards(schedule.rows[1]));
}

TEST(Interleaved, AnyNumberOfMicrobatchesRunsWithoutDeadlockUnderEveryLowering) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunks = 1; chunks <= 5; ++chunks) {
      for (int microbatches = 1; microbatches <= 3 * ranks + 2; ++microbatches) {
        for (const char* name : {"interleaved-1f1b", "interleaved-zb"}) {
          ASSERT_EQ(firstProblem(generate(name, {ranks, ranks * chunks, microbatches})), "")
              << name << " R=" << ranks << " V=" << chunks << " M=" << microbatches;
        }
      }
    }
  }
}

TEST(Interleaved, TorchWantsEqualGroups) {
  const Generator& family = generatorOf("interleaved-1f1b");
  EXPECT_EQ(family.torchRefusal({4, 8, 3}), std::nullopt);   // one group
  EXPECT_EQ(family.torchRefusal({4, 8, 10}), std::nullopt);  // two of 5
  EXPECT_EQ(family.torchRefusal({4, 8, 9}),
            "torch's interleaved schedules need the microbatches in 2 equal groups (microbatches div ranks), but there are 9; "
            "use 8 or 12");
}

TEST(Interleaved, MegatronsGroupSizeOfTorchsGroupsIsTorchsSchedule) {
  EXPECT_EQ(interleavedWithGroups({4, 8, 10}, 5), generate("interleaved-1f1b", {4, 8, 10}));
  EXPECT_EQ(interleavedWithGroups({4, 12, 3}, 3), generate("interleaved-1f1b", {4, 12, 3}));
}

TEST(Interleaved, MegatronsLastGroupMayBeSmaller) {
  // Megatron's schedule table for 5 microbatches in groups of 3: chunk 0 does 0 1 2, chunk 1 does 0 1 2, then each 3 4.
  EXPECT_EQ(forwards(interleavedWithGroups({2, 4, 5}, 3).rows[0]), "0F0 0F1 0F2 2F0 2F1 2F2 0F3 0F4 2F3 2F4 ");
}

/// Whether the groups run; the sentence of the refusal must name a size that does.
bool runs(const Shape& shape, int group) {
  try {
    EXPECT_EQ(firstProblem(interleavedWithGroups(shape, group)), "");
    return true;
  } catch (const UsageError& error) {
    const std::string sentence = error.what();
    const int better = std::stoi(sentence.substr(sentence.rfind(' ')));
    EXPECT_EQ(firstProblem(interleavedWithGroups(shape, better)), "") << sentence;
    return false;
  }
}

TEST(Interleaved, EveryGroupSizeRunsOrIsRefusedAndThoseThatMegatronTakesRun) {
  int refused = 0;
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int microbatches = 1; microbatches <= 3 * ranks + 2; ++microbatches) {
        for (int group = std::min(ranks, microbatches); group <= microbatches; ++group) {
          const bool fine = runs({ranks, ranks * chunks, microbatches}, group);
          const int rest = microbatches % group;
          const bool megatronTakesIt = rest == 0 || rest >= ranks || chunks == 1;
          ASSERT_TRUE(fine || !megatronTakesIt) << "R=" << ranks << " V=" << chunks << " M=" << microbatches << " group " << group;
          refused += fine ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Interleaved, ADeadlockingOrAbsurdGroupIsRefusedWithTheNextThatRuns) {
  const auto refusal = [](const Shape& shape, int group) -> std::string {
    try {
      (void)interleavedWithGroups(shape, group);
      return "taken";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal({4, 12, 5}, 4),
            "microbatch groups of 4 leave 1 of 5 microbatches for the last one, which with 12 stages deadlocks on 4 ranks; use 5");
  EXPECT_EQ(refusal({4, 8, 9}, 3), "a microbatch group of 3 does not fit 4 ranks and 9 microbatches; use 4 to 9");
  EXPECT_EQ(refusal({4, 8, 9}, 10), "a microbatch group of 10 does not fit 4 ranks and 9 microbatches; use 4 to 9");
  EXPECT_NE(refusal({4, 9, 9}, 4), "taken") << "stages must be a multiple of the ranks";
}

TEST(Interleaved, ATableOfMostlyIdleCellsThatWouldFillTheMemoryIsRefused) {
  // Each rank would pause for all 4096 · 240 stages: 4 · 10⁹ cells.
  for (const char* name : {"interleaved-1f1b", "interleaved-zb"})
    EXPECT_THROW((void)generate(name, {4096, 4096 * 240, 1}), UsageError) << name;
}

}  // namespace
}  // namespace pw
