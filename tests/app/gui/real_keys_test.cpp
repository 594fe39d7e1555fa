// The window on a real X server (Xvfb), with keys and clicks that come from it (xdotool): what the offscreen platform cannot show, such as
// which window has the focus.

#include <QAbstractSpinBox>
#include <QDockWidget>
#include <QLineEdit>
#include <QListWidget>
#include <QProcess>
#include <QTabBar>
#include <algorithm>

#include "app/gui/cluster/dialog.h"
#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/hand_edit.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

class RealKeys : public WindowFixture {
 protected:
  void SetUp() override {
    ASSERT_EQ(QGuiApplication::platformName(), "xcb") << "run by ctest under xvfb-run";
    WindowFixture::SetUp();
    open(sample("gpt_small.pt2"));
    ASSERT_NE(document().prediction(), nullptr);
    send({"windowfocus", "--sync", QString::number(window_->winId())});
    ASSERT_TRUE(QTest::qWaitFor([&] { return window_->isActiveWindow(); }, kLongMs));
  }
  /// Sends events to the X server while this program handles them.
  void send(const QStringList& arguments) {
    QProcess tool;
    tool.start(QStringLiteral("xdotool"), arguments);
    ASSERT_TRUE(QTest::qWaitFor([&] { return tool.state() == QProcess::NotRunning; }, kLongMs));
    EXPECT_EQ(tool.exitCode(), 0) << arguments.join(QLatin1Char(' ')).toStdString() << ": " << tool.readAllStandardError().toStdString();
  }
  void click(const QWidget& widget, const QPoint& at) {
    const QPoint global = widget.mapToGlobal(at);
    send({"mousemove", "--sync", QString::number(global.x()), QString::number(global.y()), "click", "1"});
  }
  template <class Widget>
  Widget* named(const QString& accessibleName) {
    for (auto* widget : window_->findChildren<Widget*>()) {
      if (widget->accessibleName() == accessibleName && widget->isVisible()) return widget;
    }
    return nullptr;
  }
};

TEST_F(RealKeys, ThePaletteTakesWhatIsTyped) {
  send({"key", "ctrl+k"});
  QWidget* palette = nullptr;
  ASSERT_TRUE(
      QTest::qWaitFor([&] { return (palette = named<QWidget>("Command palette")) != nullptr && palette->isActiveWindow(); }, kLongMs))
      << "it opens and gets the focus";
  send({"type", "--delay", "1", "schedule zbv"});
  auto* typed = palette->findChild<QLineEdit*>();
  ASSERT_TRUE(QTest::qWaitFor([&] { return typed->text() == "schedule zbv"; }, kLongMs)) << typed->text().toStdString();
  send({"key", "Return"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().design().request.schedule == "zbv"; }, kLongMs));
  EXPECT_EQ(named<QWidget>("Command palette"), nullptr);
}

TEST_F(RealKeys, AClickOnATabBelowTheTimelineShowsItsPanel) {
  ASSERT_TRUE(settle());
  for (const char* title : {"Runs", "Analysis", "Explain", "Schedule", "Statistics", "Notes", "Candidates"}) {
    const auto docks = window_->findChildren<QDockWidget*>();
    const auto* dock = *std::ranges::find_if(docks, [&](const QDockWidget* each) { return each->windowTitle() == QLatin1String(title); });
    for (const QTabBar* tabs : window_->findChildren<QTabBar*>(QString(), Qt::FindDirectChildrenOnly)) {
      for (int i = 0; i < tabs->count(); ++i) {
        if (tabs->tabText(i) == QLatin1String(title)) click(*tabs, tabs->tabRect(i).center());
      }
    }
    EXPECT_TRUE(QTest::qWaitFor([&] { return !dock->visibleRegion().isEmpty(); }, kLongMs)) << title;
  }
}

TEST_F(RealKeys, EscapeClosesThePaletteAndTheWindowHasTheFocusAgain) {
  send({"key", "ctrl+k"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return named<QWidget>("Command palette") != nullptr; }, kLongMs));
  send({"key", "Escape"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return named<QWidget>("Command palette") == nullptr && window_->isActiveWindow(); }, kLongMs));
  send({"key", "ctrl+k"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return named<QWidget>("Command palette") != nullptr; }, kLongMs)) << "keys arrive here again";
}

TEST_F(RealKeys, ShortcutsWorkWhileATextFieldHasTheFocus) {
  auto* spin = named<QAbstractSpinBox>("Microbatches");
  ASSERT_NE(spin, nullptr);
  const int before = document().design().request.microbatches;
  click(*spin, QPoint(12, spin->height() / 2));
  ASSERT_TRUE(QTest::qWaitFor([&] { return spin->hasFocus(); }, kLongMs));
  send({"key", "ctrl+a"});
  send({"type", "--delay", "1", "13"});
  send({"key", "Return"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().design().request.microbatches == 13; }, kLongMs));
  ASSERT_TRUE(spin->hasFocus());
  send({"key", "ctrl+z"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().design().request.microbatches == before; }, kLongMs));
  send({"key", "ctrl+k"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return named<QWidget>("Command palette") != nullptr; }, kLongMs));
}

