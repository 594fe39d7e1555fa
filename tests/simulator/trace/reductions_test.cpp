// Waiting for other ranks and reducing with them, told apart.
#include "simulator/trace/reductions.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

Span reduction(int rank, int stage, Ns start, Ns end, Bytes bytes = 8) {
  return {Rank(rank), SpanKind::ReduceGrad, Stage(stage), Microbatch(-1), Rank(rank), bytes, start, end};
}

TEST(ReductionWaits, AreFromTheFirstToTheLastThatBegins) {
  // Two replicas of two ranks, numbered 0, 1 and 2, 3. Stage 0 begins at 10 and 25, stage 1 at 5 and 5, then again at 30 and 33.
  Trace trace{4,
              {reduction(1, 1, 5, 9),
               reduction(3, 1, 5, 9),
               reduction(0, 0, 10, 31),
               reduction(2, 0, 25, 31),
               reduction(1, 1, 30, 40),
               reduction(3, 1, 33, 40),
               {Rank(0), SpanKind::Optimizer, Stage(0), Microbatch(-1), Rank(0), 0, 31, 35}},
              {}};
  EXPECT_EQ(cutReductionWaits(trace), (25 - 10) + (33 - 30));
  EXPECT_EQ(trace.spans, (std::vector<Span>{reduction(1, 1, 5, 9),
                                            reduction(3, 1, 5, 9),
                                            reduction(0, 0, 25, 31),
                                            reduction(2, 0, 25, 31),
                                            {Rank(0), SpanKind::Optimizer, Stage(0), Microbatch(-1), Rank(0), 0, 31, 35},
                                            reduction(1, 1, 33, 40),
                                            reduction(3, 1, 33, 40)}));
  EXPECT_EQ(cutReductionWaits(trace), 0) << "what is cut off is gone";
}

TEST(ReductionWaits, AreOfTheRanksThatReduceTogether) {
  // Tensor-parallel ranks 0 and 1 of two replicas with one pipeline rank: 0 reduces with 2, and 1 with 3.
  Trace trace{4, {reduction(0, 0, 0, 20), reduction(1, 0, 4, 20), reduction(2, 0, 10, 20), reduction(3, 0, 12, 20)}, {}};
  EXPECT_EQ(cutReductionWaits(trace, {1, 2}), (10 - 0) + (12 - 4));
  // Of no stage: with the same pipeline rank of another replica.
  Trace whole{4, {reduction(0, -1, 0, 20), reduction(1, -1, 4, 20), reduction(2, -1, 10, 20), reduction(3, -1, 12, 20)}, {}};
  EXPECT_EQ(cutReductionWaits(whole, {2}), (10 - 0) + (12 - 4));
  // One after the other: not one reduction.
  Trace apart{2, {reduction(0, 0, 0, 5), reduction(1, 0, 6, 9)}, {}};
  EXPECT_EQ(cutReductionWaits(apart), 0);
  EXPECT_EQ(apart.spans.front().start, 0);
  // Of shared parameters of two sizes: 0 with 2, and 1 with 3.
  Trace shared{4, {reduction(0, -1, 0, 20), reduction(1, -1, 4, 20, 16), reduction(2, -1, 10, 20), reduction(3, -1, 12, 20, 16)}, {}};
  EXPECT_EQ(cutReductionWaits(shared), (10 - 0) + (12 - 4));
}

TEST(ReductionWaits, AreNotOfOperationsThatOnlyLookLikeReductions) {
  // A rank adds up gradients of its own, whenever it has them.
  const Trace local{2, {reduction(0, -1, 0, 20, 0), reduction(1, -1, 10, 30, 0)}, {}};
  Trace trace = local;
  EXPECT_EQ(cutReductionWaits(trace), 0);
  EXPECT_EQ(trace, local);
  // Another tool's operations beside compute, of two replicas of one rank: only what both name alike is one reduction.
  const Trace drawn{
      2, {reduction(0, 0, 0, 20, 0), reduction(1, 0, 10, 20, 0), reduction(0, 0, 30, 40, 0), reduction(1, -1, 35, 40, 0)}, {}};
  trace = drawn;
  EXPECT_EQ(cutReductionWaits(trace), 0);
  EXPECT_EQ(trace, drawn);
  EXPECT_EQ(cutReductionWaits(trace, {1, 1, {{{Rank(0), 30, 40}, "grads-all-reduce"}, {{Rank(1), 35, 40}, "grads-all-reduce"}}}), 35 - 30);
  EXPECT_EQ(trace.spans[0].start, 0);
  trace = drawn;
  EXPECT_EQ(cutReductionWaits(trace, {1, 1, {{{Rank(0), 30, 40}, "grads-all-reduce"}, {{Rank(1), 35, 40}, "params-all-gather"}}}), 0);
}

}  // namespace
}  // namespace pw
