#include <QHelpEvent>
#include <QLabel>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QToolTip>

#include <string>

#include "app/gui/common/format.h"
#include "app/gui/timeline/facts/details.h"
#include "app/gui/timeline/facts/explanations.h"
#include "app/gui/timeline/find_bar.h"
#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

using TimelineSelection = TimelineFixture;

/// Spans among the highlighted ones.
bool isMarked(const Scene& scene, const SourcedSpan& span) {
  return std::binary_search(scene.highlighted.begin(), scene.highlighted.end(), span);
}

TEST_F(TimelineSelection, AClickSelectsAndSaysWhatItIs) {
  QSignalSpy said(&widget, &TimelineWidget::detailsChanged);
  const SourcedSpan span = at(1, SpanKind::Forward, 1, 0);
  click(middleOf(span));
  EXPECT_EQ(selected(), span);
  EXPECT_TRUE(widget.details().startsWith(QStringLiteral("1F0 · rank 1 · 1.30 ms"))) << widget.details().toStdString();
  EXPECT_EQ(said.count(), 1);
  EXPECT_EQ(canvas()->accessibleDescription(), widget.details());
  EXPECT_EQ(widget.findChild<QPlainTextEdit*>()->toPlainText(), widget.details());
  key(Qt::Key_Escape);
  EXPECT_FALSE(selected());
  EXPECT_TRUE(widget.details().isEmpty());
}

TEST_F(TimelineSelection, AMessageCanBeClicked) {
  const SourcedSpan span = at(1, SpanKind::SendForward, 1, 0);
  click(middleOf(span));
  EXPECT_EQ(selected(), span);
  EXPECT_TRUE(widget.details().contains(QStringLiteral("rank 1 → rank 2"))) << widget.details().toStdString();
}

TEST_F(TimelineSelection, PeriodAndCommaWalkTheTrack) {
  widget.select(at(0, SpanKind::Forward, 0, 0));
  key(Qt::Key_Period);
  EXPECT_EQ(selected(), at(0, SpanKind::Forward, 0, 1));
  key(Qt::Key_Right);
  EXPECT_EQ(selected(), at(0, SpanKind::Forward, 0, 2));
  key(Qt::Key_Comma);
  key(Qt::Key_Left);
  key(Qt::Key_Left);
  EXPECT_EQ(selected(), at(0, SpanKind::Forward, 0, 0));
}

TEST_F(TimelineSelection, WalkingBeginsAtWhatIsShown) {
  key(Qt::Key_Period);
  EXPECT_EQ(selected(), at(0, SpanKind::Forward, 0, 0));
}

TEST_F(TimelineSelection, UpAndDownGoToOtherRows) {
  widget.select(at(1, SpanKind::Forward, 1, 0));
  key(Qt::Key_Down);  // the rank's messages come next
  ASSERT_TRUE(selected());
  EXPECT_EQ(selected()->span.rank, Rank(1));
  EXPECT_EQ(selected()->span.track, TrackKind::Communication);
  key(Qt::Key_Down);
  EXPECT_EQ(selected()->span.rank, Rank(2));
  key(Qt::Key_Up);
  key(Qt::Key_Up);
  EXPECT_EQ(selected()->span.track, TrackKind::Compute);
  EXPECT_EQ(selected()->span.rank, Rank(1));
}

TEST_F(TimelineSelection, BracketsFollowDependenciesAcrossMessages) {
  widget.select(at(2, SpanKind::Backward, 2, 1));
  const auto press = [&](char sign) { QTest::keyClick(canvas(), sign); };
  press('[');
  EXPECT_EQ(selected(), at(3, SpanKind::SendBackward, 3, 1));
  press('[');
  EXPECT_EQ(selected(), at(3, SpanKind::Backward, 3, 1));
  press('[');
  EXPECT_EQ(selected(), at(3, SpanKind::Forward, 3, 1));
  for (int i = 0; i < 3; ++i) press(']');
  EXPECT_EQ(selected(), at(2, SpanKind::Backward, 2, 1));
}

