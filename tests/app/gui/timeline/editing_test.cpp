// Editing by hand on the canvas, by real mouse and key events.
#include "app/gui/timeline/editing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <QLabel>
#include <QToolButton>

#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

/// A compute-only schedule, so that it can be edited.
class TimelineEditing : public TimelineFixture {
 protected:
  void SetUp() override {
    TimelineFixture::SetUp();
    key(Qt::Key_E);
    ASSERT_TRUE(label().isVisible());
  }
  /// Of the bar below the rows.
  [[nodiscard]] QLabel& label() const {
    for (auto* label : widget.findChildren<QLabel*>()) {
      if (label->accessibleName() == "What the edit changed") return *label;
    }
    throw std::logic_error("there is no bar");
  }
  [[nodiscard]] std::string message() const { return label().text().toStdString(); }
  [[nodiscard]] bool isRed() const { return label().palette().color(QPalette::WindowText) == currentTheme().error; }
  /// B0 of stage 3 to a place before its F0.
  void refuseADrag() {
    const QPoint from = middleOf(at(3, SpanKind::Backward, 3, 0));
    drag(from, middleOf(at(3, SpanKind::Forward, 3, 0)) - QPoint(60, 0));
    await();
  }
};

TEST_F(TimelineEditing, RowsStayUnderTheMouseWhenItBeginsAndEnds) {
  const auto shown = [this] {
    QApplication::processEvents();
    return std::pair(canvas()->mapTo(&widget, middleOf(at(2, SpanKind::Forward, 2, 1))), canvas()->mapTo(&widget, QPoint(0, yOf(3))));
  };
  const auto editing = shown();
  key(Qt::Key_E);
  ASSERT_FALSE(label().isVisible());
  EXPECT_EQ(shown(), editing);
  key(Qt::Key_E);
  ASSERT_TRUE(label().isVisible());
  EXPECT_EQ(shown(), editing);
}

TEST_F(TimelineEditing, WhatWasSelectedBeforeIsWhatTheFirstEditIsOf) {
  key(Qt::Key_E);
  click(middleOf(at(1, SpanKind::Forward, 1, 2)));
  key(Qt::Key_E);
  key(Qt::Key_W, Qt::ShiftModifier);
  EXPECT_THAT(message(), testing::HasSubstr("1F2"));
  EXPECT_THAT(message(), testing::Not(testing::HasSubstr("Select ")));
}

TEST_F(TimelineEditing, ABlockThatIsDraggedIsSelectedInPlaceOfABubble) {
  const SourcedSpan dragged = at(0, SpanKind::Backward, 0, 1), passed = at(0, SpanKind::Backward, 0, 2);
  const Span first = spanOf(timeline(), at(3, SpanKind::Forward, 3, 0).span);
  click({xOf(first.start / 2), yOf(3)});  // the bubble before rank 3 begins
  ASSERT_TRUE(widget.details().contains("bubble") || widget.details().contains("wait")) << widget.details().toStdString();
  const std::string ofBubble = widget.details().toStdString();
  drag(middleOf(dragged), middleOf(passed) + QPoint(4, 0));
  await();
  ASSERT_TRUE(selected().has_value());
  const Span now = spanOf(timeline(), selected()->span);
  EXPECT_EQ(now.kind, SpanKind::Backward);
  EXPECT_EQ(now.stage, Stage{0});
  EXPECT_EQ(now.microbatch, Microbatch{1});
  EXPECT_NE(widget.details().toStdString(), ofBubble);
  EXPECT_FALSE(widget.details().isEmpty());
}

TEST_F(TimelineEditing, TheReasonOfARefusedDropGoesAtTheNextAction) {
  const auto refusals = [this](const std::function<void()>& act) {
    refuseADrag();
    EXPECT_TRUE(isRed()) << message();
    act();
    EXPECT_FALSE(isRed()) << message();
  };
  const Span first = spanOf(timeline(), at(3, SpanKind::Forward, 3, 0).span);
  refusals([&] { click({xOf(first.start / 2), yOf(3)}); });             // a bubble
  refusals([&] { click(middleOf(at(3, SpanKind::Backward, 3, 0))); });  // the same block
  refusals([&] { key(Qt::Key_Period); });                               // the next block
}