TEST_F(RealKeys, AClickSelectsABlockAndKeysMoveOverTheTimeline) {
  ASSERT_TRUE(settle());
  TimelineWidget& timeline = window_->timeline();
  const double scale = timeline.viewport().nsPerPixel;
  click(timeline, timeline.rect().center());
  ASSERT_TRUE(QTest::qWaitFor([&] { return timeline.hasFocus() || timeline.isAncestorOf(QApplication::focusWidget()); }, kLongMs));
  send({"key", "w"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return timeline.viewport().nsPerPixel < scale; }, kLongMs)) << "zoomed in";
  send({"key", "Home"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return timeline.viewport().nsPerPixel == scale; }, kLongMs)) << "all fits";
}

TEST_F(RealKeys, AClusterIsEditedByTheKeyboardAlone) {
  send({"key", "ctrl+k"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return named<QWidget>("Command palette") != nullptr; }, kLongMs));
  send({"type", "--delay", "1", "edit cluster"});
  send({"key", "Return"});
  ClusterDialog* editor = nullptr;
  ASSERT_TRUE(
      QTest::qWaitFor([&] { return (editor = window_->findChild<ClusterDialog*>()) != nullptr && editor->isActiveWindow(); }, kLongMs));
  auto* latency = named<QLineEdit>("Latency within a node");
  send({"key", "alt+h"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return latency->hasFocus(); }, kLongMs));
  send({"key", "ctrl+a"});
  send({"type", "--delay", "1", "9 ms"});
  send({"key", "Return"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return window_->findChild<ClusterDialog*>() == nullptr; }, kLongMs)) << "applied and closed";
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().cluster().topology.sameNode.latency, 9'000'000);
  EXPECT_GE(document().prediction()->step, 6 * 9'000'000) << "a microbatch goes over three borders and back";
}

TEST_F(RealKeys, ABlockIsDraggedToAnotherPlaceOfItsRow) {
  ASSERT_TRUE(settle());
  TimelineWidget& timeline = window_->timeline();
  click(timeline, timeline.rect().center());
  ASSERT_TRUE(QTest::qWaitFor([&] { return timeline.hasFocus() || timeline.isAncestorOf(QApplication::focusWidget()); }, kLongMs));
  send({"key", "e"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return timeline.hand().isOn(); }, kLongMs));
  ASSERT_TRUE(settle());
  const auto* canvas = timeline.findChild<QWidget*>("timelineCanvas");
  const SpanTrack& track = timeline.scene().predicted->ranks.at(0).compute;
  const auto xOf = [&](std::size_t i) {
    return labelWidth(timeline.scene()) + static_cast<int>(timeline.viewport().xOf((track.start[i] + track.end[i]) / 2));
  };
  const int y = rulerHeight(timeline.scene()) + layOutRows(timeline.scene()).rows.front().height / 2;
  std::size_t first = 0;
  while (track.tags[first].kind != SpanKind::Backward) ++first;
  const QPoint from = canvas->mapToGlobal(QPoint(xOf(first), y)), to = canvas->mapToGlobal(QPoint(xOf(first + 2) + 2, y));
  const auto move = [&](const QPoint& at) { send({"mousemove", "--sync", QString::number(at.x()), QString::number(at.y())}); };
  move(from);
  send({"mousedown", "1"});
  move((from + to) / 2);
  move(to);
  ASSERT_TRUE(QTest::qWaitFor([&] { return timeline.hand().isDragging(); }, kLongMs));
  send({"mouseup", "1"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().design().request.schedule == "1f1b, edited"; }, kLongMs));
  ASSERT_TRUE(settle());
  EXPECT_FALSE(timeline.hand().message().isEmpty());
  send({"key", "ctrl+z"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().design().request.schedule == "1f1b"; }, kLongMs));
}

TEST_F(RealKeys, ANoteIsWrittenWithLettersThatAreKeysOfTheTimeline) {
  ASSERT_TRUE(settle());
  TimelineWidget& timeline = window_->timeline();
  timeline.setFocus();
  timeline.select({Source::Predicted, {Rank(1), TrackKind::Compute, 2}});
  const double scale = timeline.viewport().nsPerPixel;
  send({"key", "n"});
  auto* field = named<QLineEdit>("Note");
  ASSERT_TRUE(QTest::qWaitFor([&] { return (field = named<QLineEdit>("Note")) != nullptr && field->hasFocus(); }, kLongMs));
  send({"type", "--delay", "1", "was it a swap"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return field->text() == "was it a swap"; }, kLongMs)) << field->text().toStdString();
  send({"key", "Return"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().design().notes.size() == 1; }, kLongMs));
  EXPECT_EQ(document().design().notes[0].text, "was it a swap");
  EXPECT_EQ(timeline.viewport().nsPerPixel, scale) << "the letters were not the timeline's";
  send({"key", "ctrl+z"});
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().design().notes.empty(); }, kLongMs));
}

}  // namespace
}  // namespace pw::gui