TEST_F(TimelineSelection, WhatIsSelectedComesIntoView) {
  widget.select(at(0, SpanKind::Forward, 0, 0));
  key(Qt::Key_F);
  const SourcedSpan far = at(0, SpanKind::Backward, 0, 7);
  widget.select(far);
  const Span span = spanOf(timeline(), far.span);
  EXPECT_LE(widget.viewport().start, static_cast<double>(span.start));
  EXPECT_LT(static_cast<double>(span.start), widget.viewport().end());
}

TEST_F(TimelineSelection, DraggingOnTheRulerAddsUpARange) {
  const int y = rulerHeight(widget.scene()) / 2;
  drag({xOf(3 * kMs), y}, {xOf(11 * kMs), y});
  ASSERT_TRUE(widget.scene().range);
  const auto [from, to] = *widget.scene().range;
  EXPECT_NEAR(static_cast<double>(from), 3e6, 2 * widget.viewport().nsPerPixel);
  EXPECT_NEAR(static_cast<double>(to), 11e6, 2 * widget.viewport().nsPerPixel);
  EXPECT_EQ(widget.details(), rangeDetails(from, to, rangeTotals(timeline(), from, to), {}, {}, widget.scene().ranks));
  const QStringList lines = widget.details().split(QLatin1Char('\n'));
  EXPECT_EQ(lines.size(), 2 + 4);  // one for all, the head, and a row for each rank
  key(Qt::Key_F);
  EXPECT_NEAR(widget.viewport().end() - widget.viewport().start, static_cast<double>(to - from) * 4 / 3,
              0.02 * static_cast<double>(to - from));
  click({xOf(5 * kMs), y});
  EXPECT_FALSE(widget.scene().range);
}

TEST_F(TimelineSelection, ARangeEndsWhereTheStepDoes) {
  const Ns before = timeline().end;
  const int y = rulerHeight(widget.scene()) / 2;
  drag({xOf(before / 4), y}, {xOf(before * 3 / 4), y});
  ASSERT_TRUE(widget.scene().range);
  const Ns from = widget.scene().range->first;
  recost([](CostTable& costs) {
    for (auto& stage : costs.stages) stage.forward /= 2, stage.backward /= 2;
  });
  ASSERT_LT(timeline().end, before * 3 / 4);
  ASSERT_TRUE(widget.scene().range) << "its begin is still within the step";
  EXPECT_EQ(*widget.scene().range, std::pair(from, timeline().end));
  EXPECT_TRUE(widget.details().contains(durationText(timeline().end - from))) << widget.details().toStdString();
}

TEST_F(TimelineSelection, AnotherModelHasNothingSelected) {
  const int y = rulerHeight(widget.scene()) / 2;
  drag({xOf(3 * kMs), y}, {xOf(11 * kMs), y});
  open("1f1b", 4, 8);
  EXPECT_FALSE(widget.scene().range);
  click(middleOf(at(1, SpanKind::Forward, 1, 0)));
  ASSERT_TRUE(selected());
  open("1f1b", 4, 8);
  EXPECT_FALSE(selected());
  EXPECT_TRUE(widget.details().isEmpty()) << widget.details().toStdString();
}

