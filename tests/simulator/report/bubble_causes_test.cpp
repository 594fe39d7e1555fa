#include "simulator/report/bubble_causes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/simulate.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

using test::draw;
using test::oneIn;

CostTable uniform(int stages, Ns forward, Ns backward, Ns latency = 0) {
  return syntheticTable({.forward = {forward},
                         .backward = {backward},
                         .backwardInput = {},
                         .backwardWeight = {},
                         .latency = latency,
                         .transfer = 0,
                         .overlap = {}},
                        stages);
}

/// Equal stages, F = 2 and B = 3: a rank r of GPipe waits r F for its first action, (R − 1 − r)(F + B) for its first backward, and r B for
/// the others at the end. No other action could have run: all forwards are done, and no backward's gradient is there.
TEST(BubbleCauses, OfGPipeAreItsClosedForm) {
  constexpr int kRanks = 4;
  const std::vector<IdleByCause> ranks = idleByCause(explain(generate("gpipe", {kRanks, kRanks, 6}), uniform(kRanks, 2, 3)));
  ASSERT_EQ(ranks.size(), 4U);
  for (int r = 0; r < kRanks; ++r) {
    const IdleByCause& by = ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(by.of(BubbleCause::StartUp), r * 2 + (kRanks - 1 - r) * (2 + 3)) << r;
    EXPECT_EQ(by.of(BubbleCause::Drain), r * 3) << r;
    EXPECT_EQ(by.of(BubbleCause::Imbalance) + by.of(BubbleCause::Message), 0) << r;
    EXPECT_EQ(by.workReady, 0) << r;
  }
}

/// 1F1B of equal stages, F = B = 1: rank r holds back after R − r forwards, until its first gradient; the next forward of rank 0 is ready
/// all that time, as its data is; that of rank r > 0 comes from rank r − 1, which held it back.
TEST(BubbleCauses, OfOneForwardOneBackwardKnowTheForwardThatIsHeldBack) {
  constexpr int kRanks = 4;
  const std::vector<IdleByCause> ranks = idleByCause(explain(generate("1f1b", {kRanks, kRanks, 8}), uniform(kRanks, 1, 1)));
  EXPECT_EQ(ranks[0].of(BubbleCause::StartUp), 3);
  EXPECT_EQ(ranks[0].of(BubbleCause::Drain), 3) << "between its last backwards, which wait for later ranks";
  EXPECT_EQ(ranks[0].workReady, 3);
  EXPECT_EQ(ranks[3].workReady, 0);
}

TEST(BubbleCauses, NameMessagesAndASlowStage) {
  // One microbatch on two ranks, latency 10: each rank waits for one message; rank 0 also for the other's compute.
  const std::vector<IdleByCause> one = idleByCause(explain(generate("1f1b", {2, 2, 1}), uniform(2, 5, 5, 10)));
  EXPECT_EQ(one[0].of(BubbleCause::Message), 20);
  EXPECT_EQ(one[1].of(BubbleCause::Message), 20) << "before its forward, and the one it sent while rank 0 still works";
  // A second stage of four times the work: rank 0 waits for it in its steady phase.
  CostTable slow = uniform(2, 5, 5);
  slow.stages[1].forward = slow.stages[1].backward = 20;
  const std::vector<IdleByCause> two = idleByCause(explain(generate("1f1b", {2, 2, 10}), slow));
  EXPECT_GT(two[0].of(BubbleCause::Imbalance), 8 * 20);
  EXPECT_EQ(two[1].of(BubbleCause::Imbalance), 0);
}

/// Sends that block, F = 5 and latency 10. Rank 0 hands over its first message at 5, when the other rank waits for it, and its second, done
/// at 10, only when that has received (15) and computed (20) the first: 10 in which its third forward is ready. Rank 1 has nothing to
/// compute until its row's own receives are done, at 15, 30 and 45.
TEST(BubbleCauses, OfBlockingSendsKnowWhatWasReceived) {
  const std::vector<IdleByCause> ranks =
      idleByCause(explain(lower(generate("forward-only", {2, 2, 3})), uniform(2, 5, 5, 10), Sending::Blocking));
  EXPECT_EQ(ranks[0].workReady, (5 + 10 + 5) - 2 * 5);
  EXPECT_EQ(ranks[1].workReady, 0);
  EXPECT_EQ(ranks[1].sum(), 50 - 3 * 5);
}

