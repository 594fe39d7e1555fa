// Every way of sending, worked out by hand.

#include <utility>

#include <gtest/gtest.h>

#include "schedules/csv.h"
#include "schedules/generate.h"
#include "simulator/report/metrics.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/trace/trace.h"

namespace pw {
namespace {

CostTable uniform(int stages, Ns forward, Ns backward, Ns latency, Ns transfer) {
  SyntheticCosts costs;
  costs.forward = {forward};
  costs.backward = {backward};
  costs.latency = latency;
  costs.transfer = transfer;
  return syntheticTable(costs, stages);
}

struct Interval {
  Ns start, end;

  bool operator==(const Interval&) const = default;
};

Interval timesOf(const Trace& trace, SpanKind kind, int stage, int microbatch) {
  for (const Span& span : trace.spans) {
    if (span.kind == kind && span.stage == Stage(stage) && span.microbatch == Microbatch(microbatch)) return {span.start, span.end};
  }
  ADD_FAILURE() << "no " << nameOf(kind) << " of stage " << stage << ", microbatch " << microbatch;
  return {};
}

/// 1F1B of two microbatches whose first rank posts the receive of a gradient before it sends the second forward.
Schedule earlyReceive() {
  return parseCsv("0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n", "", "");
}

TEST(Sending, InTheBackgroundMessagesGoAsTheyAreMade) {
  // F=3, B=4, transfer 2, latency 1. F0 0..3 goes 3..5, is there at 6; F1 3..6 goes 6..8. Rank 1: F0 6..9, B0 9..13, F1 13..16, B1 16..20.
  // Gradients go 13..15 and 20..22: rank 0 has B0 16..20, B1 23..27.
  const Trace trace = simulate(earlyReceive(), uniform(2, 3, 4, 1, 2));
  EXPECT_EQ(timesOf(trace, SpanKind::SendForward, 0, 1), Interval(6, 9));
  EXPECT_EQ(timesOf(trace, SpanKind::Forward, 1, 1), Interval(13, 16));
  EXPECT_EQ(timesOf(trace, SpanKind::Backward, 0, 1), Interval(23, 27));
}

TEST(Sending, PostedMessagesGoWhenBothEndsStand) {
  // As above, but the receive of F1 stands only after B0, at 13: it goes 13..15, beside the gradient. Rank 1: F1 16..19, B1 19..23; the
  // last gradient 23..25, B1 of rank 0 26..30. Compute continues: F1 of rank 0 is at 3..6.
  const Trace trace = simulate(earlyReceive(), uniform(2, 3, 4, 1, 2), Sending::Posted);
  EXPECT_EQ(timesOf(trace, SpanKind::Forward, 0, 1), Interval(3, 6));
  EXPECT_EQ(timesOf(trace, SpanKind::SendForward, 0, 1), Interval(13, 16));
  EXPECT_EQ(timesOf(trace, SpanKind::SendBackward, 1, 0), Interval(13, 16));
  EXPECT_EQ(timesOf(trace, SpanKind::Backward, 0, 1), Interval(26, 30));
}

TEST(Sending, AReceivePostedEarlyHoldsTheOneChannelAndDelaysALaterSend) {
  // The channel's order is F0, B0, F1, B1: F1, made at 6, goes 15..17 after the gradient's 13..15. Rank 1: F1 18..21, B1 21..25; the last
  // gradient 25..27, B1 of rank 0 28..32.
  const Trace trace = simulate(earlyReceive(), uniform(2, 3, 4, 1, 2), Sending::OneChannel);
  EXPECT_EQ(timesOf(trace, SpanKind::SendBackward, 1, 0), Interval(13, 16));
  EXPECT_EQ(timesOf(trace, SpanKind::SendForward, 0, 1), Interval(15, 18));
  EXPECT_EQ(timesOf(trace, SpanKind::Backward, 0, 1), Interval(28, 32));

  // Where the receive stands after that send, F1 goes as soon as rank 1 wants it, 9..11 after its F0, and all is as in the background.
  const Schedule late =
      parseCsv("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n", "", "");
  const Trace better = simulate(late, uniform(2, 3, 4, 1, 2), Sending::OneChannel);
  EXPECT_EQ(timesOf(better, SpanKind::SendForward, 0, 1), Interval(9, 12));
  EXPECT_EQ(timesOf(better, SpanKind::Backward, 0, 1), Interval(23, 27));
}

TEST(Sending, BlockingMessagesHoldTheSenderForTheTransferAndTheReceiverForTheLatencyToo) {
  // Rank 0: F0 0..3, sends to 5, wants the gradient until 16; rank 1: F0 6..9, B0 9..13, sends 13..15. Rank 0: F1 16..19, sends to 21, B0
  // 21..25; rank 1 has it at 22: F1 22..25, B1 25..29, sends 29..31; B1 of rank 0 32..36.
  const Trace trace = simulate(earlyReceive(), uniform(2, 3, 4, 1, 2), Sending::Blocking);
  EXPECT_EQ(timesOf(trace, SpanKind::WaitForward, 0, 0), Interval(3, 5));
  EXPECT_EQ(timesOf(trace, SpanKind::WaitBackward, 0, 0), Interval(5, 16));
  EXPECT_EQ(timesOf(trace, SpanKind::WaitBackward, 1, 0), Interval(13, 15));
  EXPECT_EQ(timesOf(trace, SpanKind::Forward, 0, 1), Interval(16, 19));
  EXPECT_EQ(timesOf(trace, SpanKind::Backward, 0, 0), Interval(21, 25));
  EXPECT_EQ(timesOf(trace, SpanKind::Forward, 1, 1), Interval(22, 25));
  EXPECT_EQ(timesOf(trace, SpanKind::Backward, 0, 1), Interval(32, 36));
  EXPECT_EQ(timesOf(trace, SpanKind::WaitBackward, 1, 1), Interval(29, 31));
  EXPECT_EQ(metricsOf(trace).makespan, 36);  // the last action, not the last send
}

TEST(Sending, LockstepWaitsForTheSlowestRankAndThenForTheExchange) {
  CostTable costs = uniform(2, 3, 4, 1, 2);
  costs.stages[1].forward = 5;
  costs.stages[1].backward = 6;
  costs.load = 1;
  costs.store = 2;
  const Trace trace = simulate(generate("lockstep", {2, 2, 2}), costs);
  // Four cycles. 0: load and F0 to 4, F0 on its way 4..7. 1, from 7: rank 0 load and F1 to 11; rank 1 load, F0 8..13, B0 13..19, store;
  // both messages 21..24. 2: rank 0 B0 24..28; rank 1 to 38, the gradient 38..41. 3: B1 41..45.
  EXPECT_EQ(timesOf(trace, SpanKind::Forward, 0, 1), Interval(8, 11));
  EXPECT_EQ(timesOf(trace, SpanKind::Forward, 1, 0), Interval(8, 13));
  EXPECT_EQ(timesOf(trace, SpanKind::Backward, 1, 0), Interval(13, 19));
  EXPECT_EQ(timesOf(trace, SpanKind::SendForward, 0, 1), Interval(21, 24));
  EXPECT_EQ(timesOf(trace, SpanKind::SendBackward, 1, 1), Interval(38, 41));
  EXPECT_EQ(timesOf(trace, SpanKind::Backward, 0, 1), Interval(41, 45));
  EXPECT_EQ(metricsOf(trace).makespan, 44);  // from the first action, after its load
}

TEST(Sending, ASlotStartsWhenBothAreReadyAndTakesItsOwnTime) {
  CostTable costs = uniform(2, 3, 4, 0, 0);
  const Schedule schedule = parseCsv("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n", "", "");
  // Rank 1: F0 3..6, B0 6..10: the slot of rank 0 waits from 6 to 10, and takes 7, or 5 where said; rank 1: F1 10..13, B1 13..17, F2
  // from 17.
  EXPECT_EQ(timesOf(simulate(schedule, costs), SpanKind::Forward, 0, 2), Interval(10, 17));
  costs.overlap = {5, 5};
  const Trace trace = simulate(schedule, costs);
  EXPECT_EQ(timesOf(trace, SpanKind::Forward, 0, 2), Interval(10, 15));
  EXPECT_EQ(timesOf(trace, SpanKind::Backward, 0, 0), Interval(10, 15));
  EXPECT_EQ(timesOf(trace, SpanKind::Forward, 1, 2), Interval(17, 20));
  EXPECT_EQ(metricsOf(trace).ranks[0].peakLiveMicrobatches, 3);
}

TEST(Sending, InputBackwardsFreeTheirPartAndWeightBackwardsTheRest) {
  CostTable costs = uniform(1, 1, 2, 0, 0);
  costs.stages[0].parameterBytes = 100;
  costs.stages[0].activationBytes = 10;
  costs.stages[0].freedByInput = 4;
  const std::vector<MemorySample> expected{{Rank(0), 0, 110}, {Rank(0), 1, 120}, {Rank(0), 3, 116},
                                           {Rank(0), 4, 112}, {Rank(0), 5, 106}, {Rank(0), 6, 100}};
  EXPECT_EQ(simulate(parseCsv("0F0,0F1,0I0,0I1,0W0,0W1\n", "", ""), costs).memory, expected);
}

}  // namespace
}  // namespace pw