TEST_F(TimelineSelection, AClickOnABubbleMarksTheChainThatExplainSays) {
  const Explanation explanation =
      explain(*document.prediction()->rows, document.prediction()->costs, document.prediction()->program, document.prediction()->times);
  const Bubble* bubble = bubbleIn(explanation, Rank(2), 0, kMs);
  ASSERT_NE(bubble, nullptr);
  click({xOf(kMs), yOf(2)});
  ASSERT_EQ(widget.selectedBubble(), (BubbleRef{Source::Predicted, Rank(2), 0}));
  const Cause cause = causeOf(*bubble, timeline(), *dependencies);
  ASSERT_TRUE(QTest::qWaitFor([&] { return widget.details().contains(cause.chain); }, 10'000)) << widget.details().toStdString();
  EXPECT_TRUE(widget.details().startsWith(QStringLiteral("Rank 2 waits 2.60 ms for 1F0 of rank 1"))) << widget.details().toStdString();
  EXPECT_TRUE(widget.scene().dimsOthers);
  EXPECT_EQ(bubble->causes.back().action, (Action{Stage(1), ActionKind::Forward, Microbatch(0)}));
  EXPECT_TRUE(isMarked(widget.scene(), at(1, SpanKind::SendForward, 1, 0)));  // the last cause: its message
  std::vector<SourcedSpan> chain = cause.spans;
  std::sort(chain.begin(), chain.end());
  EXPECT_EQ(widget.scene().highlighted, chain);
  key(Qt::Key_Escape);
  EXPECT_FALSE(widget.scene().dimsOthers);
  EXPECT_FALSE(widget.selectedBubble());
}

TEST_F(TimelineSelection, FromABubblePeriodAndCommaGoToItsSides) {
  const BubbleRef gap = bubbleUnder(timeline(), Source::Predicted, Rank(0), 5 * kMs).value();
  widget.selectBubble(gap);
  key(Qt::Key_Period);
  EXPECT_EQ(selected()->span.index, gap.next);
  widget.selectBubble(gap);
  key(Qt::Key_Comma);
  EXPECT_EQ(selected()->span.index, gap.next - 1);
}

TEST_F(TimelineSelection, TheCriticalPathIsMarkedOnDemand) {
  key(Qt::Key_X);
  ASSERT_TRUE(QTest::qWaitFor([&] { return !widget.scene().highlighted.empty(); }, 10'000));
  const Explanation explanation =
      explain(*document.prediction()->rows, document.prediction()->costs, document.prediction()->program, document.prediction()->times);
  std::vector<SourcedSpan> path = spansOf(explanation.path.segments, timeline(), *dependencies);
  std::sort(path.begin(), path.end());
  EXPECT_EQ(widget.scene().highlighted, path);
  EXPECT_TRUE(widget.details().startsWith(QStringLiteral("Critical path"))) << widget.details().toStdString();
  // It follows the plan.
  recost([](CostTable& costs) { costs.stages[3].backward = 5 * kMs; });
  const Explanation other =
      explain(*document.prediction()->rows, document.prediction()->costs, document.prediction()->program, document.prediction()->times);
  path = spansOf(other.path.segments, timeline(), *dependencies);
  std::sort(path.begin(), path.end());
  EXPECT_TRUE(QTest::qWaitFor([&] { return widget.scene().highlighted == path; }, 10'000));
  key(Qt::Key_X);
  EXPECT_TRUE(widget.scene().highlighted.empty());
}

TEST_F(TimelineSelection, TheSelectionStaysWithItsActionWhenTheScheduleChanges) {
  widget.select(at(1, SpanKind::Forward, 1, 6));
  const SpanRef before = selected()->span;
  document.edit(QStringLiteral("schedule"), [](Design& design) {
    design.customRows = std::make_shared<const Schedule>(lower(generate("gpipe", {4, 4, 8})));
  });
  await();
  ASSERT_TRUE(selected());
  EXPECT_NE(selected()->span, before);  // all forwards come first now
  EXPECT_EQ(*selected(), at(1, SpanKind::Forward, 1, 6));
  document.edit(QStringLiteral("microbatches"), [](Design& design) {
    design.customRows = std::make_shared<const Schedule>(lower(generate("gpipe", {4, 4, 4})));
  });
  await();
  EXPECT_FALSE(selected());
}

TEST_F(TimelineSelection, TheFindBarCountsAndSteps) {
  key(Qt::Key_Slash);
  auto* bar = widget.findChild<FindBar*>();
  ASSERT_TRUE(bar->isVisible());
  auto* edit = bar->findChild<QLineEdit*>();
  const auto count = [&] { return bar->findChild<QLabel*>()->text(); };
  QTest::keyClicks(edit, QStringLiteral("2F"));
  EXPECT_EQ(count(), QStringLiteral("1 of 8"));  // one for each microbatch
  EXPECT_EQ(selected(), at(2, SpanKind::Forward, 2, 0));
  EXPECT_EQ(widget.scene().highlighted.size(), 8u);
  QTest::keyClick(edit, Qt::Key_Return);
  QTest::keyClick(edit, Qt::Key_Return);
  EXPECT_EQ(count(), QStringLiteral("3 of 8"));
  EXPECT_EQ(selected(), at(2, SpanKind::Forward, 2, 2));
  for (int i = 0; i < 3; ++i) QTest::keyClick(edit, Qt::Key_Return, Qt::ShiftModifier);
  EXPECT_EQ(count(), QStringLiteral("8 of 8"));
  QTest::keyClicks(edit, QStringLiteral(".5"));
  EXPECT_EQ(count(), QStringLiteral("1 of 1"));
  QTest::keyClicks(edit, QStringLiteral(" what"));
  EXPECT_EQ(count(), QStringLiteral("“what”?"));
  QTest::keyClick(edit, Qt::Key_Escape);
  EXPECT_FALSE(bar->isVisible());
  EXPECT_TRUE(widget.scene().highlighted.empty());
}

TEST_F(TimelineSelection, FindingBubblesSelectsThem) {
  std::size_t gaps = 0;
  for (const auto& rank : timeline().ranks) {
    Ns until = 0;
    for (std::size_t i = 0; i < rank.compute.size(); ++i) gaps += rank.compute.start[i] > std::exchange(until, rank.compute.end[i]) ? 1 : 0;
    gaps += timeline().end > until ? 1 : 0;
  }
  EXPECT_EQ(widget.findText(QStringLiteral("bubble")), static_cast<int>(gaps));
  EXPECT_EQ(widget.selectedBubble(), (BubbleRef{Source::Predicted, Rank(1), 0}));
  EXPECT_EQ(widget.findText(QStringLiteral("nonsense")), 0);
}

TEST_F(TimelineSelection, HoveringMarksTheSameTaskInTheOtherTimeline) {
  measure([](CostTable& costs) { costs.stages[1].forward = 2 * kMs; });
  const SourcedSpan predicted = at(1, SpanKind::Forward, 1, 3);
  moveTo(middleOf(predicted));
  EXPECT_EQ(widget.scene().hovered, predicted);
  const Timeline& measured = document.measured()->timeline;
  const SourcedSpan other{Source::Measured, findAction(measured, Rank(1), SpanKind::Forward, Stage(1), Microbatch(3)).value()};
  EXPECT_TRUE(isMarked(widget.scene(), predicted));
  EXPECT_TRUE(isMarked(widget.scene(), other));
  EXPECT_FALSE(widget.scene().dimsOthers);
  QEvent leave(QEvent::Leave);
  QApplication::sendEvent(canvas(), &leave);
  EXPECT_FALSE(widget.scene().hovered);
  EXPECT_TRUE(widget.scene().highlighted.empty());
  widget.select(other);
  EXPECT_TRUE(widget.details().contains(QStringLiteral("predicted 1.00 ms, +100.0 %"))) << widget.details().toStdString();
}

TEST_F(TimelineSelection, AMeasuredBubbleIsExplainedByRule) {
  measure([](CostTable& costs) { costs.stages[0].forward = 4 * kMs; });
  widget.selectBubble({Source::Measured, Rank(1), 0});
  EXPECT_TRUE(widget.details().startsWith(QStringLiteral("Rank 1 waits 4.30 ms for 0F0 of rank 0"))) << widget.details().toStdString();
}

TEST_F(TimelineSelection, TooltipsSayWhatASpanIsAndWhyABubbleIsThere) {
  const auto tooltipAt = [&](QPoint where) {
    QHelpEvent help(QEvent::ToolTip, where, canvas()->mapToGlobal(where));
    QApplication::sendEvent(canvas(), &help);
    return QToolTip::text();
  };
  const QString span = tooltipAt(middleOf(at(3, SpanKind::Backward, 3, 2)));
  for (const char* part : {"3B2", "rank 3", "stage 3", "microbatch 2", "2.00 ms"})
    EXPECT_TRUE(span.contains(QString::fromUtf8(part))) << span.toStdString();
  const QString bubble = tooltipAt({xOf(kMs / 2), yOf(1)});
  EXPECT_TRUE(bubble.contains(QStringLiteral("Rank 1 waits 1.30 ms for 0F0 of rank 0"))) << bubble.toStdString();
}

TEST_F(TimelineSelection, WithoutATimelineEveryKeyIsHarmless) {
  Document nothing;
  TimelineWidget empty(nothing);
  empty.resize(400, 300);
  empty.show();
  for (const QAction* action : empty.actions()) {
    if (action->text() == TimelineWidget::tr("Find…")) continue;
    const_cast<QAction*>(action)->trigger();
  }
  EXPECT_EQ(empty.findText(QStringLiteral("F")), 0);
  EXPECT_TRUE(empty.details().isEmpty());
  EXPECT_FALSE(empty.grab().isNull());
}

/// The rows of pixels in which two pictures differ.
QRect changedPart(const QImage& a, const QImage& b) {
  QRect changed;
  for (int y = 0; y < a.height(); ++y) {
    for (int x = 0; x < a.width(); ++x) {
      if (a.pixel(x, y) != b.pixel(x, y)) changed |= QRect(x, y, 1, 1);
    }
  }
  return changed;
}

TEST_F(TimelineSelection, ArrowsGoFromTheSenderOfTheSelectedBlockToItsReceiver) {
  const SourcedSpan sender = at(0, SpanKind::Forward, 0, 2), block = at(1, SpanKind::Forward, 1, 2),
                    receiver = at(2, SpanKind::Forward, 2, 2);
  click(middleOf(block));
  ASSERT_EQ(selected(), block);
  const QImage with = canvas()->grab().toImage();
  key(Qt::Key_M, Qt::ShiftModifier);
  EXPECT_FALSE(widget.scene().showsArrows);
  const QImage without = canvas()->grab().toImage();
  key(Qt::Key_M, Qt::ShiftModifier);
  EXPECT_EQ(canvas()->grab().toImage(), with);
  const QRect changed = changedPart(with, without);
  const double ratio = with.devicePixelRatio();
  constexpr int kAround = 12;  // halo, head and bend
  const QRect ends =
      QRect(QPoint(xOf(spanOf(timeline(), sender.span).end), yOf(0)), QPoint(xOf(spanOf(timeline(), receiver.span).start), yOf(2)));
  EXPECT_EQ(ratio, 1);
  EXPECT_TRUE(ends.adjusted(-kAround, -kAround, kAround + 80, kAround).contains(changed));
  EXPECT_LE(changed.top(), yOf(0));
  EXPECT_GE(changed.bottom(), yOf(2));
}

TEST_F(TimelineSelection, CtrlAndAClickChooseBlocksAndShiftChoosesUpToOne) {
  const auto press = [&](const SourcedSpan& span, Qt::KeyboardModifiers modifiers) {
    QTest::mouseClick(canvas(), Qt::LeftButton, modifiers, middleOf(span));
  };
  const SourcedSpan first = at(0, SpanKind::Forward, 0, 0), third = at(0, SpanKind::Forward, 0, 2), other = at(2, SpanKind::Backward, 2, 4);
  press(first, Qt::NoModifier);
  EXPECT_TRUE(widget.markedSpans().empty());
  press(other, Qt::ControlModifier);
  EXPECT_EQ(widget.markedSpans(), (std::vector{first, other}));
  EXPECT_TRUE(widget.details().startsWith("2 blocks chosen · together 3.00 ms, each 1.00 ms to 2.00 ms")) << widget.details().toStdString();
  press(other, Qt::ControlModifier);
  EXPECT_EQ(widget.markedSpans(), std::vector{first});
  press(third, Qt::ShiftModifier);
  EXPECT_EQ(widget.markedSpans(), (std::vector{first, at(0, SpanKind::Forward, 0, 1), third}));
  key(Qt::Key_Escape);
  EXPECT_TRUE(widget.markedSpans().empty());
  press(first, Qt::NoModifier);
  press(other, Qt::ControlModifier);
  press(third, Qt::NoModifier);
  EXPECT_TRUE(widget.markedSpans().empty()) << "a plain click begins anew";
  EXPECT_EQ(selected(), third);
}

TEST_F(TimelineSelection, ShiftChoosesFromTheBlockThatWasChosenLast) {
  const auto press = [&](const SourcedSpan& span, Qt::KeyboardModifiers modifiers) {
    QTest::mouseClick(canvas(), Qt::LeftButton, modifiers, middleOf(span));
  };
  const auto forward = [&](int microbatch) { return at(0, SpanKind::Forward, 0, microbatch); };
  const SourcedSpan other = at(2, SpanKind::Backward, 2, 4);
  press(forward(0), Qt::ControlModifier);  // where nothing was selected
  press(forward(2), Qt::ShiftModifier);
  EXPECT_EQ(widget.markedSpans(), (std::vector{forward(0), forward(1), forward(2)}));
  key(Qt::Key_Escape);
  press(other, Qt::NoModifier);
  press(forward(1), Qt::ControlModifier);
  press(forward(3), Qt::ShiftModifier);
  EXPECT_EQ(widget.markedSpans(), (std::vector{forward(1), forward(2), forward(3), other})) << "not from the selected one";
}

TEST_F(TimelineSelection, EachStepOfACauseIsALink) {
  const auto bubble = bubbleUnder(timeline(), Source::Predicted, Rank(1), kMs / 2);  // it waits for the first forward and its message
  ASSERT_TRUE(bubble);
  auto* strip = widget.findChild<QPlainTextEdit*>();
  const auto clickOn = [&](const QString& text) {
    widget.selectBubble(*bubble);
    ASSERT_TRUE(QTest::qWaitFor([&] { return strip->toPlainText().contains(text); }, 10'000)) << strip->toPlainText().toStdString();
    QTextCursor at(strip->document());
    at.setPosition(static_cast<int>(strip->toPlainText().lastIndexOf(text)) + 2);
    QTest::mouseClick(strip->viewport(), Qt::LeftButton, {}, strip->cursorRect(at).center());
  };
  clickOn(QStringLiteral("0F0 of rank 0 until 1.00 ms"));
  EXPECT_EQ(selected(), at(0, SpanKind::Forward, 0, 0));
  EXPECT_FALSE(widget.selectedBubble());
  clickOn(QStringLiteral("message of 0F0 to rank 1 until 1.30 ms"));
  EXPECT_EQ(selected(), at(0, SpanKind::SendForward, 0, 0));
  const SourcedSpan before = *selected();
  QTest::mouseClick(strip->viewport(), Qt::LeftButton, {}, QPoint(20, 8));  // what is said of a block has no links
  EXPECT_EQ(selected(), before);
  widget.selectBubble(*bubble);
  QTextCursor cursor(strip->document());
  cursor.setPosition(static_cast<int>(strip->toPlainText().indexOf(QStringLiteral("message of 0F0"))) + 3);
  strip->setTextCursor(cursor);
  QTest::keyClick(strip, Qt::Key_Return);
  EXPECT_EQ(selected(), at(0, SpanKind::SendForward, 0, 0));
}

}  // namespace
}  // namespace pw::gui
