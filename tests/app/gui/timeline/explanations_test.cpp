#include "app/gui/timeline/facts/explanations.h"

#include <gtest/gtest.h>

#include <string>

#include "app/gui/timeline/facts/details.h"
#include "simulator/timeline/fill.h"
#include "tests/app/gui/timeline/small_prediction.h"

namespace pw::gui {
namespace {

struct Explained {
  std::shared_ptr<const Prediction> prediction = smallPrediction();
  const Timeline& timeline = prediction->timeline;
  Dependencies dependencies{timeline, linksOf(prediction->costs)};
  Explanation explanation = explain(*prediction->rows, prediction->costs, prediction->program, prediction->times);

  [[nodiscard]] SpanRef at(int rank, SpanKind kind, int stage, int microbatch) const {
    return dependencies.find(Rank(rank), kind, Stage(stage), Microbatch(microbatch)).value();
  }
};

// Rank 1 of the pipeline begins when 0F0 (1 ms) is sent (0.2 ms) and has come (0.1 ms).
TEST(Explanations, TheFirstBubbleOfARankIsTheWayOfTheFirstMicrobatch) {
  const Explained e;
  const Bubble* bubble = bubbleIn(e.explanation, Rank(1), 0, kMs);
  ASSERT_NE(bubble, nullptr);
  const Cause cause = causeOf(*bubble, e.timeline, e.dependencies);
  EXPECT_EQ(cause.headline.toStdString(), "Rank 1 waits 1.30 ms for 0F0 of rank 0");
  EXPECT_EQ(cause.chain.toStdString(), "0F0 of rank 0 until 1.00 ms → message of 0F0 to rank 1 until 1.30 ms");
  const std::vector<SourcedSpan> expected{{Source::Predicted, e.at(0, SpanKind::Forward, 0, 0)},
                                          {Source::Predicted, e.at(0, SpanKind::SendForward, 0, 0)}};
  EXPECT_EQ(cause.spans, expected);
}

TEST(Explanations, AHeadlineSaysWhatTheAwaitedActionWaitedFor) {
  const Explained e;
  const Bubble* bubble = bubbleIn(e.explanation, Rank(2), 0, kMs);
  ASSERT_NE(bubble, nullptr);
  EXPECT_EQ(causeOf(*bubble, e.timeline, e.dependencies).headline.toStdString(),
            "Rank 2 waits 2.60 ms for 1F0 of rank 1, which waits for the message of 0F0 from rank 0");
}

TEST(Explanations, TheSimpleCauseAgreesWithTheExplanationWhereMessagesDoNotQueue) {
  const Explained e;
  int compared = 0;
  for (const Bubble& bubble : e.explanation.bubbles) {
    if (!bubble.next) continue;
    const auto under = bubbleUnder(e.timeline, Source::Predicted, bubble.rank, bubble.start);
    ASSERT_TRUE(under);
    const Cause simple = simpleCause(*under, e.timeline, e.dependencies), full = causeOf(bubble, e.timeline, e.dependencies);
    EXPECT_EQ(simple.spans, full.spans) << full.chain.toStdString();
    EXPECT_EQ(simple.chain, full.chain);
    ++compared;
  }
  EXPECT_GT(compared, 3);
}

TEST(Explanations, EveryCauseAndEveryStepOfTheCriticalPathIsASpan) {
  for (const char* schedule : {"1f1b", "zbv", "dualpipev", "chimera"}) {
    const auto prediction = smallPrediction(schedule, 4, 8);
    const Dependencies dependencies(prediction->timeline, linksOf(prediction->costs));
    const Explanation explanation = explain(*prediction->rows, prediction->costs, prediction->program, prediction->times);
    const auto path = spansOf(explanation.path.segments, prediction->timeline, dependencies);
    ASSERT_FALSE(path.empty());
    Ns until = 0;  // the path tiles the makespan: each span begins where the one before ended
    for (const SourcedSpan& at : path) {
      const Span span = spanOf(prediction->timeline, at.span);
      EXPECT_LE(span.start, until) << schedule;
      until = std::max(until, span.end);
    }
    EXPECT_EQ(until, explanation.path.segments.back().to) << schedule;
    for (const Bubble& bubble : explanation.bubbles) EXPECT_FALSE(causeOf(bubble, prediction->timeline, dependencies).spans.empty());
  }
}

TEST(Explanations, BubbleInTakesTheOneThatHasMostOfTheRange) {
  Explanation explanation;
  for (const auto& [rank, from, to] : {std::tuple(0, Ns{10}, Ns{20}), {0, Ns{30}, Ns{90}}, {1, Ns{5}, Ns{95}}}) {
    Bubble bubble;
    bubble.rank = Rank(rank);
    bubble.start = from;
    bubble.end = to;
    explanation.bubbles.push_back(bubble);
  }
  EXPECT_EQ(bubbleIn(explanation, Rank(0), 12, 50), &explanation.bubbles[1]);
  EXPECT_EQ(bubbleIn(explanation, Rank(0), 12, 31), &explanation.bubbles[0]);
  EXPECT_EQ(bubbleIn(explanation, Rank(0), 20, 30), nullptr);
  EXPECT_EQ(bubbleIn(explanation, Rank(1), 90, 200), &explanation.bubbles[2]);
  EXPECT_EQ(bubbleIn(explanation, Rank(2), 0, 200), nullptr);
}

TEST(Details, SayWhenWhatForAndForWhom) {
  const Explained e;
  const SourcedSpan at{Source::Predicted, e.at(1, SpanKind::Forward, 1, 0)};
  const QString text = detailsOf(factsOf(at, e.timeline, &e.dependencies, 0));
  EXPECT_EQ(text.toStdString(),
            "1F0 · rank 1 · 1.30 ms – 2.30 ms · takes 1.00 ms\n"
            "Waited 1.30 ms for message 0F0 from rank 0 · needed by message 1F0 to rank 2, 1B0");
}

TEST(Details, AMessageSaysItsBytesAndBothEnds) {
  const Explained e;
  CostTable costs = e.prediction->costs;
  for (MessageCost& m : costs.messages) m.bytes = m.backward ? Bytes{2048} : Bytes{1024} * (1 + m.from.value);
  const SourcedSpan at{Source::Predicted, e.at(2, SpanKind::SendForward, 2, 4)};
  const Bytes bytes = bytesOf(costs, *e.prediction->rows, spanOf(e.timeline, at.span));
  EXPECT_EQ(bytes, 3072);
  const QString text = tooltipOf(factsOf(at, e.timeline, nullptr, bytes));
  EXPECT_TRUE(text.contains(QStringLiteral("rank 2 → rank 3"))) << text.toStdString();
  EXPECT_TRUE(text.contains(QStringLiteral("3.00 KiB"))) << text.toStdString();
  EXPECT_TRUE(text.contains(QStringLiteral("microbatch 4"))) << text.toStdString();
}

TEST(Details, BytesOfAMeasuredMessageComeFromItsTrace) {
  const Explained e;
  Trace trace = traceOf(*e.prediction);
  for (Span& span : trace.spans) {
    if (span.kind == SpanKind::SendBackward) span.bytes = Bytes{1} * (100 + span.microbatch.value);
  }
  const Timeline timeline = timelineOf(trace);
  const Dependencies dependencies(timeline, chainLinks(4));
  const auto ref = dependencies.find(Rank(3), SpanKind::SendBackward, Stage(3), Microbatch(6));
  ASSERT_TRUE(ref);
  EXPECT_EQ(bytesOf(trace, spanOf(timeline, *ref)), 106);
}

TEST(Details, TheDifferenceIsMeasuredAgainstPredictedFromEitherSide) {
  SpanFacts facts;
  facts.span.end = 2 * kMs;
  facts.other = facts.span;
  facts.other->end = 3 * kMs;
  EXPECT_TRUE(detailsOf(facts).contains(QStringLiteral("measured 3.00 ms, +50.0 %"))) << detailsOf(facts).toStdString();
  facts.source = Source::Measured;
  EXPECT_TRUE(detailsOf(facts).contains(QStringLiteral("predicted 3.00 ms, −33.3 %"))) << detailsOf(facts).toStdString();
}

TEST(Details, ATimeIsAsExactAsAsked) {
  EXPECT_EQ(timeText(12'345'678, 1e6).toStdString(), "12 ms");
  EXPECT_EQ(timeText(12'345'678, 1e3).toStdString(), "12.346 ms");
  EXPECT_EQ(timeText(12'345'678, 1).toStdString(), "12.345678 ms");
  EXPECT_EQ(timeText(-1'500, 100).toStdString(), "-1.5 µs");
  EXPECT_EQ(timeText(0, 0).toStdString(), "0 ns");
}

TEST(Details, ARangeListsItsTotalsByRankInTheOrderShown) {
  const std::vector<RangeTotals> totals{{3 * kMs, kMs, 0}, {2 * kMs, 2 * kMs, kMs}};
  const QString text = rangeDetails(0, 4 * kMs, totals, {}, {}, {{Rank(1)}, {Rank(0)}});
  EXPECT_EQ(text.toStdString(),
            "Range 0.00 ms – 4.00 ms (4.00 ms) · busy 62.5 %, bubble 37.5 %, communication 1.00 ms\n"
            "Rank\tBusy\tBubble\tCommunication\n"
            "1\t2.00 ms (50.0 %)\t2.00 ms (50.0 %)\t1.00 ms\n"
            "0\t3.00 ms (75.0 %)\t1.00 ms (25.0 %)\t0 ns");
}

}  // namespace
}  // namespace pw::gui