TEST_F(TimelineEditing, AnEditIsOfTheBlockThatAKeyWentTo) {
  click(middleOf(at(0, SpanKind::Forward, 0, 0)));
  key(Qt::Key_Period);
  key(Qt::Key_W, Qt::ShiftModifier);
  EXPECT_THAT(message(), testing::HasSubstr("0F1"));
}

TEST_F(TimelineEditing, WhatIsNoErrorIsNotRed) {
  key(Qt::Key_Right, Qt::ShiftModifier);
  EXPECT_EQ(message(), "Select an action first; Ctrl and Shift select several.");
  EXPECT_FALSE(isRed());
  key(Qt::Key_P, Qt::ShiftModifier);
  EXPECT_EQ(message(), "Select the action before which the rank is to pause.");
  EXPECT_FALSE(isRed());
}

TEST_F(TimelineEditing, WhyNotEarlierIsInSightOfAWindowOfUsualSize) {
  widget.resize(606, 500);  // of 1380, beside Model and Plan
  QApplication::processEvents();
  for (const char* name : {"Split or merge B", "Why not earlier?", "Improve"}) {
    const auto buttons = widget.findChildren<QToolButton*>();
    const auto button = std::ranges::find(buttons, name, [](const QToolButton* b) { return b->text(); });
    ASSERT_NE(button, buttons.end()) << name;
    EXPECT_TRUE((*button)->isVisible()) << name;
  }
}

TEST_F(TimelineEditing, RowsStayUnderTheMouseWhateverTheBarSays) {
  for (const int width : {1400, 1000, 700, 560}) {
    widget.resize(width, 500);
    QApplication::processEvents();
    const QPoint from = middleOf(at(0, SpanKind::Backward, 0, 1)), to = middleOf(at(0, SpanKind::Backward, 0, 3));
    const QRect place = canvas()->geometry();
    mouse(QEvent::MouseButtonPress, from, Qt::LeftButton, Qt::LeftButton);
    for (const QPoint& where : {from + (to - from) / 2, to, from - QPoint(150, 0)}) {
      mouse(QEvent::MouseMove, where, Qt::NoButton, Qt::LeftButton);
      await();
      QApplication::processEvents();
      EXPECT_EQ(canvas()->geometry(), place) << width << " pixels: " << message();
    }
    mouse(QEvent::MouseButtonRelease, from, Qt::LeftButton, Qt::NoButton);
    await();
  }
}

TEST_F(TimelineEditing, AStepThatGetsLongerKeepsItsEndInSight) {
  const Ns end = timeline().end;
  wheel(canvas()->rect().center() + QPoint(300, 0), 3, Qt::ControlModifier);
  ASSERT_GT(widget.viewport().start, 0) << "not all is shown any more";
  while (widget.viewport().end() < static_cast<double>(end)) key(Qt::Key_D);
  const double start = widget.viewport().start;
  ASSERT_GT(start, 0);
  recost([](CostTable& costs) { costs.stages[0].backward *= 5; });
  ASSERT_GT(timeline().end, static_cast<Ns>(widget.viewport().nsPerPixel) + end);
  EXPECT_GE(widget.viewport().end(), static_cast<double>(timeline().end));
  EXPECT_EQ(widget.viewport().start, start);
}

TEST_F(TimelineEditing, AViewOfThePartBeforeTheEndStays) {
  wheel({labelWidth(widget.scene()) + 5, canvas()->height() / 2}, 3, Qt::ControlModifier);
  const Viewport before = widget.viewport();
  ASSERT_LT(before.end(), static_cast<double>(timeline().end));
  recost([](CostTable& costs) { costs.stages[0].backward *= 5; });
  EXPECT_EQ(widget.viewport(), before);
}

}  // namespace
}  // namespace pw::gui
