#include "simulator/report/memory_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedules/csv.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/report/metrics.h"
#include "tests/support/random_costs.h"
#include "tests/support/split_backward.h"

namespace pw::test {
namespace {

/// What a rank of 1F1B holds, from its definition: R − r microbatches when a forward of the steady state runs.
TEST(MemoryReport, NamesTheMicrobatchesOf1F1B) {
  CostTable costs = syntheticTable({{10}, {20}, {}, {}, 0, 0, {}}, 4);
  for (StageCost& stage : costs.stages) {
    stage.activationBytes = 100;
    stage.forwardPeak = 130;
    stage.backwardPeak = 7;
    stage.parameterBytes = 1000;
    stage.gradientBytes = 900;
    stage.optimizerBytes = 1800;
    stage.fixedBytes = 11;
    stage.dataBytes = &stage == costs.stages.data() ? Bytes{5} : Bytes{0};
  }
  const auto memory = memoryOf(generate("1f1b", {4, 4, 8}), costs);
  ASSERT_EQ(memory.size(), 4U);
  for (int r = 0; r < 4; ++r) {
    SCOPED_TRACE(r);
    const RankMemory& rank = memory[static_cast<std::size_t>(r)];
    const int live = 4 - r;
    EXPECT_EQ(rank.peak, 1000 + 900 + 1800 + 11 + (r == 0 ? 8 * 5 : 0) + live * 100 + 30);
    EXPECT_EQ(toString(rank.at), std::to_string(r) + "F" + std::to_string(live - 1)) << "the first of equal ones";
    ASSERT_EQ(rank.parts.size(), r == 0 ? 7U : 6U);
    EXPECT_EQ(rank.parts[0], (MemoryPart{MemoryKind::OptimizerState, Stage(r), {}, 1800}));
    EXPECT_EQ(rank.parts[1], (MemoryPart{MemoryKind::Parameters, Stage(r), {}, 1000}));
    EXPECT_EQ(rank.parts[2], (MemoryPart{MemoryKind::Gradients, Stage(r), {}, 900}));
    EXPECT_EQ(rank.parts[3].kind, MemoryKind::Activations);
    EXPECT_EQ(rank.parts[3].bytes, live * 100);
    EXPECT_EQ(rangesOf(rank.parts[3].microbatches), live == 1 ? "0" : "0–" + std::to_string(live - 1));
    EXPECT_EQ(rank.parts[r == 0 ? 5 : 4], (MemoryPart{MemoryKind::Working, Stage(r), {Microbatch(live - 1)}, 30}));
  }
}

TEST(MemoryReport, AddsUpToThePeakOfEveryScheduleAndWayOfSending) {
  int received = 0, sent = 0, split = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    for (const Generator& family : generators()) {
      const Shape shape{4, 4 * family.chunks, static_cast<int>(draw(random, 4, 10))};
      if (family.refusal(shape)) continue;
      Schedule schedule = family.generate(shape);
      if (oneIn(random, 3) && !schedule.lockstep) schedule = test::splitBackward(schedule);
      if (oneIn(random, 2)) schedule = lower(schedule);
      CostTable costs =
          syntheticTable({{draw<Ns>(random, 1, 20)}, {draw<Ns>(random, 1, 40)}, {}, {}, draw<Ns>(random, 0, 3), draw<Ns>(random, 0, 3), {}},
                         static_cast<int>(schedule.placement.stages()));
      for (StageCost& stage : costs.stages) {
        for (Bytes* bytes : {&stage.parameterBytes, &stage.gradientBytes, &stage.optimizerBytes, &stage.fixedBytes, &stage.dataBytes,
                             &stage.backwardPeak, &stage.inputPeak, &stage.weightPeak})
          *bytes = oneIn(random, 3) ? 0 : draw<Bytes>(random, 0, 50);
        stage.activationBytes = draw<Bytes>(random, 0, 60);
        stage.forwardPeak = stage.activationBytes + (oneIn(random, 2) ? draw<Bytes>(random, 0, 20) : 0);
        stage.freedByInput = draw<Bytes>(random, 0, stage.activationBytes);
        stage.addedByInput = oneIn(random, 3) ? draw<Bytes>(random, 0, 30) : 0;
        if (const auto s = static_cast<std::size_t>(&stage - costs.stages.data()); s > 0 && !schedule.placement.bidirectional())
          stage.sharedForWeight = schedule.placement.rankOfStage[s - 1] == schedule.placement.rankOfStage[s] ? heldForWeight(stage) : 0;
      }
      for (MessageCost& message : costs.messages) message.bytes = oneIn(random, 3) ? 0 : draw<Bytes>(random, 0, 30);
      const Sending sending = schedule.lockstep || oneIn(random, 2) ? Sending::Overlapped : Sending::Posted;
      const Program program = compile(schedule, costs, sending);
      const auto memory = memoryOf(schedule, costs, sending);
      ASSERT_EQ(memory.size(), program.peakBytes.size());
      for (const RankMemory& rank : memory) {
        Bytes sum = 0;
        for (const MemoryPart& part : rank.parts) {
          sum += part.bytes;
          EXPECT_GT(part.bytes, 0) << family.name << " " << nameOf(part.kind);
          received += part.kind == MemoryKind::Received ? 1 : 0;
          sent += part.kind == MemoryKind::Sent ? 1 : 0;
          EXPECT_TRUE(std::is_sorted(part.microbatches.begin(), part.microbatches.end()));
        }
        EXPECT_EQ(sum, rank.peak) << family.name << " seed " << seed << " rank " << rank.rank.value;
        EXPECT_EQ(rank.peak, program.peakBytes[rank.rank.index()]);
        split += rank.at.kind == ActionKind::BackwardInput || rank.at.kind == ActionKind::BackwardWeight ? 1 : 0;
      }
    }
  }
  EXPECT_GT(received, 100);
  EXPECT_GT(sent, 100);
  EXPECT_GT(split, 100);
}

/// What is not a backward does not make a schedule of forwards train: it keeps nothing for later.
TEST(MemoryReport, OfForwardsAloneKeepsNoActivations) {
  const Schedule schedule = parseCsv(",0UNSHARD,0F0,0F1,0RESHARD\n,,1F0,1F1\n", "forwards", "forwards.csv");
  EXPECT_FALSE(trains(schedule));
  CostTable costs = syntheticTable({{10}, {20}, {}, {}, 0, 0, {}}, 2);
  for (StageCost& stage : costs.stages) stage.activationBytes = stage.forwardPeak = 50;
  const Program program = compile(schedule, costs, Sending::Overlapped);
  for (const RankMemory& rank : memoryOf(schedule, costs, Sending::Overlapped)) {
    Bytes sum = 0;
    for (const MemoryPart& part : rank.parts) sum += part.bytes;
    EXPECT_EQ(sum, program.peakBytes[rank.rank.index()]);
    EXPECT_EQ(sum, 50);
  }
}

TEST(MemoryReport, WritesRanges) {
  EXPECT_EQ(rangesOf({}), "");
  EXPECT_EQ(rangesOf({Microbatch(3)}), "3");
  EXPECT_EQ(rangesOf({Microbatch(0), Microbatch(2), Microbatch(3), Microbatch(4), Microbatch(9)}), "0, 2–4, 9");
}

}  // namespace
}  // namespace pw::test
