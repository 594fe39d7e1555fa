// What a program of calls without a plan looks like as a trace.
#include "engine/autograd/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "tests/engine/autograd/programs.h"
#include "tests/support/trace_rules.h"

namespace pw::test {
namespace {

using Kinds = std::map<SpanKind, int>;

Kinds kindsOf(const Trace& trace, int microbatch) {
  Kinds kinds;
  for (const Span& span : trace.spans) kinds[span.kind] += span.microbatch == Microbatch(microbatch) ? 1 : 0;
  std::erase_if(kinds, [](const auto& kind) { return kind.second == 0; });
  return kinds;
}

/// Two workers, each recorded.
struct RecordedJob {
  RecordedJob() : job({.workers = 2, .functions = &testFunctions()}) {
    for (int w = 0; w < 2; ++w) {
      recorders.push_back(std::make_unique<CallRecorder>(JobRank(w), testFunctions()));
      job.autograd(w).watch(recorders.back()->watch());
    }
  }
  [[nodiscard]] Trace trace() {
    std::vector<CallLog> logs;
    for (const auto& recorder : recorders) logs.push_back(recorder->take());
    return joinCalls(logs);
  }
  std::vector<std::unique_ptr<CallRecorder>> recorders;  // outlive the job
  RemoteJob job;
};

TEST(CallRecorder, ShowsCallsMessagesPiecesAndStepsOfEachContext) {
  RecordedJob recorded;
  recorded.job.remote(1).define("square", recorded.recorders[1]->recorded([](Remote&, const RemoteValue& value) {
    return valueOf(tensorOf(value) * tensorOf(value));
  }));
  recorded.job.start();
  for (int i = 0; i < 2; ++i) {
    const OpenContext context(recorded.job.autograd(0));
    const Tensor loss = sum(tensorOf(recorded.job.remote(0).rpcSync("worker1", "square", valueOf(leaf(1)))));
    recorded.job.autograd(0).backward(context.id(), {loss.handle});
    recorded.recorders[0]->record(SpanKind::Optimizer, [] {});
  }
  const Trace trace = recorded.trace();
  expectKeepsRules(trace);
  EXPECT_EQ(trace.ranks, 2);
  // There and back forwards; back and there backwards, in a piece from the loss, one of the function and one of the leaf.
  Kinds expected{{SpanKind::Forward, 1}, {SpanKind::SendForward, 2}, {SpanKind::SendBackward, 2}, {SpanKind::Backward, 3}};
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    Kinds found = kindsOf(trace, microbatch);
    EXPECT_LE(found[SpanKind::Optimizer], 1) << "it may have taken no time";
    found.erase(SpanKind::Optimizer);
    EXPECT_EQ(found, expected);
  }
  for (const Span& span : trace.spans) {
    EXPECT_EQ(span.bytes, span.rank == span.peer ? 0 : 9 * 8) << "3 × 3 doubles";
    EXPECT_TRUE(span.kind != SpanKind::Forward || span.rank == Rank(1));
  }
  EXPECT_TRUE(recorded.trace().spans.empty()) << "it was taken";
}

TEST(CallRecorder, RecordsAFunctionThatThrows) {
  RecordedJob recorded;
  recorded.job.remote(1).define(
      "fail", recorded.recorders[1]->recorded([](Remote&, const RemoteValue&) -> RemoteValue { throw UsageError("no"); }));
  recorded.job.start();
  EXPECT_THROW(recorded.job.remote(0).rpcSync("worker1", "fail"), RemoteError);
  const CallLog log = recorded.recorders[1]->take();
  ASSERT_EQ(log.work.size(), 1U);
  EXPECT_EQ(log.work[0].kind, SpanKind::Forward);
  EXPECT_FALSE(log.work[0].context);
}

TEST(CallRecorder, CountsWhatItHasNoRoomForUntilItIsTaken) {
  CallRecorder recorder(JobRank(0), testFunctions(), 2);
  const AutogradWatch watch = recorder.watch();
  for (const int count : {5, 1}) {
    for (int i = 0; i < count; ++i) {
      recorder.record(SpanKind::Forward, [] {});
      watch.sent(ContextId(1), AutogradMessageId(static_cast<std::uint64_t>(i + 1)), JobRank(1));
    }
    const CallLog log = recorder.take();
    const auto kept = static_cast<std::size_t>(std::min(count, 2));
    EXPECT_EQ(log.work.size(), kept);
    EXPECT_EQ(log.ends.size(), kept);
    EXPECT_EQ(log.leftOut, 2 * (static_cast<std::size_t>(count) - kept));
  }
}

TEST(CallRecorder, ShowsOnALaneTheWorkThatBeganLast) {
  const ContextId a(1), b(2);
  CallLog log;
  log.work = {{SpanKind::Forward, a, 100, 200}, {SpanKind::Backward, b, 120, 150}, {SpanKind::Forward, b, 180, 220}};
  const Trace trace = joinCalls({log});
  expectKeepsRules(trace);
  std::vector<std::tuple<SpanKind, int, std::int64_t, std::int64_t>> spans;
  for (const Span& span : trace.spans) spans.emplace_back(span.kind, span.microbatch.value, span.start.value, span.end.value);
  EXPECT_THAT(spans, testing::ElementsAre(std::tuple(SpanKind::Forward, 0, 0, 20), std::tuple(SpanKind::Backward, 1, 20, 50),
                                          std::tuple(SpanKind::Forward, 0, 50, 80), std::tuple(SpanKind::Forward, 1, 80, 120)));
}

TEST(CallRecorder, LeavesOutMessagesThatDidNotArrive) {
  CallLog log;
  log.ends = {{AutogradMessageId(7), ContextId(1), JobRank(0), JobRank(1), SpanKind::SendForward, true, 0, 5}};
  EXPECT_TRUE(joinCalls({log, {}}).spans.empty());
}

}  // namespace
}  // namespace pw::test
