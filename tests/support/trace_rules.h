#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "simulator/trace/trace.h"

namespace pw::test {

/// Checks the invariants of traces that every part of the program relies on: the order of spans, ids in range, times from 0, and no two
/// spans at once on a rank's compute lane, slots and waits apart.
inline void expectKeepsRules(const Trace& trace) {
  std::vector<Ns> busyUntil(static_cast<std::size_t>(trace.ranks), 0);
  const Span* before = nullptr;
  ASSERT_FALSE(trace.spans.empty());
  EXPECT_EQ(trace.spans.front().start, 0);
  for (const Span& span : trace.spans) {
    ASSERT_GE(span.rank.value, 0);
    ASSERT_LT(span.rank.value, trace.ranks);
    ASSERT_GE(span.peer.value, 0);
    ASSERT_LT(span.peer.value, trace.ranks);
    ASSERT_GE(span.stage.value, -1);
    ASSERT_LT(span.stage.value, kMaxStages);
    ASSERT_LT(span.microbatch.value, kMaxMicrobatches);
    ASSERT_LE(span.start, span.end);
    ASSERT_GE(span.bytes, 0);
    ASSERT_TRUE(before == nullptr || before->start < span.start || (before->start == span.start && before->rank <= span.rank));
    const bool message = isMessage(span.kind);
    const bool wait = isWait(span.kind);
    ASSERT_EQ(message, span.peer != span.rank);
    if (!message && !wait && !isBeside(span)) {
      Ns& until = busyUntil[span.rank.index()];
      ASSERT_TRUE(span.start >= until || (before != nullptr && isSlot(*before, span)));
      until = span.end;
    }
    before = &span;
  }
  for (const MemorySample& sample : trace.memory) {
    ASSERT_GE(sample.rank.value, 0);
    ASSERT_LT(sample.rank.value, trace.ranks);
  }
}

}  // namespace pw::test
