#include "schedules/generate.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/lower.h"

namespace pw {
namespace {

std::string text(const std::vector<Action>& row) {
  std::string out;
  for (const Action& action : row) out += (out.empty() ? "" : " ") + toString(action);
  return out;
}

const std::vector<std::string> kNames{"forward-only", "gpipe",          "1f1b",   "interleaved-1f1b", "looped-bfs", "zb-h1",
                                      "zb-h2",        "interleaved-zb", "zbv",    "v-half",           "v-min",      "dualpipe",
                                      "dualpipev",    "chimera",        "hanayo", "lockstep"};

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

Shape oneStagePerRank(int ranks, int microbatches) { return {ranks, ranks, microbatches}; }

/// 1F1B by its definition in the DAPPLE paper (early backward scheduling under a memory limit): rank i may hold R−i
/// microbatches; it starts a forward whenever that leaves it within its limit, else it does the oldest backward.
std::vector<Action> rowByDefinition(int ranks, int rank, int microbatches) {
  std::vector<Action> row;
  int forwards = 0;
  int backwards = 0;
  while (backwards < microbatches) {
    const bool room = forwards - backwards < ranks - rank;
    if (forwards < microbatches && room) {
      row.push_back({Stage{rank}, ActionKind::Forward, Microbatch{forwards++}});
    } else {
      row.push_back({Stage{rank}, ActionKind::Backward, Microbatch{backwards++}});
    }
  }
  return row;
}

/// Most microbatches between their F and their B at once.
int peakLive(const std::vector<Action>& row) {
  int live = 0;
  int peak = 0;
  for (const Action& action : row) {
    live += action.kind == ActionKind::Forward ? 1 : -1;
    peak = std::max(peak, live);
  }
  return peak;
}

/// Flush time of a one-stage-per-rank schedule with F = 1, B = 2 and free transfers: sweeps until all is done.
int flushTime(const Schedule& schedule) {
  const std::size_t ranks = schedule.rows.size();
  const auto microbatches = static_cast<std::size_t>(schedule.microbatches);
  std::vector<std::vector<std::optional<int>>> forwardEnd(ranks, std::vector<std::optional<int>>(microbatches));
  auto backwardEnd = forwardEnd;
  std::vector<std::size_t> cursor(ranks, 0);
  std::vector<int> clock(ranks, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (cursor[rank] == schedule.rows[rank].size()) continue;
      const Action& action = schedule.rows[rank][cursor[rank]];
      const bool forward = action.kind == ActionKind::Forward;
      const std::size_t m = action.microbatch.index();
      const bool end = forward ? rank == 0 : rank + 1 == ranks;
      const auto& ends = forward ? forwardEnd : backwardEnd;
      const std::optional<int> ready = end ? 0 : ends[forward ? rank - 1 : rank + 1][m];
      if (!ready) continue;
      clock[rank] = std::max(clock[rank], *ready) + (forward ? 1 : 2);
      (forward ? forwardEnd : backwardEnd)[rank][m] = clock[rank];
      ++cursor[rank];
      moved = true;
    }
  }
  return *std::ranges::max_element(clock);
}

TEST(Generate, ListsItsFamiliesInTheDocumentedOrder) {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) names.emplace_back(generator.name);
  EXPECT_EQ(names, kNames);
}

TEST(Generate, UnderstandsTorchsNamesInAnyCase) {
  const std::vector<std::pair<std::string, std::string>> same{{"1F1B", "1f1b"},
                                                              {"Schedule1F1B", "1f1b"},
                                                              {"GPipe", "gpipe"},
                                                              {"Interleaved1F1B", "interleaved-1f1b"},
                                                              {"interleaved1f1b", "interleaved-1f1b"},
                                                              {"ZBVZeroBubble", "zbv"},
                                                              {"ScheduleZBVZeroBubble", "zbv"},
                                                              {"LoopedBFS", "looped-bfs"},
                                                              {"SCHEDULEGPIPE", "gpipe"},
                                                              {"InterleavedZeroBubble", "interleaved-zb"},
                                                              {"DualPipeV", "dualpipev"},
                                                              {"_ScheduleForwardOnly", "forward-only"},
                                                              {"ZB-H1", "zb-h1"},
                                                              {"zb_h1", "zb-h1"},
                                                              {"DualPipe", "dualpipe"}};
  for (const auto& [name, ours] : same) EXPECT_EQ(generatorOf(name).name, ours) << name;
  for (const std::string& name : kNames) EXPECT_EQ(generatorOf(name).name, name);
  EXPECT_EQ(generate("Schedule1F1B", oneStagePerRank(2, 4)).name, "1f1b");
}

