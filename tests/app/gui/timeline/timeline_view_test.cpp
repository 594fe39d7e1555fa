#include <QAction>
#include <QContextMenuEvent>
#include <QElapsedTimer>
#include <QMenu>
#include <QPainter>

#include <cmath>

#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/facts/navigation.h"
#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

using TimelineView = TimelineFixture;

std::vector<int> spanOrder(const Scene& scene) {
  std::vector<int> numbers;
  for (const RankView& view : scene.ranks) numbers.push_back(view.rank.value);
  return numbers;
}

TEST_F(TimelineView, ANewScheduleIsShownAsAWhole) {
  const Viewport all = fitted(0, timeline().end, widget.viewport().width);
  EXPECT_EQ(widget.viewport(), all);
  widget.zoomIn();
  open("gpipe", 4, 8);
  EXPECT_EQ(widget.viewport(), fitted(0, timeline().end, widget.viewport().width));
}

/// Outlines of the plan before a drag, and what the drag costs; both stay until they are dismissed, and go where the change is taken back.
TEST_F(TimelineView, ADragShowsWhatWasBeforeAndWhatItCosts) {
  const auto picture = [this] { return canvas()->grab().toImage(); };
  const auto slower = [this] { recost([](CostTable& costs) { costs.stages[1].forward *= 2; }); };
  const Viewport view = widget.viewport();
  document.beginDrag(QStringLiteral("Move a split"));
  slower();
  const QImage dragged = picture();
  EXPECT_TRUE(widget.details().startsWith(QStringLiteral("Step "))) << widget.details().toStdString();
  EXPECT_TRUE(widget.details().contains(QStringLiteral("→"))) << widget.details().toStdString();
  EXPECT_EQ(widget.viewport(), view) << "the axis stays";
  document.endDrag(true);
  await();
  const QImage dropped = picture();
  EXPECT_TRUE(widget.details().startsWith(QStringLiteral("Step "))) << widget.details().toStdString();
  key(Qt::Key_Escape);
  EXPECT_NE(picture(), dropped) << "without outlines";
  EXPECT_TRUE(widget.details().isEmpty()) << widget.details().toStdString();
  document.beginDrag(QStringLiteral("Move a split"));
  slower();
  document.endDrag(false);
  await();
  EXPECT_TRUE(QTest::qWaitFor([&] { return widget.details().isEmpty(); }, 10'000)) << widget.details().toStdString();
}

TEST_F(TimelineView, AnyChangeLeavesOutlinesUntilAClick) {
  const auto picture = [this] { return canvas()->grab().toImage(); };
  recost([](CostTable& costs) { costs.stages[1].forward *= 2; });
  const QImage changed = picture();
  EXPECT_TRUE(widget.details().startsWith(QStringLiteral("Step "))) << widget.details().toStdString();
  click(QPoint(xOf(timeline().end - kMs / 4), yOf(0)));
  widget.clearSelection();
  EXPECT_NE(picture(), changed);
  EXPECT_TRUE(widget.details().isEmpty()) << widget.details().toStdString();
  recost([](CostTable& costs) { costs.stages[1].forward *= 2; });
  EXPECT_FALSE(widget.details().isEmpty()) << "of the next change";
}

TEST_F(TimelineView, TheAxisHoldsTheOutlinesOfALongerPlan) {
  const Ns before = timeline().end;
  recost([](CostTable& costs) { costs.stages[1].forward /= 4; });
  ASSERT_LT(timeline().end, before);
  key(Qt::Key_Home);
  EXPECT_EQ(widget.viewport(), fitted(0, before, widget.viewport().width));
  key(Qt::Key_Escape);
  key(Qt::Key_Home);
  EXPECT_EQ(widget.viewport(), fitted(0, timeline().end, widget.viewport().width));
}

TEST_F(TimelineView, ZoomKeysKeepTheTimeUnderTheMouse) {
  const QPoint where(xOf(7 * kMs), yOf(2));
  moveTo(where);
  const Ns before = widget.viewport().timeOf(where.x() - labelWidth(widget.scene()));
  for (const Qt::Key code : {Qt::Key_W, Qt::Key_W, Qt::Key_W, Qt::Key_S}) key(code);
  const Ns after = widget.viewport().timeOf(where.x() - labelWidth(widget.scene()));
  EXPECT_NEAR(static_cast<double>(after), static_cast<double>(before), 2 * widget.viewport().nsPerPixel);
  EXPECT_NEAR(widget.viewport().nsPerPixel, 0.8 * 0.8 * fitted(0, timeline().end, widget.viewport().width).nsPerPixel,
              1e-6 * widget.viewport().nsPerPixel);
}

TEST_F(TimelineView, ZoomKeysKeepTheMiddleWhenTheMouseIsOutside) {
  QEvent leave(QEvent::Leave);
  QApplication::sendEvent(canvas(), &leave);
  const double middle = (widget.viewport().start + widget.viewport().end()) / 2;
  key(Qt::Key_W);
  EXPECT_NEAR((widget.viewport().start + widget.viewport().end()) / 2, middle, widget.viewport().nsPerPixel);
}

TEST_F(TimelineView, KeysAndTheWheelMakeRowsLowerAndTaller) {
  const QPoint where(xOf(20 * kMs), yOf(1));
  const Viewport before = widget.viewport();
  wheel(where, 1, Qt::ControlModifier | Qt::ShiftModifier);
  EXPECT_NEAR(widget.scene().rowScale, 1.25, 1e-9);
  wheel(where, -2, Qt::ControlModifier | Qt::ShiftModifier);
  EXPECT_NEAR(widget.scene().rowScale, 0.8, 1e-9);
  EXPECT_EQ(widget.viewport().nsPerPixel, before.nsPerPixel) << "the time stays";
  key(Qt::Key_Up, Qt::ControlModifier);
  EXPECT_NEAR(widget.scene().rowScale, 1, 1e-9);
  key(Qt::Key_Down, Qt::ControlModifier);
  EXPECT_NEAR(widget.scene().rowScale, 0.8, 1e-9);
  key(Qt::Key_H);
  EXPECT_GT(widget.scene().rowScale, 1) << "4 ranks of 84 pixels in about 600";
  key(Qt::Key_H, Qt::ShiftModifier);
  EXPECT_EQ(widget.scene().rowScale, 1);
  const QByteArray saved = widget.saveView();
  key(Qt::Key_C, Qt::ShiftModifier);
  EXPECT_TRUE(std::ranges::all_of(widget.scene().ranks, &RankView::collapsed));
  widget.restoreView(saved);
  EXPECT_TRUE(std::ranges::none_of(widget.scene().ranks, &RankView::collapsed));
  key(Qt::Key_C, Qt::ShiftModifier);
  key(Qt::Key_E, Qt::ShiftModifier);
  EXPECT_TRUE(std::ranges::none_of(widget.scene().ranks, &RankView::collapsed));
}

TEST_F(TimelineView, TheWheelWithControlZoomsAtTheMouse) {
  const QPoint where(xOf(20 * kMs), yOf(1));
  const Viewport before = widget.viewport();
  wheel(where, 2, Qt::ControlModifier);
  EXPECT_NEAR(widget.viewport().nsPerPixel, 0.64 * before.nsPerPixel, 1e-6 * before.nsPerPixel);
  EXPECT_NEAR(widget.viewport().start + (where.x() - labelWidth(widget.scene())) * widget.viewport().nsPerPixel,
              before.start + (where.x() - labelWidth(widget.scene())) * before.nsPerPixel, before.nsPerPixel);
}

TEST_F(TimelineView, KeysWheelAndDraggingPan) {
  key(Qt::Key_W);
  key(Qt::Key_W);
  const double before = widget.viewport().start, width = widget.viewport().end() - before;
  key(Qt::Key_D);
  EXPECT_NEAR(widget.viewport().start, before + 0.1 * width, 1);
  key(Qt::Key_A);
  EXPECT_NEAR(widget.viewport().start, before, 1);
  wheel({500, 200}, -1, Qt::ShiftModifier);
  EXPECT_GT(widget.viewport().start, before);
  wheel({500, 200}, 1, Qt::ShiftModifier);
  EXPECT_NEAR(widget.viewport().start, before, 1);
  drag({500, yOf(1)}, {440, yOf(1)});
  EXPECT_NEAR(widget.viewport().start, before + 60 * widget.viewport().nsPerPixel, 1);
  EXPECT_FALSE(selected());  // a drag is no click
}

TEST_F(TimelineView, TheWheelScrollsRowsThatDoNotFit) {
  widget.resize(1000, 300);
  ASSERT_GT(layOutRows(widget.scene()).height, canvas()->height());
  const QByteArray top = widget.saveView();
  wheel({500, 150}, -1, Qt::NoModifier);
  EXPECT_GT(parseView(widget.saveView())->scroll, 0);
  for (int i = 0; i < 20; ++i) wheel({500, 150}, 1, Qt::NoModifier);
  EXPECT_EQ(parseView(widget.saveView())->scroll, parseView(top)->scroll);
}

TEST_F(TimelineView, DoubleClickAndFZoomToASpan) {
  const SourcedSpan span = at(2, SpanKind::Backward, 2, 3);
  doubleClick(middleOf(span));
  EXPECT_EQ(selected(), span);
  const Span s = spanOf(timeline(), span.span);
  const Viewport close = widget.viewport();
  EXPECT_LT(close.start, static_cast<double>(s.start));
  EXPECT_GT(close.end(), static_cast<double>(s.end));
  EXPECT_LT(close.end() - close.start, 2.0 * static_cast<double>(s.end - s.start));
  key(Qt::Key_Home);
  EXPECT_EQ(widget.viewport(), fitted(0, timeline().end, widget.viewport().width));
  key(Qt::Key_F);
  EXPECT_EQ(widget.viewport(), close);
  key(Qt::Key_F, Qt::ShiftModifier);
  EXPECT_EQ(widget.viewport(), fitted(0, timeline().end, widget.viewport().width));
}

TEST_F(TimelineView, HistoryGoesBackOverJumpsAndRestedViews) {
  const Viewport all = widget.viewport();
  widget.select(at(1, SpanKind::Forward, 1, 2));
  key(Qt::Key_F);
  const Viewport close = widget.viewport();
  key(Qt::Key_D);
  key(Qt::Key_D);
  const Viewport aside = widget.viewport();
  const auto back = [&] { key(Qt::Key_Left, Qt::AltModifier); };
  const auto same = [](const Viewport& a, const Viewport& b) { return std::abs(a.start - b.start) < 1 && std::abs(a.end() - b.end()) < 1; };
  back();  // two steps of panning are one view, left before they rested
  EXPECT_TRUE(same(widget.viewport(), close));
  back();
  EXPECT_TRUE(same(widget.viewport(), all));
  back();
  EXPECT_TRUE(same(widget.viewport(), all));
  for (int i = 0; i < 2; ++i) key(Qt::Key_Right, Qt::AltModifier);
  EXPECT_TRUE(same(widget.viewport(), aside));
}

TEST_F(TimelineView, RanksArePinnedCollapsedAndMovedByKeys) {
  widget.select(at(2, SpanKind::Forward, 2, 0));
  key(Qt::Key_P);
  const auto rank2 = [&] {
    return *std::find_if(widget.scene().ranks.begin(), widget.scene().ranks.end(), [](const RankView& r) { return r.rank == Rank(2); });
  };
  EXPECT_TRUE(rank2().pinned);
  EXPECT_EQ(layOutRows(widget.scene()).rows.front().rank, Rank(2));
  key(Qt::Key_P);
  EXPECT_FALSE(rank2().pinned);
  const int open = layOutRows(widget.scene()).height;
  key(Qt::Key_C);
  EXPECT_TRUE(rank2().collapsed);
  EXPECT_LT(layOutRows(widget.scene()).height, open);
  key(Qt::Key_Up, Qt::AltModifier);
  EXPECT_EQ(spanOrder(widget.scene()), (std::vector{0, 2, 1, 3}));
  key(Qt::Key_Down, Qt::AltModifier);
  key(Qt::Key_Down, Qt::AltModifier);
  EXPECT_EQ(spanOrder(widget.scene()), (std::vector{0, 1, 3, 2}));
}

TEST_F(TimelineView, TheRankUnderTheMouseIsPinnedWithoutASelection) {
  moveTo({500, yOf(3)});
  key(Qt::Key_P);
  EXPECT_TRUE(widget.scene().ranks[3].pinned);
}

TEST_F(TimelineView, DraggingALabelMovesItsRank) {
  drag({20, yOf(3)}, {20, yOf(1) - 4});
  EXPECT_EQ(spanOrder(widget.scene()), (std::vector{0, 3, 1, 2}));
  drag({20, yOf(3)}, {20, yOf(2)});
  EXPECT_EQ(spanOrder(widget.scene()), (std::vector{0, 1, 2, 3}));
}

TEST_F(TimelineView, DigitsChangeWhatColoursMean) {
  key(Qt::Key_2);
  EXPECT_EQ(widget.scene().colourBy, ColourBy::Stage);
  key(Qt::Key_3);
  EXPECT_EQ(widget.scene().colourBy, ColourBy::Microbatch);
  key(Qt::Key_1);
  EXPECT_EQ(widget.scene().colourBy, ColourBy::Kind);
}

TEST_F(TimelineView, AProjectRemembersTheView) {
  widget.select(at(2, SpanKind::Forward, 2, 4));
  key(Qt::Key_P);
  key(Qt::Key_F);
  widget.moveRank(-1);
  widget.setColourBy(ColourBy::Stage);
  widget.setArrangement(Arrangement::Over);
  widget.setDifferences(true);
  const QByteArray saved = widget.saveView();

  TimelineWidget other(document);
  other.resize(widget.size());
  other.show();
  other.restoreView(saved);
  EXPECT_EQ(other.scene().ranks, widget.scene().ranks);
  EXPECT_EQ(other.scene().colourBy, ColourBy::Stage);
  EXPECT_EQ(other.scene().arrangement, Arrangement::Over);
  EXPECT_TRUE(other.scene().differences);
  EXPECT_NEAR(other.viewport().start, widget.viewport().start, 1);
  EXPECT_NEAR(other.viewport().end(), widget.viewport().end(), 1);
}

TEST_F(TimelineView, AViewRestoredBeforeThereIsATimelineWaitsForIt) {
  key(Qt::Key_W);
  key(Qt::Key_W);
  widget.setColourBy(ColourBy::Microbatch);
  const QByteArray saved = widget.saveView();
  Document fresh;
  TimelineWidget other(fresh);
  other.resize(widget.size());
  other.show();
  other.restoreView(saved);
  EXPECT_EQ(parseView(other.saveView()), parseView(saved));
  Loaded loaded;
  loaded.hasDesign = true;
  loaded.design = document.design();
  fresh.adopt(loaded);
  ASSERT_TRUE(QTest::qWaitFor([&] { return other.scene().predicted != nullptr; }, 10'000));
  EXPECT_EQ(other.scene().colourBy, ColourBy::Microbatch);
  EXPECT_NEAR(other.viewport().start, widget.viewport().start, 1);
}

TEST_F(TimelineView, ADragOfTimesKeepsTheView) {
  const Viewport before = widget.viewport();
  document.beginDrag(QStringLiteral("drag"));
  recost([](CostTable& costs) { costs.stages[1].forward = 2 * kMs; });
  EXPECT_EQ(widget.viewport(), before);
  EXPECT_EQ(widget.scene().predicted.get(), &document.prediction()->timeline);
  document.endDrag(true);
  ASSERT_TRUE(QTest::qWaitFor([&] { return widget.viewport() == fitted(0, timeline().end, widget.viewport().width); }, 10'000));
}

TEST_F(TimelineView, EachNewPredictionIsSaidToBePaintedOnce) {
  QSignalSpy painted(&widget, &TimelineWidget::timelinePainted);
  canvas()->repaint();
  painted.clear();
  canvas()->repaint();
  EXPECT_EQ(painted.count(), 0);
  recost([](CostTable& costs) { costs.stages[0].forward = 3 * kMs; });
  canvas()->repaint();
  canvas()->repaint();
  EXPECT_EQ(painted.count(), 1);
}

TEST_F(TimelineView, APlanThatCannotBePredictedLeavesTheLastTimeline) {
  const Timeline* last = widget.scene().predicted.get();
  const QImage before = canvas()->grab().toImage();
  document.edit(QStringLiteral("costs"), [](Design& design) { design.customCosts = std::make_shared<const CostTable>(smallCosts(3)); });
  ASSERT_TRUE(QTest::qWaitFor([&] { return !document.isPredicting(); }, 10'000));
  ASSERT_FALSE(document.problem().isEmpty());
  EXPECT_EQ(widget.scene().predicted.get(), last);
  EXPECT_NE(canvas()->grab().toImage(), before);  // faint, with the sentence over it
}

TEST_F(TimelineView, TheMenuHoldsEveryActionWithItsKey) {
  const QPoint where = middleOf(at(1, SpanKind::Forward, 1, 1));
  QContextMenuEvent event(QContextMenuEvent::Mouse, where, canvas()->mapToGlobal(where));
  QApplication::sendEvent(canvas(), &event);
  auto* menu = widget.findChild<QMenu*>();
  ASSERT_NE(menu, nullptr);
  for (QAction* action : widget.actions()) EXPECT_TRUE(menu->actions().contains(action)) << action->text().toStdString();
  EXPECT_EQ(selected(), at(1, SpanKind::Forward, 1, 1));
  menu->close();
}

TEST_F(TimelineView, HoveringRepaintsAtMostOnceAFrame) {
  int painted = 0;
  struct Counter : QObject {
    int& count;
    explicit Counter(int& number) : count(number) {}
    bool eventFilter(QObject*, QEvent* event) override { return count += event->type() == QEvent::Paint ? 1 : 0, false; }
  } counter(painted);
  canvas()->installEventFilter(&counter);
  QElapsedTimer timer;
  timer.start();
  int moves = 0;
  constexpr int kFrames = 10;
  while (painted < kFrames && timer.elapsed() < 60'000) {
    moveTo({200 + moves++ % 500, yOf(1)});
    QCoreApplication::processEvents();
  }
  canvas()->removeEventFilter(&counter);
  EXPECT_GE(painted, kFrames);
  EXPECT_LE(painted, 2 + timer.elapsed() / 16);
}

TEST_F(TimelineView, TheWidthFollowsTheWindowAndAllStaysFitted) {
  widget.resize(700, 700);
  EXPECT_EQ(widget.viewport().width, canvas()->width() - labelWidth(widget.scene()));
  EXPECT_EQ(widget.viewport(), fitted(0, timeline().end, widget.viewport().width));
  key(Qt::Key_W);
  const double scale = widget.viewport().nsPerPixel;
  widget.resize(900, 700);
  EXPECT_EQ(widget.viewport().nsPerPixel, scale);
}

TEST_F(TimelineView, APictureIsDrawnInAnySizeAndTheme) {
  for (const bool dark : {false, true}) {
    QImage image(widget.pictureSize() * 2, QImage::Format_RGB32);
    image.setDevicePixelRatio(2);
    image.fill(Qt::magenta);
    QPainter painter(&image);
    widget.render(painter, widget.pictureSize(), theme(dark));
    painter.end();
    int left = 0;  // no pixel is forgotten
    for (int y = 0; y < image.height(); y += 3) {
      for (int x = 0; x < image.width(); x += 3) left += image.pixel(x, y) == QColor(Qt::magenta).rgb() ? 1 : 0;
    }
    EXPECT_EQ(left, 0);
  }
}

TEST_F(TimelineView, EveryActionHasANameAndAKeyOfItsOwn) {
  QStringList keys;
  for (const QAction* action : widget.actions()) {
    EXPECT_FALSE(action->text().isEmpty());
    EXPECT_FALSE(action->shortcuts().isEmpty()) << action->text().toStdString();
    for (const QKeySequence& one : action->shortcuts()) {
      EXPECT_FALSE(keys.contains(one.toString())) << one.toString().toStdString();
      keys << one.toString();
    }
  }
  EXPECT_GT(keys.size(), 30);
}

}  // namespace
}  // namespace pw::gui