/// By the definition alone: at each gap, whether an action after it in the row had its inputs, from the ends in the trace.
Ns readyByBruteForce(const Schedule& rows, const CostTable& costs, const Trace& trace, Rank rank) {
  std::map<std::tuple<Stage, Microbatch, bool>, const Span*> made;  // F, and B or I
  std::vector<const Span*> row;
  Ns first = trace.spans.front().start;
  for (const Span& span : trace.spans) {
    if (!isCompute(span.kind)) continue;
    first = std::min(first, span.start);
    if (span.kind != SpanKind::BackwardWeight) made[{span.stage, span.microbatch, span.kind != SpanKind::Forward}] = &span;
    if (span.rank == rank) row.push_back(&span);
  }
  std::ranges::stable_sort(row, {}, [](const Span* s) { return s->start; });
  const auto readyAt = [&](const Span& span) {
    const bool backward = span.kind != SpanKind::Forward;
    Ns ready = first;
    if (backward) ready = made.at({span.stage, span.microbatch, span.kind == SpanKind::BackwardWeight})->end;
    if (span.kind == SpanKind::BackwardWeight) return ready;
    for (const MessageCost& m : costs.messages) {
      if (m.to != span.stage || m.backward != backward) continue;
      const bool local = rows.placement.rankOf(m.from, span.microbatch) == rank;
      ready = std::max(ready, made.at({m.from, span.microbatch, backward})->end + (local ? 0 : m.latency));
    }
    return ready;
  };
  Ns sum = 0, end = first;
  for (std::size_t i = 0; i < row.size(); ++i) {
    Ns earliest = row[i]->start;
    for (std::size_t later = i; later < row.size(); ++later) {
      const auto isPair = [&](const Span* other) { return other->start == row[later]->start && other->end == row[later]->end; };
      Ns ready = 0;  // of an overlapped pair: of both
      for (const Span* part : row) ready = isPair(part) ? std::max(ready, readyAt(*part)) : ready;
      earliest = std::min(earliest, ready);
    }
    sum += std::max<Ns>(0, row[i]->start - std::max(end, earliest));
    end = row[i]->end;
  }
  return sum;
}

TEST(BubbleCauses, AddUpToTheIdleTimeAndKnowReadyWork) {
  Ns idle = 0, ready = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    for (const Generator& family : generators()) {
      const Shape shape{4, 4 * family.chunks, static_cast<int>(draw(random, 4, 9))};
      if (family.refusal(shape)) continue;
      const Schedule schedule = family.generate(shape);
      if (schedule.lockstep) continue;
      SyntheticCosts times;
      for (int s = 0; s < shape.stages; ++s) {
        times.forward.push_back(draw<Ns>(random, 1, 20));
        times.backward.push_back(draw<Ns>(random, 2, 40));
      }
      times.latency = oneIn(random, 2) ? 0 : draw<Ns>(random, 1, 9);
      const CostTable costs = syntheticTable(times, shape.stages);
      const Trace trace = simulate(schedule, costs);
      const Metrics metrics = metricsOf(trace);
      const std::vector<IdleByCause> ranks = idleByCause(explain(schedule, costs));
      ASSERT_EQ(ranks.size(), metrics.ranks.size());
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        Ns sum = 0;
        for (const Ns part : ranks[r].idle) sum += part;
        EXPECT_EQ(sum, metrics.ranks[r].idle) << family.name << " seed " << seed << " rank " << r;
        EXPECT_LE(ranks[r].workReady, sum);
        if (!schedule.placement.bidirectional()) {
          EXPECT_EQ(ranks[r].workReady, readyByBruteForce(schedule, costs, trace, Rank(r)))
              << family.name << " seed " << seed << " rank " << r;
        }
        idle += sum;
        ready += ranks[r].workReady;
      }
    }
  }
  EXPECT_GT(ready, idle / 20);
  EXPECT_LT(ready, idle);
}

/// A step with all that is needed to tell its causes apart.
struct Executed {
  Schedule rows;
  CostTable costs;
  Program program;
  Times times;
  Explanation explanation;

  Executed(const Schedule& schedule, const CostTable& of) : rows(lower(schedule)), costs(of), program(compile(rows, costs)) {
    execute(program, times);
    explanation = explain(rows, costs, program, times);
  }
  [[nodiscard]] std::vector<CausedIdle> by(const CauseContext& context) const {
    return idleByCause(explanation, rows, costs, program, times, context);
  }
};

TEST(BubbleCauses, WithoutAContextAreThoseOfTheGroups) {
  const Executed step(generate("interleaved-1f1b", {4, 8, 8}), uniform(8, 2, 3, 1));
  const std::vector<CausedIdle> all = step.by({});
  const std::vector<IdleByCause> plain = idleByCause(step.explanation);
  ASSERT_EQ(all.size(), plain.size());
  for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r].by, plain[r]) << r;
}