TEST(Generate, OffersNearNames) {
  const auto refusal = [](const std::string& name) -> std::string {
    try {
      return std::string(generatorOf(name).name);
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_TRUE(refusal("1f2b").starts_with("unknown schedule \"1f2b\" (did you mean 1f1b?); known are forward-only, gpipe"));
  EXPECT_NE(refusal("zb-h").find("(did you mean zb-h1 or zb-h2"), std::string::npos) << refusal("zb-h");
  EXPECT_NE(refusal("interleaved").find("interleaved-1f1b or interleaved-zb"), std::string::npos) << refusal("interleaved");
  EXPECT_NE(refusal("gpip").find("did you mean gpipe"), std::string::npos);
  EXPECT_TRUE(refusal("frobnicate").starts_with("unknown schedule \"frobnicate\"; known are")) << "nothing is near";
  EXPECT_TRUE(refusal("").starts_with("unknown schedule"));
  EXPECT_TRUE(refusal("schedule").starts_with("unknown schedule"));
}

TEST(Generate, GpipeOnTwoRanksDoesAllForwardsThenAllBackwards) {
  const Schedule schedule = generate("gpipe", oneStagePerRank(2, 3));
  EXPECT_EQ(schedule.name, "gpipe");
  EXPECT_EQ(schedule.microbatches, 3);
  EXPECT_EQ(schedule.placement.rankOfStage, (std::vector{Rank{0}, Rank{1}}));
  ASSERT_EQ(schedule.rows.size(), 2U);
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 0F2 0B0 0B1 0B2");
  EXPECT_EQ(text(schedule.rows[1]), "1F0 1F1 1F2 1B0 1B1 1B2");
}

TEST(Generate, OneForwardOneBackwardOnTwoRanksWarmsUpWithOneForward) {
  const Schedule schedule = generate("1f1b", oneStagePerRank(2, 3));
  ASSERT_EQ(schedule.rows.size(), 2U);
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 0B0 0F2 0B1 0B2");
  EXPECT_EQ(text(schedule.rows[1]), "1F0 1B0 1F1 1B1 1F2 1B2");
}

TEST(Generate, ForwardOnlyHasNoBackward) {
  const Schedule schedule = generate("forward-only", oneStagePerRank(2, 3));
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 0F2");
  EXPECT_EQ(text(schedule.rows[1]), "1F0 1F1 1F2");
}

TEST(Generate, FewerMicrobatchesThanRanksTurnsTheFirstRowsOfOneForwardOneBackwardIntoGpipe) {
  const Schedule schedule = generate("1f1b", oneStagePerRank(4, 2));
  EXPECT_EQ(text(schedule.rows[0]), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(text(schedule.rows[2]), "2F0 2F1 2B0 2B1");
  EXPECT_EQ(text(schedule.rows[3]), "3F0 3B0 3F1 3B1");
}

TEST(Generate, OneForwardOneBackwardFollowsItsDefinitionForAllSmallShapes) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int microbatches = 1; microbatches <= 32; ++microbatches) {
      const Schedule schedule = generate("1f1b", oneStagePerRank(ranks, microbatches));
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(schedule.rows[static_cast<std::size_t>(rank)], rowByDefinition(ranks, rank, microbatches))
            << "R=" << ranks << " M=" << microbatches << " rank " << rank;
      }
    }
  }
}

TEST(Generate, EverythingItMakesPassesTheCheckComputeOnlyAndLowered) {
  for (const Generator& generator : generators()) {
    int shapes = 0;
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int chunks = 1; chunks <= 4; ++chunks) {
        for (int microbatches = 1; microbatches <= 20; ++microbatches) {
          const Shape shape{ranks, ranks * chunks, microbatches};
          if (generator.refusal(shape)) continue;
          SCOPED_TRACE(std::string(generator.name) + " R=" + std::to_string(ranks) + " V=" + std::to_string(chunks) +
                       " M=" + std::to_string(microbatches));
          const Schedule schedule = generate(generator.name, shape);
          ++shapes;
          ASSERT_EQ(schedule.name, generator.name);
          ASSERT_EQ(shapeOf(schedule), shape);
          ASSERT_EQ(check(schedule), std::vector<Problem>{});
          ASSERT_EQ(check(lower(schedule)), std::vector<Problem>{});
          if (ranks == 1) continue;  // there all placements are one
          // A V over several waves is a wave; one chunk of any loop is a loop.
          const bool waves = generator.placement == PlacementKind::Wave && chunks == 2;
          ASSERT_EQ(kindOf(schedule.placement, shape), waves ? PlacementKind::V : generator.placement);
        }
      }
    }
    EXPECT_GT(shapes, 20) << generator.name;
    EXPECT_EQ(generator.refusal({4, 4 * generator.chunks, 8}), std::nullopt) << generator.name << " with its own number of chunks";
  }
}

