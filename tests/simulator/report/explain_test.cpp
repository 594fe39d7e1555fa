#include "simulator/report/explain.h"
#include "simulator/report/explain_text.h"
#include "simulator/report/phases.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/csv.h"
#include "schedules/generate.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/execute.h"
#include "simulator/trace/span_kind.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

struct Case {
  std::vector<Ns> forward, input, weight;
  Ns latency = 0, transfer = 0;
};

CostTable table(const Case& c, int stages) {
  SyntheticCosts costs;
  costs.forward = c.forward;
  costs.backwardInput = c.input;
  costs.backwardWeight = c.weight;
  costs.latency = c.latency;
  costs.transfer = c.transfer;
  return syntheticTable(costs, stages);
}

Segment computes(int rank, const Action& a, Ns from, Ns to) { return {Doing::Compute, Rank(rank), Rank(rank), a, std::nullopt, from, to}; }
Segment message(Doing doing, int rank, int peer, const Action& a, Ns from, Ns to) {
  return {doing, Rank(rank), Rank(peer), a, std::nullopt, from, to};
}

const Action k0F0{Stage{0}, ActionKind::Forward, Microbatch{0}}, k0F1{Stage{0}, ActionKind::Forward, Microbatch{1}};
const Action k1F0{Stage{1}, ActionKind::Forward, Microbatch{0}}, k1F1{Stage{1}, ActionKind::Forward, Microbatch{1}};
const Action k0B0{Stage{0}, ActionKind::Backward, Microbatch{0}}, k1B0{Stage{1}, ActionKind::Backward, Microbatch{0}};

//         0    10  14    24        44  48        68
//  rank 0 │0F0 │    idle                │0B0     │
//  rank 1 │  idle   │1F0 │1B0     │     idle     │        F = 10, B = 20, latency 4
Explanation oneMicrobatch() { return explain(generate("gpipe", {2, 2, 1}), table({{10}, {15}, {5}, 4}, 2)); }

TEST(CriticalPath, OfOneMicrobatchIsItsWayThereAndBack) {
  const CriticalPath path = oneMicrobatch().path;
  const std::vector<Segment> expected{
      computes(0, k0F0, 0, 10),  message(Doing::Latency, 0, 1, k0F0, 10, 14), computes(1, k1F0, 14, 24),
      computes(1, k1B0, 24, 44), message(Doing::Latency, 1, 0, k1B0, 44, 48), computes(0, k0B0, 48, 68),
  };
  EXPECT_EQ(path.segments, expected);
  EXPECT_EQ(path.latency, 8);
  EXPECT_EQ(path.transfer, 0);
  ASSERT_EQ(path.compute.size(), 2u);
  EXPECT_EQ(path.compute[0], (CriticalPath::Share{.forward = 10, .backward = 20}));
  EXPECT_EQ(path.compute[1], (CriticalPath::Share{.forward = 10, .backward = 20}));
}

TEST(Bubbles, SayWhoWasWaitedForAndWhatItDid) {
  const std::vector<Bubble> bubbles = oneMicrobatch().bubbles;
  ASSERT_EQ(bubbles.size(), 3u);
  EXPECT_EQ(bubbles[0].rank, Rank(0));
  EXPECT_EQ(bubbles[0].start, 10);
  EXPECT_EQ(bubbles[0].end, 48);
  EXPECT_EQ(bubbles[0].phase, Phase::Warmup);
  EXPECT_EQ(bubbles[0].next, k0B0);
  EXPECT_EQ(bubbles[0].awaited, k1B0);
  EXPECT_EQ(bubbles[0].awaitedRank, Rank(1));
  const std::vector<Segment> causes{message(Doing::Latency, 0, 1, k0F0, 10, 14), computes(1, k1F0, 14, 24), computes(1, k1B0, 24, 44),
                                    message(Doing::Latency, 1, 0, k1B0, 44, 48)};
  EXPECT_EQ(bubbles[0].causes, causes);
  EXPECT_EQ(
      toString(bubbles[0]),
      "rank 0 waits 38 ns for 1B0: the message of 0F0 is in flight until 14 ns, rank 1 computes 1F0 until 24 ns, then 1B0 until 44 ns, "
      "its message is in flight until 48 ns");
  EXPECT_EQ(toString(bubbles[1]), "rank 1 waits 14 ns for 0F0: rank 0 computes 0F0 until 10 ns, its message is in flight until 14 ns");
  EXPECT_EQ(bubbles[2].phase, Phase::Cooldown);
  EXPECT_EQ(bubbles[2].next, std::nullopt);
  EXPECT_EQ(toString(bubbles[2]),
            "rank 1 is done 24 ns before 0B0 ends: the message of 1B0 is in flight until 48 ns, rank 0 computes 0B0 until 68 ns");
}