/// One microbatch on two ranks, of which the first takes twice as long (F = B = 10) as the other (5). The other waits 10 for its forward
/// and 10 at the end; had the first been as fast, 5 and 5.
TEST(BubbleCauses, OfARankOfHalfTheSpeedAreItsForThePartThatItIsSlower) {
  CostTable costs = uniform(2, 5, 5);
  costs.stages[0].forward = costs.stages[0].backward = 10;
  const std::vector<CausedIdle> ranks = Executed(generate("1f1b", {2, 2, 1}), costs).by({.slowness = {2, 1}, .memoryAt = {}});
  EXPECT_EQ(ranks[1].by.of(BubbleCause::Straggler), 10);
  EXPECT_EQ(ranks[1].by.of(BubbleCause::StartUp), 5);
  EXPECT_EQ(ranks[1].by.of(BubbleCause::Drain), 5);
  EXPECT_EQ(ranks[1].longestFrom[static_cast<std::size_t>(BubbleCause::Straggler)], 0);
  EXPECT_EQ(ranks[0].by.of(BubbleCause::Straggler), 0) << "it waits for the faster one";
}

/// 1F1B of equal stages, F = B = 1, on 4 ranks: rank 0 has four microbatches in flight, and waits 3 for its first gradient while its next
/// forward is ready. A microbatch keeps 10 bytes, so a fifth needs 50.
TEST(BubbleCauses, OfAForwardThatIsReadyAreTheMemoryLimitsWhereItDoesNotFit) {
  CostTable costs = uniform(4, 1, 1);
  for (StageCost& stage : costs.stages) stage.activationBytes = 10;
  const Executed step(generate("1f1b", {4, 4, 8}), costs);
  const auto of = [&](Bytes limit) {
    return step.by({.slowness = {}, .memoryLimit = limit, .memoryAt = [](Rank rank, Ns) { return Bytes{10} * (4 - rank.value); }});
  };
  EXPECT_EQ(of(49)[0].by.of(BubbleCause::MemoryLimit), 3);
  EXPECT_EQ(of(49)[0].by.of(BubbleCause::StartUp), 0);
  EXPECT_EQ(of(49)[0].by.of(BubbleCause::Drain), 3);
  EXPECT_EQ(of(49)[0].longestFrom[static_cast<std::size_t>(BubbleCause::MemoryLimit)], 4) << "after its four forwards";
  EXPECT_EQ(of(49)[3].by.of(BubbleCause::MemoryLimit), 0) << "the last rank never has a forward ready that it holds back";
  EXPECT_EQ(of(50)[0].by.of(BubbleCause::MemoryLimit), 0);
  EXPECT_EQ(of(50)[0].by.of(BubbleCause::StartUp), 3);
}

/// Whatever is slow and whatever fits, the causes add up to the idle time, and the straggler's part follows from the groups.
TEST(BubbleCauses, AddUpWithStragglersAndALimit) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 60; ++trial) {
    const int ranks = static_cast<int>(draw(random, 2, 5));
    CostTable costs = uniform(ranks, draw<Ns>(random, 2, 30), draw<Ns>(random, 2, 30), draw<Ns>(random, 0, 9));
    std::vector<double> slowness;
    for (StageCost& stage : costs.stages) {
      const std::int64_t slow = draw(random, 1, 3);
      slowness.push_back(static_cast<double>(slow));
      stage.forward *= slow, stage.backward *= slow;
      stage.activationBytes = draw<Bytes>(random, 1, 9);
    }
    const Executed step(generate(oneIn(random, 2) ? "1f1b" : "gpipe", {ranks, ranks, static_cast<int>(draw(random, 1, 9))}), costs);
    const auto memory = [](Rank rank, Ns time) { return Bytes((rank.value * 7 + time.value) % 40); };
    const std::vector<CausedIdle> all = step.by({.slowness = slowness, .memoryLimit = Bytes{30}, .memoryAt = memory});
    const std::vector<CausedIdle> slow = step.by({.slowness = slowness, .memoryAt = {}});
    const std::vector<IdleByCause> plain = idleByCause(step.explanation);
    std::vector<double> expected(plain.size());
    for (const BubbleGroup& g : step.explanation.groups) {
      if (!g.message) expected[g.rank.index()] += static_cast<double>(g.idle) * (1 - 1 / slowness[g.cause.index()]);
    }
    for (std::size_t r = 0; r < plain.size(); ++r) {
      EXPECT_EQ(all[r].by.sum(), plain[r].sum()) << trial;
      EXPECT_EQ(slow[r].by.sum(), plain[r].sum()) << trial;
      EXPECT_LE(all[r].by.of(BubbleCause::MemoryLimit), plain[r].workReady) << trial;
      const auto pieces = static_cast<double>(step.explanation.bubbles.size() * 8);  // each rounded
      EXPECT_NEAR(static_cast<double>(slow[r].by.of(BubbleCause::Straggler)), expected[r], pieces / 2) << trial;
    }
  }
}

}  // namespace
}  // namespace pw
