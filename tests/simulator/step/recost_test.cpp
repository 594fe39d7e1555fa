// Recosted programs against freshly compiled ones, over every generator, random schedules and every way of sending.

#include "simulator/step/recost.h"
#include "simulator/step/compile.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/execute.h"

#include <array>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedules/csv.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/schedules/random_schedules.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

using test::draw;
using test::oneIn;

constexpr std::array kSendings{Sending::Overlapped, Sending::Posted, Sending::OneChannel, Sending::Blocking};

/// Other numbers in the same places, of which some are 0. `structure`: also where a 0 may change who waits for whom.
CostTable otherNumbers(std::mt19937_64& random, CostTable costs, const Schedule& rows, bool structure) {
  const auto some = [&](std::int64_t most) { return oneIn(random, 4) ? 0 : draw(random, 1, most); };
  for (StageCost& s : costs.stages) {
    for (Ns* time : {&s.forward, &s.backward, &s.backwardInput, &s.backwardWeight, &s.optimizer}) *time = Ns(some(100));
    for (Bytes* bytes : {&s.parameterBytes, &s.gradientBytes, &s.optimizerBytes, &s.activationBytes, &s.addedByInput, &s.sharedForWeight,
                         &s.forwardPeak, &s.backwardPeak, &s.inputPeak, &s.weightPeak, &s.fixedBytes, &s.dataBytes}) {
      *bytes = Bytes(some(1000));
    }
    s.freedByInput = draw<Bytes>(random, 0, s.activationBytes);
    if (s.reduce > 0 || structure) s.reduce = Ns(structure ? some(50) : draw(random, 1, 50));
  }
  for (MessageCost& m : costs.messages) {
    m.bytes = Bytes(some(500));
    m.latency = Ns(some(30));
    if (m.transfer > 0 || structure) m.transfer = structure && oneIn(random, 2) ? 0 : draw<Ns>(random, 1, 60);
  }
  for (Ns* time : {&costs.load, &costs.store}) {
    if (*time > 0 || structure) *time = Ns(structure ? some(20) : draw(random, 1, 20));
  }
  costs.reduceTime = Ns(some(50));
  costs.overlap.clear();
  for (std::size_t s = 0; s < costs.stages.size() && oneIn(random, 2); ++s)
    costs.overlap.assign(costs.stages.size(), draw<Ns>(random, 1, 200));
  costs.microbatchScale.clear();
  if (oneIn(random, 2)) {
    for (int m = 0; m < rows.microbatches; ++m) costs.microbatchScale.push_back(static_cast<double>(draw(random, 1, 5)) / 4.0);
  }
  return costs;
}

/// Random costs that these rows can be compiled with: where messages are posted, those between neighbours only.
CostTable costsFor(std::mt19937_64& random, const Schedule& rows, Sending sending) {
  CostTable costs = test::randomCosts(random, rows);
  if (sending != Sending::Overlapped)
    std::erase_if(costs.messages, [](const MessageCost& m) { return std::abs(m.from.value - m.to.value) > 1; });
  for (StageCost& stage : costs.stages) stage.reduce = oneIn(random, 2) ? draw<Ns>(random, 1, 50) : 0;
  costs.load = rows.lockstep ? draw<Ns>(random, 0, 2) : 0;
  costs.store = rows.lockstep ? draw<Ns>(random, 0, 2) : 0;
  return costs;
}

/// Recosts a program of these rows several times. Returns how often it could.
int recostOften(std::mt19937_64& random, const Schedule& rows, Sending sending) {
  CostTable costs = costsFor(random, rows, sending);
  Program program = compile(rows, costs, sending);
  int could = 0;
  for (int i = 0; i < 6; ++i) {
    const bool structure = i % 3 == 2;
    const CostTable next = otherNumbers(random, costs, rows, structure);
    const Program expected = compile(rows, next, sending);
    const Program before = program;
    if (recost(rows, next, sending, program)) {
      EXPECT_TRUE(program == expected) << rows.name << '\n' << toCsv(rows);
      ++could;
    } else {
      EXPECT_TRUE(program == before) << "left as it was";
      // Without backwards no gradient uses its channel, and nobody minds whether that is free.
      const bool same = expected.steps == before.steps && expected.edges == before.edges && expected.origin == before.origin;
      EXPECT_FALSE(same && before.basis.trains) << rows.name << ": refused, but the structure is the same";
      EXPECT_TRUE(structure);
      program = expected;
    }
    costs = next;
  }
  return could;
}

