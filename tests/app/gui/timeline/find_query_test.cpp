#include "app/gui/timeline/facts/find_query.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/app/gui/timeline/small_prediction.h"

namespace pw::gui {
namespace {

std::size_t countOf(const QString& text, const Timeline* predicted, const Timeline* measured = nullptr) {
  const ParsedQuery parsed = parseQuery(text);
  EXPECT_TRUE(parsed.understood) << text.toStdString();
  return findAll(parsed.query, predicted, measured).size();
}

constexpr std::uint32_t bit(SpanKind kind) { return 1U << static_cast<unsigned>(kind); }

TEST(FindQuery, ReadsKindStageAndMicrobatch) {
  const auto read = [](const char* text) { return parseQuery(QString::fromUtf8(text)).query; };
  FindQuery f25;
  f25.kinds = bit(SpanKind::Forward);
  f25.stage = Stage(2);
  f25.microbatch = Microbatch(5);
  for (const char* text : {"F 2.5", "f2.5", "  f   2.5 ", "2F5", "f stage 2 mb 5", "F stage=2 microbatch:5", "2.5 f"})
    EXPECT_EQ(read(text), f25) << text;
  FindQuery f2 = f25;
  f2.microbatch.reset();
  for (const char* text : {"2F", "F 2.", "f2.", "stage 2 F"}) EXPECT_EQ(read(text), f2) << text;
  FindQuery f5 = f25;  // as blocks are labelled
  f5.stage.reset();
  for (const char* text : {"F5", "F 5", "f .5", "F mb 5"}) EXPECT_EQ(read(text), f5) << text;
  FindQuery mb5;
  mb5.microbatch = Microbatch(5);
  for (const char* text : {".5", "mb 5", "mb5", "m 5"}) EXPECT_EQ(read(text), mb5) << text;
}

TEST(FindQuery, ReadsTheOtherWords) {
  const auto read = [](const char* text) { return parseQuery(QString::fromUtf8(text)).query; };
  EXPECT_EQ(read("rank 3").rank, Rank(3));
  EXPECT_EQ(read("r3").rank, Rank(3));
  EXPECT_TRUE(read("bubbles").bubbles);
  EXPECT_EQ(read("bubble > 2ms").longerThan, 2 * kMs);
  EXPECT_EQ(read("bubble >2 ms").longerThan, 2 * kMs);
  EXPECT_EQ(read("measured").source, Source::Measured);
  EXPECT_EQ(read("message").kinds, bit(SpanKind::SendForward) | bit(SpanKind::SendBackward));
  EXPECT_EQ(read("SEND_B 1").kinds, bit(SpanKind::SendBackward));
}

TEST(FindQuery, SaysWhichWordItDoesNotKnow) {
  for (const auto& [text, wrong] :
       {std::pair("F 2 frobnicate", "frobnicate"), {"rank", "rank"}, {"> soon", ">"}, {"12", "12"}, {"q2.5", "q2.5"}}) {
    const ParsedQuery parsed = parseQuery(QString::fromUtf8(text));
    EXPECT_FALSE(parsed.understood) << text;
    EXPECT_EQ(parsed.wrong.toStdString(), wrong);
  }
  EXPECT_FALSE(parseQuery(QStringLiteral("  ")).understood);
  EXPECT_TRUE(parseQuery(QString()).wrong.isEmpty());
}

TEST(FindQuery, CountsFollowFromTheShape) {
  constexpr std::size_t kRanks = 4, kM = 8;
  const auto prediction = smallPrediction("1f1b", kRanks, kM);
  const Timeline* t = &prediction->timeline;
  EXPECT_EQ(countOf(QStringLiteral("F 2.5"), t), 1u);
  EXPECT_EQ(countOf(QStringLiteral("F 2."), t), kM);
  EXPECT_EQ(countOf(QStringLiteral("B"), t), kRanks * kM);
  EXPECT_EQ(countOf(QStringLiteral("W"), t), 0u);
  EXPECT_EQ(countOf(QStringLiteral("message"), t), 2 * (kRanks - 1) * kM);
  EXPECT_EQ(countOf(QStringLiteral("send_f mb 4"), t), kRanks - 1);
  EXPECT_EQ(countOf(QStringLiteral("rank 3 F"), t), kM);
  // Rank 3 computes F and B of 8 microbatches and sends as many gradients; nothing comes after it.
  EXPECT_EQ(countOf(QStringLiteral("rank 3 stage 3"), t), 3 * kM);
  EXPECT_EQ(countOf(QStringLiteral("F > 1ms"), t), 0u);
  EXPECT_EQ(countOf(QStringLiteral("B > 1ms"), t), kRanks * kM);
  EXPECT_EQ(countOf(QStringLiteral("F"), t, t), 2 * kRanks * kM);
  EXPECT_EQ(countOf(QStringLiteral("F measured"), t, t), kRanks * kM);
  EXPECT_EQ(countOf(QStringLiteral("rank 9"), t), 0u);
}

TEST(FindQuery, BubblesAreAllThatComputeTracksLeaveOpen) {
  const auto prediction = smallPrediction();
  const Timeline& t = prediction->timeline;
  Ns idle = 0, busy = 0;
  for (const Found& one : findAll(parseQuery(QStringLiteral("bubble")).query, &t, nullptr)) {
    const auto [from, to] = gapOf(t, {Source::Predicted, one.at.span.rank, one.at.span.index});
    EXPECT_EQ(from, one.start);
    idle += to - from;
    const auto under = bubbleUnder(t, Source::Predicted, one.at.span.rank, (from + to) / 2);
    ASSERT_TRUE(under);
    EXPECT_EQ(under->next, one.at.span.index);
  }
  for (const RangeTotals& rank : rangeTotals(t, 0, t.end)) busy += rank.busy;
  EXPECT_EQ(idle + busy, 4 * t.end);
  EXPECT_EQ(busy, 4 * 8 * 3 * kMs);
}

TEST(FindQuery, NoBubbleLiesWhereARankIsBusyOrOutside) {
  const auto prediction = smallPrediction();
  const Timeline& t = prediction->timeline;
  EXPECT_FALSE(bubbleUnder(t, Source::Predicted, Rank(0), kMs / 2));  // F 0.0
  EXPECT_FALSE(bubbleUnder(t, Source::Predicted, Rank(0), -1));
  EXPECT_FALSE(bubbleUnder(t, Source::Predicted, Rank(0), t.end));
  EXPECT_FALSE(bubbleUnder(t, Source::Predicted, Rank(4), 0));
  EXPECT_EQ(bubbleUnder(t, Source::Predicted, Rank(3), 0), (BubbleRef{Source::Predicted, Rank(3), 0}));
}

TEST(FindQuery, WhatIsFoundComesInTheOrderOfTime) {
  const auto prediction = smallPrediction();
  const auto found = findAll(parseQuery(QStringLiteral("1B")).query, &prediction->timeline, nullptr);
  ASSERT_EQ(found.size(), 8u);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.start < b.start; }));
}

}  // namespace
}  // namespace pw::gui
