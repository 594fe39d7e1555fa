#pragma once

#include "simulator/trace/trace.h"

namespace pw::test {

/// A forward and a reduction of two replicas of one rank; the second one's forward takes so long, and both reduce in 5 from then on.
inline Trace reducingStep(Ns late) {
  const auto span = [](int rank, SpanKind kind, int microbatch, Bytes bytes, Ns start, Ns end) {
    return Span{Rank(rank), kind, Stage(0), Microbatch(microbatch), Rank(rank), bytes, start, end};
  };
  return {2,
          {span(0, SpanKind::Forward, 0, 0, 0, 10), span(1, SpanKind::Forward, 1, 0, 0, late),
           span(0, SpanKind::ReduceGrad, -1, 8, 10, late + 5), span(1, SpanKind::ReduceGrad, -1, 8, late, late + 5)},
          {}};
}

}  // namespace pw::test