TEST(Bubbles, AreSummedUpByRankPhaseAndCauseLargestFirst) {
  const std::vector<BubbleGroup> expected{
      {Rank(0), Phase::Warmup, Rank(1), false, 30, 24}, {Rank(1), Phase::Cooldown, Rank(0), false, 20, 48},
      {Rank(1), Phase::Warmup, Rank(0), false, 10, 0},  {Rank(0), Phase::Warmup, Rank(0), true, 4, 10},
      {Rank(0), Phase::Warmup, Rank(1), true, 4, 44},   {Rank(1), Phase::Warmup, Rank(0), true, 4, 10},
      {Rank(1), Phase::Cooldown, Rank(1), true, 4, 44},
  };
  EXPECT_EQ(oneMicrobatch().groups, expected);
}

TEST(CriticalPath, GoesThroughTheMessageThatHoldsTheChannel) {
  //         0  1  2     6  8  9     11  13  14
  // rank 0  │F0│F1│
  // channel    │0F0     │0F1        │            F = 1, transfer 5, latency 2
  // rank 1                  │F0│        │F1│
  const Explanation e = explain(generate("forward-only", {2, 2, 2}), table({{1}, {1}, {1}, 2, 5}, 2));
  const std::vector<Segment> expected{computes(0, k0F0, 0, 1), message(Doing::Queue, 0, 1, k0F0, 1, 6),
                                      message(Doing::Transfer, 0, 1, k0F1, 6, 11), message(Doing::Latency, 0, 1, k0F1, 11, 13),
                                      computes(1, k1F1, 13, 14)};
  EXPECT_EQ(e.path.segments, expected);
  EXPECT_EQ(e.path.queue, 5);
  EXPECT_EQ(e.path.transfer, 5);
  EXPECT_EQ(e.path.latency, 2);
  ASSERT_EQ(e.bubbles.size(), 3u);
  EXPECT_EQ(toString(e.bubbles[0]),
            "rank 0 is done 12 ns before 1F1 ends: the message of 0F0 holds the channel to rank 1 until 6 ns, the message of 0F1 takes the "
            "channel "
            "to rank 1 until 11 ns, then it is in flight until 13 ns, rank 1 computes 1F1 until 14 ns");
  EXPECT_EQ(toString(e.bubbles[2]),
            "rank 1 waits 4 ns for 0F1: the message of 0F1 takes the channel to rank 1 until 11 ns, then it is in flight until 13 ns");
}

TEST(CriticalPath, OfAMessageSentWhenTheChannelBecomesFreeGoesToItsSender) {
  // F = 5 and 1, transfer 5: 0F0 0–5 and its message 5–10, 0F1 5–10 and its message 10–15, 1F1 15–16.
  const Explanation e = explain(generate("forward-only", {2, 2, 2}), table({{5, 1}, {1}, {1}, 0, 5}, 2));
  const std::vector<Segment> expected{computes(0, k0F0, 0, 5), computes(0, k0F1, 5, 10), message(Doing::Transfer, 0, 1, k0F1, 10, 15),
                                      computes(1, k1F1, 15, 16)};
  EXPECT_EQ(e.path.segments, expected);
}

TEST(CriticalPath, EndsOnTheLowestRankOfThoseThatEndLast) {
  CostTable costs = table({{5}, {1}, {1}}, 2);
  costs.messages.clear();
  const Explanation e = explain(generate("forward-only", {2, 2, 1}), costs);
  EXPECT_EQ(e.path.segments, std::vector{computes(0, k0F0, 0, 5)});
}