TEST(Generate, TakesAThousandRanks) {
  for (const Generator& generator : generators()) {
    const Shape shape{1024, 1024 * generator.chunks, generator.name.starts_with("v-") ? 8 : 2048};
    const Schedule schedule = generate(generator.name, shape);
    EXPECT_EQ(shapeOf(schedule), shape) << generator.name;
    EXPECT_EQ(check(schedule), std::vector<Problem>{}) << generator.name;
  }
}

/// 4,096 stages × 4,095 microbatches, to which zbv is padded, are more than 16,000,000 pairs; 4,096 rows of 16,384 stages are more than
/// 64,000,000 cells. What is not refused is generated.
TEST(Generate, RefusesBeforehandWhatIsTooLarge) {
  const auto refusal = [](std::string_view name, const Shape& shape) { return generatorOf(name).refusal(shape).value_or("none"); };
  EXPECT_EQ(
      refusal("zbv", {2048, 4096, 4}),
      "it is padded to 2R−1 = 4095 microbatches, and 4096 stages × 4095 microbatches are too many; at most 16000000 pairs are scheduled; "
      "use fewer ranks");
  for (const char* name : {"interleaved-1f1b", "interleaved-zb"}) {
    EXPECT_EQ(refusal(name, {4096, 16384, 4}),
              "it needs a table of more than 64000000 cells, most of them idle; use fewer ranks or stages");
  }
  for (const Generator& generator : generators()) {
    const Shape shape{2048, 2048 * generator.chunks, 4};
    if (generator.refusal(shape)) continue;
    EXPECT_EQ(shapeOf(generate(generator.name, shape)), shape) << generator.name;
  }
}

TEST(Generate, GpipeAndOneForwardOneBackwardTakeTheClosedFormTime) {
  // (M + R − 1)(F + B) with F = 1, B = 2; R = 4, M = 8 gives the published 33.
  EXPECT_EQ(flushTime(generate("gpipe", oneStagePerRank(4, 8))), 33);
  EXPECT_EQ(flushTime(generate("1f1b", oneStagePerRank(4, 8))), 33);
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      const int expected = (microbatches + ranks - 1) * 3;
      EXPECT_EQ(flushTime(generate("gpipe", oneStagePerRank(ranks, microbatches))), expected);
      EXPECT_EQ(flushTime(generate("1f1b", oneStagePerRank(ranks, microbatches))), expected);
    }
  }
}

TEST(Generate, OneForwardOneBackwardHoldsAtMostRMinusIMicrobatchesOnRankI) {
  const Schedule schedule = generate("1f1b", oneStagePerRank(4, 8));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(peakLive(schedule.rows[static_cast<std::size_t>(rank)]), 4 - rank);
  EXPECT_EQ(peakLive(generate("gpipe", oneStagePerRank(4, 8)).rows[0]), 8);
}

TEST(Generate, AnUnknownNameIsRefusedWithTheKnownOnes) {
  try {
    (void)generate("2f2b", oneStagePerRank(2, 2));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), ("unknown schedule \"2f2b\"; known are " + joined(kNames)).c_str());
  }
}

TEST(Generate, SeveralChunksPerRankAreRefusedWithTheCure) {
  try {
    (void)generate("1f1b", {2, 4, 8});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "schedule 1f1b needs one stage per rank, but there are 4 stages on 2 ranks; set chunks to 1");
  }
}

TEST(Generate, EmptyNegativeAndAbsurdShapesAreRefused) {
  constexpr int kHuge = std::numeric_limits<int>::max();
  const std::vector<Shape> shapes{{0, 0, 1}, {1, 1, 0}, {-1, -1, 4}, {2, 2, -3}, {1, 1, kHuge}, {kHuge, kHuge, 1}, {4096, 4096, 999'999}};
  for (const Generator& generator : generators()) {
    for (const Shape& shape : shapes) {
      EXPECT_TRUE(generator.refusal(shape).has_value());
      EXPECT_THROW((void)generate(generator.name, shape), UsageError);
    }
  }
}

}  // namespace
}  // namespace pw