TEST(Recost, MakesTheProgramThatCompileMakesForEveryGenerator) {
  std::mt19937_64 random(11);
  for (const Generator& generator : generators()) {
    int shapes = 0;
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (const int microbatches : {1, 2, 4, 7, 10}) {
        for (const int chunks : {1, 2, 3}) {
          const Shape shape{ranks, ranks * chunks, microbatches};
          if (generator.refusal(shape)) continue;
          ++shapes;
          const Schedule schedule = generator.generate(shape);
          SCOPED_TRACE(fmt::format("{} on {} ranks, {} stages, {} microbatches", generator.name, ranks, shape.stages, microbatches));
          EXPECT_GE(recostOften(random, schedule, Sending::Overlapped), 4);
          if (schedule.lockstep) continue;
          EXPECT_GE(recostOften(random, withReductions(lower(schedule)), Sending::Overlapped), 4);
          EXPECT_GE(recostOften(random, lower(schedule, Lowering::Deferred), Sending::Posted), 4);
        }
      }
    }
    EXPECT_GE(shapes, 3) << generator.name;
  }
}

TEST(Recost, MakesTheProgramThatCompileMakesForRandomSchedulesAndEveryWayOfSending) {
  for (const Sending sending : kSendings) {
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
      std::mt19937_64 random(seed);
      test::Wish wish;
      wish.lowered = sending != Sending::Overlapped || oneIn(random, 2);
      const Schedule rows = test::Grower(random, wish).grow();
      SCOPED_TRACE(fmt::format("seed {}, sending {}", seed, static_cast<int>(sending)));
      EXPECT_GE(recostOften(random, rows, sending), 4);
    }
  }
}

/// Two stages, F and B, a message each way.
CostTable twoStages(Ns transfer) {
  SyntheticCosts synthetic;
  synthetic.forward = {10};
  synthetic.backward = {20};
  synthetic.transfer = transfer;
  return syntheticTable(synthetic, 2);
}

TEST(Recost, RefusesCostsThatMakeAnotherStructureAndLeavesTheProgram) {
  const Schedule rows = withReductions(lower(generate("1f1b", {2, 2, 4})));
  const CostTable costs = twoStages(5);
  Program program = compile(rows, costs);
  const Program before = program;
  const auto refuses = [&](const CostTable& other, Sending sending = Sending::Overlapped) {
    return !recost(rows, other, sending, program) && program == before;
  };

  CostTable other = costs;
  other.messages.pop_back();
  EXPECT_TRUE(refuses(other)) << "a message is gone";
  other = costs;
  other.messages.push_back({Stage(0), Stage(1), false, 8, 1, 1});
  EXPECT_TRUE(refuses(other)) << "a message came";
  other = costs;
  std::swap(other.messages[0], other.messages[1]);
  EXPECT_TRUE(refuses(other)) << "another order";
  EXPECT_TRUE(refuses(twoStages(0))) << "channels became free";
  other = costs;
  other.stages[1].reduce = 7;
  EXPECT_TRUE(refuses(other)) << "a reduction takes time";
  other = costs;
  other.stages.push_back({});
  EXPECT_TRUE(refuses(other)) << "a stage more";
  other = costs;
  other.microbatchScale = {1, 1, 1};
  EXPECT_TRUE(refuses(other)) << "sizes of another number of microbatches";
  other = costs;
  other.overlap = {1};
  EXPECT_TRUE(refuses(other)) << "slots of another number of stages";
  EXPECT_TRUE(refuses(costs, Sending::Posted)) << "another way of sending";
  EXPECT_TRUE(recost(rows, twoStages(6), Sending::Overlapped, program));
}

TEST(Recost, TakesAReductionThatTheRowsDoNotAskFor) {
  const Schedule rows = generate("1f1b", {2, 2, 4});
  CostTable costs = twoStages(5);
  Program program = compile(rows, costs);
  costs.stages[0].reduce = 7;
  EXPECT_TRUE(recost(rows, costs, Sending::Overlapped, program));
  EXPECT_EQ(program.reducers, 0);
}

TEST(Recost, BringsTimesAndMemory) {
  const Schedule rows = generate("gpipe", {2, 2, 2});
  Program program = compile(rows, twoStages(5));
  CostTable costs = twoStages(1);
  costs.stages[1].activationBytes = 100;
  costs.messages[0].bytes = 8;
  ASSERT_TRUE(recost(rows, costs, Sending::Overlapped, program));
  Times times;
  execute(program, times);
  // Rank 0 F 0..10, 10..20; over the channel 10..11, 20..21; rank 1 F 11..21, 21..31, B 31..51, 51..71; back at 52 and 72;
  // B 52..72, 72..92.
  EXPECT_EQ(makespanOf(program, program.duration, times), 92);
  // Rank 1 keeps 100 bytes of each microbatch; a received value counts as activation once its forward starts.
  EXPECT_EQ(program.peakBytes, (std::vector<Bytes>{0, 200}));
}

}  // namespace
}  // namespace pw