TEST(Bubbles, WaitForTheLowestRankOfThoseWhoseMessagesComeLast) {
  // Stage 2 needs stage 0 (F 0–1, latency 1) and stage 1 (F 1–2): both are there at 2.
  CostTable costs = table({{1}, {1}, {1}}, 3);
  costs.messages.push_back({Stage(0), Stage(2), false, 0, 1, 0});
  const Explanation e = explain(generate("forward-only", {3, 3, 1}), costs);
  const auto last = std::find_if(e.bubbles.begin(), e.bubbles.end(), [](const Bubble& b) { return b.rank == Rank(2); });
  ASSERT_NE(last, e.bubbles.end());
  EXPECT_EQ(toString(*last), "rank 2 waits 2 ns for 0F0: rank 0 computes 0F0 until 1 ns, its message is in flight until 2 ns");
}

TEST(Bubbles, OfBlockingSendsWaitForTheReceiver) {
  // Rank 1 takes 10 for a forward, rank 0 one: 1F0 1–11, and only then 1RECV_F1 takes what 0SEND_F1 has offered since 2.
  const Schedule schedule = parseCsv("0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2\n1RECV_F0,1F0,1RECV_F1,1F1,1RECV_F2,1F2\n", "csv", "csv");
  const Explanation e = explain(schedule, table({{1, 10}, {1}, {1}}, 2), Sending::Blocking);
  ASSERT_GE(e.bubbles.size(), 1u);
  EXPECT_EQ(toString(e.bubbles[0]), "rank 0 waits 9 ns to hand over 0F1: rank 1 computes 1F0 until 11 ns");
  EXPECT_EQ(e.bubbles[0].end, 11);
}

TEST(Bubbles, SumUpActionsOfOneRankInARow) {
  // Rank 1 needs 30 a forward, three before the last: rank 0 is done at 4 and waits.
  const Explanation e = explain(generate("forward-only", {2, 2, 4}), table({{1, 30}, {1}, {1}}, 2));
  EXPECT_EQ(toString(e.bubbles[0]),
            "rank 0 is done 117 ns before 1F3 ends: rank 1 computes 1F0 until 31 ns, then 3 more up to 1F3 until 121 ns");
}

TEST(Bubbles, LeaveOutTheMiddleOfALongChain) {
  // Seven ranks, one microbatch: rank 6 waits for six forwards.
  const Explanation e = explain(generate("forward-only", {7, 7, 1}), table({{2}, {1}, {1}, 1}, 7));
  const auto last = std::find_if(e.bubbles.begin(), e.bubbles.end(), [](const Bubble& b) { return b.rank == Rank(6); });
  ASSERT_NE(last, e.bubbles.end());
  EXPECT_EQ(last->causes.size(), 12u);
  EXPECT_EQ(
      toString(*last),
      "rank 6 waits 18 ns for 5F0: rank 0 computes 0F0 until 2 ns, its message is in flight until 3 ns, rank 1 computes 1F0 until 5 ns, "
      "6 more until 14 ns, the message of 4F0 is in flight until 15 ns, rank 5 computes 5F0 until 17 ns, its message is in flight until "
      "18 ns");
}

TEST(Bubbles, NameAMessageAgainAfterWhatIsLeftOut) {
  // F = 2, transfer and latency 1, but nothing between ranks 2 and 3: seven causes, of which the one left out is 1F0's transfer.
  CostTable costs = table({{2}, {1}, {1}, 1, 1}, 4);
  for (MessageCost& m : costs.messages) {
    if (m.to == Stage(3)) m.latency = m.transfer = 0;
  }
  const Explanation e = explain(generate("forward-only", {4, 4, 1}), costs);
  EXPECT_EQ(
      toString(e.bubbles[0]),
      "rank 0 is done 10 ns before 3F0 ends: the message of 0F0 takes the channel to rank 1 until 3 ns, then it is in flight until 4 ns, "
      "rank 1 computes 1F0 until 6 ns, 1 more until 7 ns, the message of 1F0 is in flight until 8 ns, rank 2 computes 2F0 until 10 ns, "
      "rank 3 computes 3F0 until 12 ns");
}

TEST(Bubbles, WaitForTheBackwardOfASlot) {
  // F = 4, B = 6, latency 3: 1F0 7–11, the slot 11–21, its gradient of microbatch 0 there at 24; rank 0 has been idle since 8.
  const Schedule schedule = parseCsv("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n", "csv", "csv");
  const Explanation e = explain(schedule, table({{4}, {4}, {2}, 3}, 2));
  EXPECT_EQ(
      toString(e.bubbles[0]),
      "rank 0 waits 16 ns for 1B0: rank 1 computes 1F0 until 11 ns, then 1F1 with 1B0 until 21 ns, its message is in flight until 24 ns");
  EXPECT_EQ(e.path.compute[1].slot, 10);
}

TEST(Bubbles, OfLockstepWaitForTheSlowestRankOfTheCycle) {
  // Cycle 0 is rank 0's forward alone, 5; cycle 1 both forwards and rank 1's backward (one fragment pair): rank 0 5, rank 1 7 + 8.
  const Explanation e = explain(generate("lockstep", {2, 2, 2}), table({{5, 7}, {6, 8}, {0}}, 2));
  ASSERT_GE(e.bubbles.size(), 1u);
  EXPECT_EQ(e.bubbles[0].rank, Rank(0));
  EXPECT_EQ(e.bubbles[0].start, 10);
  EXPECT_EQ(e.bubbles[0].end, 20);
  EXPECT_EQ(toString(e.bubbles[0]), "rank 0 waits 10 ns for 1B0: rank 1 computes 1F0 until 12 ns, then 1B0 until 20 ns");
}

/// What is true of every explanation, checked against the trace and its metrics.
class Explained {
 public:
  Explained(const Schedule& schedule, const CostTable& costs, Sending sending)
      : e_(explain(schedule, costs, sending)), trace_(simulate(schedule, costs, sending)), metrics_(metricsOf(trace_)) {
    for (const Span& span : trace_.spans) {
      if (!isCompute(span.kind)) continue;
      first_ = std::min(first_, span.start);
      last_ = std::max(last_, span.end);
    }
  }
  void check() const {
    checkTiles(e_.path.segments, first_, last_);
    Ns path = e_.path.transfer + e_.path.queue + e_.path.latency;
    for (const auto& s : e_.path.compute) path += s.forward + s.backward + s.backwardInput + s.backwardWeight + s.slot + s.host;
    EXPECT_EQ(path, metrics_.makespan);
    Ns slots = 0;
    for (const Segment& s : e_.path.segments) slots += s.partner ? s.to - s.from : 0;
    for (const auto& s : e_.path.compute) slots -= s.slot;
    EXPECT_EQ(slots, 0);
    const std::vector<RankPhases> phases = phasesOf(trace_);
    std::vector<std::array<Ns, kPhases>> idle(metrics_.ranks.size());
    for (const Bubble& bubble : e_.bubbles) {
      ASSERT_LT(bubble.start, bubble.end);
      checkTiles(bubble.causes, bubble.start, bubble.end);
      idle[bubble.rank.index()][static_cast<std::size_t>(bubble.phase)] += bubble.end - bubble.start;
      EXPECT_FALSE(toString(bubble).empty());
    }
    Ns grouped = 0, all = 0;
    for (const BubbleGroup& group : e_.groups) grouped += group.idle;
    for (std::size_t r = 0; r < phases.size(); ++r) {
      EXPECT_EQ(idle[r], phases[r].idle) << "rank " << r;
      EXPECT_EQ(phases[r].idle[0] + phases[r].idle[1] + phases[r].idle[2], metrics_.ranks[r].idle) << "rank " << r;
      EXPECT_LE(phases[r].beforeFirst + phases[r].afterLast, metrics_.ranks[r].idle);
      all += metrics_.ranks[r].idle;
    }
    EXPECT_EQ(grouped, all);
  }

 private:
  void checkTiles(const std::vector<Segment>& segments, Ns from, Ns to) const {
    for (const Segment& segment : segments) {
      ASSERT_EQ(segment.from, from);
      ASSERT_LT(segment.from, segment.to);
      ASSERT_TRUE(happened(segment)) << static_cast<int>(segment.doing) << " " << toString(segment.action) << " " << segment.from << "–"
                                     << segment.to;
      from = segment.to;
    }
    ASSERT_EQ(from, to);
  }
  /// A span of the trace says so; only a cause at the start of a gap may begin in the middle of it.
  [[nodiscard]] bool happened(const Segment& s) const {
    const bool produced = std::any_of(trace_.spans.begin(), trace_.spans.end(), [&](const Span& span) {
      return span.rank == s.rank && span.kind == spanKind(s.action.kind) && span.stage == s.action.stage &&
             span.microbatch == s.action.microbatch;
    });
    return (produced || s.doing == Doing::Load || s.doing == Doing::Store) &&
           std::any_of(trace_.spans.begin(), trace_.spans.end(), [&](const Span& span) {
             if (span.rank != s.rank || span.start > s.from || span.end < s.to) return false;
             if (s.doing == Doing::Load || s.doing == Doing::Store)
               return span.kind == (s.doing == Doing::Load ? SpanKind::Load : SpanKind::Store) && span.end == s.to;
             if (span.stage != s.action.stage || span.microbatch != s.action.microbatch) return false;
             if (!isMessage(s.doing)) return span.kind == spanKind(s.action.kind) && span.end == s.to;
             const SpanKind kind = s.action.kind == ActionKind::Forward ? SpanKind::SendForward : SpanKind::SendBackward;
             return span.kind == kind && span.peer == s.peer && (s.doing != Doing::Latency || span.end == s.to);
           });
  }

  Explanation e_;
  Trace trace_;
  Metrics metrics_;
  Ns first_ = std::numeric_limits<Ns>::max(), last_ = 0;
};

TEST(Explain, CausesTileEveryGapAndThePathTheMakespanOfRandomCases) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const CostTable costs = test::randomCosts(random, schedule);
    Explained(schedule, costs, Sending::Overlapped).check();
    if (HasFailure()) return;
  }
}

TEST(Explain, CausesTileEveryGapOfEveryFamilyAndWayOfSending) {
  for (const Generator& family : generators()) {
    for (const Shape& shape : {Shape{4, 4 * family.chunks, 8}, Shape{2, 2 * family.chunks, 6}}) {
      if (family.refusal != nullptr && family.refusal(shape)) continue;
      for (const Case& c :
           {Case{{3}, {3}, {3}}, Case{{4}, {5}, {2}, 2, 3}, Case{{4}, {5}, {2}, 3}, Case{{0, 1, 7, 2, 4, 0, 3, 3}, {2}, {1}, 0, 1}}) {
        if (c.forward.size() > 1 && c.forward.size() != static_cast<std::size_t>(shape.stages)) continue;
        CostTable costs = table(c, shape.stages);
        costs.load = c.latency;
        costs.store = c.transfer;
        for (const Sending sending : {Sending::Overlapped, Sending::Posted, Sending::OneChannel, Sending::Blocking}) {
          SCOPED_TRACE(std::string(family.name) + " sending " + std::to_string(static_cast<int>(sending)) + " ranks " +
                       std::to_string(shape.ranks));
          Explained(generate(family.name, shape), costs, sending).check();
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(CriticalPath, LengthensTheMakespanWithEachOfItsActions) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const CostTable costs = test::randomCosts(random, schedule);
    Program program = compile(schedule, costs);
    Times times;
    execute(program, times);
    const Ns makespan = makespanOf(program, program.duration, times);
    const Explanation e = explain(schedule, costs, program, times);
    for (const Segment& s : e.path.segments) {
      if (s.doing != Doing::Compute) continue;
      const auto steps = program.stepsOf(s.rank.value);
      const auto step = std::find_if(steps.begin(), steps.end(), [&](std::int32_t i) {
        return schedule.rows[s.rank.index()][static_cast<std::size_t>(program.origin[static_cast<std::size_t>(i)].index)] == s.action;
      });
      ASSERT_NE(step, steps.end());
      std::vector<Ns> longer = program.duration;
      longer[static_cast<std::size_t>(*step)] += 5;
      Times later;
      execute(program, longer, later);
      ASSERT_EQ(makespanOf(program, longer, later), makespan + 5) << toString(s.action);
    }
  }
}

TEST(Explain, OfNothingIsNothing) {
  Schedule schedule;
  schedule.rows.resize(2);
  EXPECT_EQ(explain(schedule, CostTable{}), Explanation{});
}

}  // namespace
}  // namespace pw
