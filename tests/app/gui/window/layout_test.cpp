// Where the panels of the window are, in windows of every size.
#include <QtTest/qtestspontaneevent.h>
#include <QAction>
#include <QComboBox>
#include <QDockWidget>
#include <QLabel>
#include <QMessageBox>
#include <QPushButton>
#include <QScrollArea>
#include <QScrollBar>
#include <QTabBar>
#include <QTableView>
#include <QToolButton>
#include <QWheelEvent>
#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "app/gui/common/format.h"
#include "tests/app/gui/stored_run.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

class WindowLayout : public WindowFixture {
 protected:
  [[nodiscard]] QDockWidget* dock(const char* name) const { return window_->findChild<QDockWidget*>(QLatin1String(name)); }
  [[nodiscard]] QRect placeOf(const QWidget* widget) const { return {widget->mapTo(window_.get(), QPoint(0, 0)), widget->size()}; }
  /// The tab bar with this panel's tab, and which it is; null: it has none.
  [[nodiscard]] std::pair<QTabBar*, int> tabOf(const char* name) const {
    for (QTabBar* tabs : window_->findChildren<QTabBar*>()) {
      for (int i = 0; tabs->parent() == window_.get() && i < tabs->count(); ++i) {
        if (tabs->tabText(i) == dock(name)->windowTitle()) return {tabs, i};
      }
    }
    return {nullptr, 0};
  }
  void resize(int width, int height) {
    window_->resize(width, height);
    ASSERT_TRUE(QTest::qWaitFor([&] { return window_->width() == width && window_->height() == height; }, kLongMs));
    QApplication::processEvents();
  }
  /// Shows a panel, which has to have the height that it needs; null: it does not scroll at all.
  [[nodiscard]] const QScrollArea* expectNotScrolledDown(Panel panel) {
    const std::string name(nameOf(panel));
    window_->showPanel(panel);
    EXPECT_TRUE(settle()) << name;
    const auto* scroll = qobject_cast<QScrollArea*>(dock(name.c_str())->widget());
    if (scroll == nullptr) return nullptr;
    EXPECT_TRUE(QTest::qWaitFor([&] { return scroll->verticalScrollBar()->maximum() == 0; }, 2000))
        << name << ": " << scroll->widget()->minimumSizeHint().height() << " or "
        << scroll->widget()->heightForWidth(scroll->viewport()->width()) << " in " << scroll->viewport()->height() << " of a window of "
        << window_->height();
    return scroll;
  }
  /// The timeline and the panels beside and below it, of two tabs the one in front.
  void expectNoneLiesOverAnother() const {
    std::vector<const QWidget*> all{dock("model"), dock("plan"), dock("candidates")};
    std::erase_if(all, [](const QWidget* widget) { return widget->visibleRegion().isEmpty(); });
    all.push_back(&window_->timeline());  // which its parts may cover wholly
    const bool areTabs = window_->tabifiedDockWidgets(dock("model")).contains(dock("plan"));
    ASSERT_EQ(all.size(), areTabs ? 3U : 4U);
    for (std::size_t a = 0; a < all.size(); ++a) {
      ASSERT_TRUE(all[a]->isVisible()) << a;
      EXPECT_TRUE(window_->rect().contains(placeOf(all[a]))) << a << " leaves the window of " << window_->width();
      for (std::size_t b = a + 1; b < all.size(); ++b)
        EXPECT_FALSE(placeOf(all[a]).intersects(placeOf(all[b]))) << a << " and " << b << " at " << window_->width();
    }
  }
};

TEST_F(WindowLayout, PanelsStayInTheWindowBesideEachOtherAtEverySize) {
  open(sample("gpt_small.pt2"));
  for (const QSize size : {QSize(1024, 700), QSize(960, 540), QSize(1400, 900), QSize(2560, 1440)}) {
    resize(size.width(), size.height());
    expectNoneLiesOverAnother();
    dock("plan")->raise();
    QApplication::processEvents();
    expectNoneLiesOverAnother();
    for (QPushButton* button : dock("plan")->findChildren<QPushButton*>()) {
      if (button->text() != QLatin1String("&Run")) continue;
      EXPECT_TRUE(window_->rect().contains(placeOf(button))) << "Run leaves the window of " << size.width();
    }
  }
}

TEST_F(WindowLayout, NoTabBarIsLeftWherePlanMovedOutOfIt) {
  open(sample("gpt_small.pt2"));
  resize(1024, 700);
  ASSERT_NE(tabOf("plan").first, nullptr);
  resize(1400, 900);
  ASSERT_TRUE(window_->tabifiedDockWidgets(dock("plan")).isEmpty());
  for (const QTabBar* tabs : window_->findChildren<QTabBar*>(Qt::FindDirectChildrenOnly))
    EXPECT_EQ(tabs->isVisible(), tabs->count() > 1) << "a line across the panels";
  resize(1024, 700);
  EXPECT_TRUE(tabOf("plan").first->isVisible());
}

TEST_F(WindowLayout, FiguresAndResultsOfASearchAreInSightOfASmallWindow) {
  resize(1024, 700);
  open(sample("gpt_small.pt2"));
  const QLabel* figures = nullptr;
  for (const auto* label : window_->findChildren<QLabel*>()) {
    if (label->accessibleName() == "Figures of the plan") figures = label;
  }
  ASSERT_NE(figures, nullptr);
  EXPECT_TRUE(figures->text().startsWith("Step " + durationText(document().prediction()->step) + " · bubble "));
  EXPECT_FALSE(figures->visibleRegion().isEmpty());
  document().edit("Small", [](Design& d) { d.request.ranks = 2, d.request.microbatches = 2; });
  ASSERT_TRUE(settle());
  window_->candidates().search();
  ASSERT_TRUE(settle());
  const auto* table = window_->candidates().findChild<QTableView*>();
  QApplication::processEvents();
  EXPECT_GE(table->visibleRegion().boundingRect().height(), 5 * table->rowHeight(0)) << "its header and four plans";
  EXPECT_GE(window_->timeline().height(), 250) << "and the timeline";
}

// Of a window that opens small: the panels scroll.
TEST_F(WindowLayout, TheTimelineOfFourRanksHasAboutHalfTheWidthAndHeightOfASmallWindow) {
  for (const QSize size : {QSize(1024, 700), QSize(1280, 720), QSize(1366, 768), QSize(1400, 900), QSize(683, 467)}) {
    window_ = std::make_unique<MainWindow>(false);
    window_->document().setStorePath(folder_.filePath("runs.db"));
    window_->show();
    resize(size.width(), size.height());
    open(sample("gpt_small.pt2"));
    ASSERT_EQ(document().prediction()->ranks.size(), 4U);
    QApplication::processEvents();
    const std::string at = std::to_string(size.width()) + " x " + std::to_string(size.height());
    EXPECT_GE(window_->timeline().width(), size.width() * 48 / 100) << at;
    EXPECT_GE(window_->timeline().height(), size.height() * 45 / 100) << at;
    if (size.height() < 700) continue;
    for (const auto* bar : window_->timeline().findChildren<QScrollBar*>()) {
      if (bar->accessibleName() != QStringLiteral("Scroll ranks")) continue;
      EXPECT_TRUE(bar->isHidden()) << at << ": not all rows are in sight";
    }
  }
}

// 1024 × 700 with a scale factor of 1.5.
TEST_F(WindowLayout, PlanIsATabBesideModelInANarrowWindowAndOnTheRightInAWideOne) {
  open(sample("gpt_small.pt2"));
  for (const QSize size : {QSize(1400, 900), QSize(683, 467), QSize(680, 400), QSize(1400, 900)}) {
    const bool isNarrow = size.width() < 1250;
    resize(size.width(), size.height());
    EXPECT_EQ(window_->tabifiedDockWidgets(dock("model")).contains(dock("plan")), isNarrow);
    dock("plan")->raise();
    QApplication::processEvents();
    const auto buttons = dock("plan")->findChildren<QPushButton*>();
    const auto run = std::ranges::find_if(buttons, [](const QPushButton* button) { return button->text() == QLatin1String("&Run"); });
    ASSERT_NE(run, buttons.end());
    EXPECT_EQ((*run)->visibleRegion().boundingRect(), (*run)->rect()) << "Run is cut in a window of " << size.width();
    EXPECT_TRUE(window_->rect().contains(placeOf(&window_->timeline())));
    EXPECT_GE(window_->timeline().width(), window_->timeline().minimumSizeHint().width());
    EXPECT_FALSE(placeOf(dock("plan")).intersects(placeOf(&window_->timeline())));
  }
}

TEST_F(WindowLayout, OfATraceASmallWindowShowsThePlanAndNotThatThereIsNoModel) {
  resize(1024, 700);
  const auto isInFront = [this](const char* name) {
    return QTest::qWaitFor([&] { return !dock(name)->visibleRegion().isEmpty(); }, kLongMs);
  };
  open(QStringLiteral(PW_SOURCE_DIR "/tests/data/primus/pp8"));
  EXPECT_TRUE(isInFront("plan"));
  open(sample("gpt_small.pt2"));
  EXPECT_TRUE(isInFront("model"));
}

TEST_F(WindowLayout, WhatIsOpenedForAPlanLeavesThePlanInFront) {
  resize(1024, 700);
  open(sample("gpt_small.pt2"));
  const auto plan = document().plan();
  dock("plan")->raise();
  open(QStringLiteral(PW_SOURCE_DIR "/resources/clusters/h100-nvlink.json"));
  EXPECT_TRUE(document().design().cluster.ends_with("h100-nvlink.json")) << document().design().cluster;
  EXPECT_FALSE(dock("plan")->visibleRegion().isEmpty());
  const QString store = folder_.filePath(QStringLiteral("stored.db"));
  static_cast<void>(storeRun(store.toStdString(), plan, {1}));
  open(store);
  ASSERT_TRUE(QTest::qWaitFor([this] { return window_->runs().runs().size() == 1; }, kLongMs));
  EXPECT_FALSE(dock("plan")->visibleRegion().isEmpty());
}

TEST_F(WindowLayout, APlanThatTheUserMovedStaysThere) {
  open(sample("gpt_small.pt2"));
  resize(1400, 900);
  window_->addDockWidget(Qt::BottomDockWidgetArea, dock("plan"));
  resize(683, 467);
  EXPECT_EQ(window_->dockWidgetArea(dock("plan")), Qt::BottomDockWidgetArea);
}

TEST_F(WindowLayout, TheTabKeyLeavesOutPanelsBehindOthers) {
  open(sample("gpt_small.pt2"));
  resize(1400, 900);
  window_->activateWindow();
  window_->candidates().setFocus();
  std::set<const QWidget*> seen;
  for (int i = 0; i < 200; ++i) {
    QTest::keyClick(QApplication::focusWidget() != nullptr ? QApplication::focusWidget() : window_.get(), Qt::Key_Tab);
    const QWidget* at = window_->focusWidget();
    if (at == nullptr) continue;
    seen.insert(at);
    EXPECT_TRUE(window_->rect().intersects(placeOf(at))) << at->metaObject()->className() << ' ' << at->accessibleName().toStdString();
    EXPECT_FALSE(at->size().isEmpty()) << at->metaObject()->className();
    for (const char* behind : {"runs", "analysis", "explain", "schedule", "statistics", "notes"})
      EXPECT_FALSE(dock(behind)->isAncestorOf(at))
          << behind << " is behind Candidates, and " << at->metaObject()->className() << " has the focus";
  }
  EXPECT_GT(seen.size(), 20U) << "model, plan, timeline and candidates";
}

TEST_F(WindowLayout, ALongNoteTakesFewLinesAndADialogHasAll) {
  open(sample("gpt_small.pt2"));
  resize(1024, 700);
  const QString word = QStringLiteral("microbatch "), sentence = word.repeated(120).trimmed() + QStringLiteral(" ends.");
  window_->showNote(sentence);
  auto* const bar = window_->findChild<QFrame*>(QStringLiteral("message"));
  QLabel* text = nullptr;
  for (QLabel* label : bar->findChildren<QLabel*>()) {
    if (label->accessibleName() == QStringLiteral("Message")) text = label;
  }
  const auto buttons = bar->findChildren<QPushButton*>();
  auto* const more =
      *std::ranges::find_if(buttons, [](const QPushButton* button) { return button->text() == QStringLiteral("Full te&xt…"); });
  const int line = text->fontMetrics().lineSpacing();
  EXPECT_TRUE(QTest::qWaitFor([&] { return bar->height() <= 6 * line; }, 2000)) << bar->height() << ", lines of " << line;
  EXPECT_LE(text->heightForWidth(text->width()), 3 * line + 2);
  EXPECT_TRUE(more->isVisible());
  EXPECT_GE(text->height(), text->heightForWidth(text->width())) << "none is cut";
  EXPECT_TRUE(text->text().endsWith(QChar(0x2026))) << text->text().toStdString();
  EXPECT_EQ(window_->message(), sentence);
  QTest::mouseClick(more, Qt::LeftButton);
  const auto* all = window_->findChild<QMessageBox*>();
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(all->text(), sentence);
  delete all;
  window_->showNote(QStringLiteral("Short"));
  EXPECT_FALSE(more->isVisible());
  EXPECT_EQ(text->text(), QStringLiteral("Short."));
}

TEST_F(WindowLayout, EveryControlOfASearchIsInSightInASmallWindow) {
  open(sample("gpt_small.pt2"));
  resize(1024, 700);
  const QRect panel = placeOf(dock("candidates"));
  int seen = 0;
  for (const QPushButton* button : window_->candidates().findChildren<QPushButton*>()) {
    if (button->text() != QLatin1String("Search") && button->text() != QLatin1String("&Load plan")) continue;
    EXPECT_TRUE(panel.contains(placeOf(button))) << "at " << placeOf(button).left();
    EXPECT_EQ(button->visibleRegion().boundingRect(), button->rect()) << button->text().toStdString() << " is cut";
    ++seen;
  }
  EXPECT_EQ(seen, 2);
}

TEST_F(WindowLayout, PanelsThatScrollThemselvesAreNotScrolledAsAWhole) {
  open(sample("gpt_small.pt2"));
  auto pinned = std::make_shared<Measured>();
  pinned->title = QStringLiteral("a plan beside it");
  pinned->timeline = document().prediction()->timeline;
  document().setMeasured(pinned);
  resize(1440, 900);
  window_->candidates().search();
  for (const Panel panel :
       {Panel::Candidates, Panel::Runs, Panel::Analysis, Panel::Explain, Panel::Schedule, Panel::Statistics, Panel::Notes}) {
    const QScrollArea* const scroll = expectNotScrolledDown(panel);
    ASSERT_NE(scroll, nullptr);
    EXPECT_EQ(scroll->horizontalScrollBar()->maximum(), 0) << nameOf(panel);
  }
}

TEST_F(WindowLayout, PanelsOfALowWindowHaveOneScrollBarOfTheirOwn) {
  for (const QSize size : {QSize(1024, 600), QSize(1024, 700)}) {
    window_ = std::make_unique<MainWindow>(false);
    window_->document().setStorePath(folder_.filePath("runs.db"));
    window_->show();
    resize(size.width(), size.height());
    open(sample("gpt_small.pt2"));
    for (const Panel panel : {Panel::Runs, Panel::Analysis, Panel::Explain, Panel::Schedule, Panel::Statistics, Panel::Notes}) {
      EXPECT_NE(expectNotScrolledDown(panel), nullptr);
    }
  }
}

TEST_F(WindowLayout, PanelsOfResultsOpenWithRoomForThemOnce) {
  window_ = std::make_unique<MainWindow>(false);
  window_->show();
  resize(1024, 700);
  open(sample("gpt_small.pt2"));
  const auto heightOf = [this](const char* name) {  // of what lists the results
    int height = 0;
    for (const auto* area : dock(name)->widget()->findChildren<QAbstractScrollArea*>()) {
      if (area->isVisible()) height = std::max(height, area->viewport()->height());
    }
    return height;
  };
  const int rows = 6 * (window_->fontMetrics().lineSpacing() + 4);
  for (const auto& [panel, name] : {std::pair(Panel::Analysis, "analysis"), std::pair(Panel::Explain, "explain"),
                                    std::pair(Panel::Schedule, "schedule"), std::pair(Panel::Statistics, "statistics")}) {
    window_->showPanel(panel);
    ASSERT_TRUE(settle());
    EXPECT_TRUE(QTest::qWaitFor([&] { return heightOf(name) >= rows; }, kLongMs)) << name << ": " << heightOf(name) << " of " << rows;
  }
  EXPECT_LE(dock("statistics")->height(), 700 * 9 / 20) << "the timeline keeps the larger part";
  window_->resizeDocks({dock("statistics")}, {170}, Qt::Vertical);
  dock("notes")->raise();
  QApplication::processEvents();
  const int before = dock("notes")->height();
  ASSERT_LT(before, 200);
  window_->showPanel(Panel::Analysis);
  for (int i = 0; i < 5; ++i) QApplication::processEvents();
  EXPECT_EQ(dock("analysis")->height(), before) << "as the user left it";
}

TEST_F(WindowLayout, TheVerdictOnARunCanBeReadInALowWindow) {
  window_ = std::make_unique<MainWindow>(false);
  const QString store = folder_.filePath("runs.db");
  document().setStorePath(store);
  window_->show();
  resize(1024, 600);
  open(sample("gpt_small.pt2"));
  window_->showPanel(Panel::Runs);
  window_->runs().chooseRun(storeRun(store.toStdString(), document().plan(), {1, 2}));
  ASSERT_TRUE(QTest::qWaitFor([this] { return window_->runs().summary().startsWith("Measured"); }, kLongMs));
  ASSERT_TRUE(settle());
  const auto labels = window_->runs().findChildren<QLabel*>();
  const auto sentence = std::ranges::find(labels, QStringLiteral("What the comparison says"), &QWidget::accessibleName);
  ASSERT_NE(sentence, labels.end());
  EXPECT_TRUE(QTest::qWaitFor([&] { return (*sentence)->height() >= (*sentence)->heightForWidth((*sentence)->width()); }, 2000))
      << (*sentence)->height() << " of " << (*sentence)->heightForWidth((*sentence)->width());
}

TEST_F(WindowLayout, TheWheelScrollsThePlanPastItsFields) {
  open(sample("gpt_small.pt2"));
  resize(1024, 600);
  dock("plan")->raise();
  const auto boxes = dock("plan")->findChildren<QComboBox*>();
  const auto box = std::ranges::find_if(boxes, [](const QComboBox* one) { return one->findText(QStringLiteral("AdamW")) >= 0; });
  ASSERT_NE(box, boxes.end());
  ASSERT_TRUE(QTest::qWaitFor([&] { return (*box)->isVisible(); }, kLongMs));
  auto* scroll = dock("plan")->findChild<QScrollArea*>();
  ASSERT_GT(scroll->verticalScrollBar()->maximum(), 0);
  const auto turn = [&] {
    const QPoint at = (*box)->rect().center();
    QWheelEvent event(at, (*box)->mapToGlobal(at), {}, {0, -120}, {}, {}, Qt::NoScrollPhase, false);
    QSpontaneKeyEvent::setSpontaneous(&event);  // as of a mouse: it goes on to what is around the box, and may give it the focus
    qApp->notify(*box, &event);
  };
  const int before = (*box)->currentIndex();
  turn();
  EXPECT_EQ((*box)->currentIndex(), before);
  EXPECT_GT(scroll->verticalScrollBar()->value(), 0);
  EXPECT_FALSE((*box)->hasFocus());
  (*box)->setFocus();
  ASSERT_TRUE(QTest::qWaitFor([&] { return (*box)->hasFocus(); }, kLongMs));
  turn();
  EXPECT_EQ((*box)->currentIndex(), before + 1) << "it was chosen before";
}

TEST_F(WindowLayout, ResetBringsBackWhatWasClosedMovedAndFloated) {
  open(sample("gpt_small.pt2"));
  const QRect before = placeOf(dock("plan"));
  dock("model")->close();
  dock("plan")->setFloating(true);
  window_->addDockWidget(Qt::LeftDockWidgetArea, dock("candidates"));
  const auto& commands = window_->commands();
  const auto reset = std::ranges::find_if(commands, [](const QAction* action) { return action->text() == QLatin1String("Reset la&yout"); });
  ASSERT_NE(reset, commands.end());
  (*reset)->trigger();
  QApplication::processEvents();
  EXPECT_TRUE(dock("model")->isVisible());
  EXPECT_FALSE(dock("plan")->isFloating());
  EXPECT_EQ(window_->dockWidgetArea(dock("candidates")), Qt::BottomDockWidgetArea);
  EXPECT_NEAR(placeOf(dock("plan")).width(), before.width(), 4);
  expectNoneLiesOverAnother();
}

// Of a new window, whose panels are arranged twice: nothing invisible lies over the tabs.
TEST_F(WindowLayout, EachTabBelowTheTimelineIsInFrontAndShowsItsPanel) {
  open(sample("gpt_small.pt2"));
  const auto clickEach = [this] {
    for (const char* name : {"runs", "analysis", "explain", "schedule", "statistics", "notes", "candidates"}) {
      const auto [tabs, index] = tabOf(name);
      ASSERT_NE(tabs, nullptr) << name;
      const QPoint middle = tabs->mapTo(window_.get(), tabs->tabRect(index).center());
      QWidget* under = window_->childAt(middle);
      ASSERT_EQ(under, tabs) << name;
      QTest::mouseClick(under, Qt::LeftButton, {}, under->mapFrom(window_.get(), middle));
      EXPECT_TRUE(QTest::qWaitFor([&] { return !dock(name)->visibleRegion().isEmpty(); }, kLongMs)) << name;
    }
  };
  clickEach();
  const auto& commands = window_->commands();
  (*std::ranges::find_if(commands, [](const QAction* action) { return action->text() == QLatin1String("Reset la&yout"); }))->trigger();
  QApplication::processEvents();
  clickEach();
}

// However it came there or went: by a tab, as a window of its own and back, closed and opened, with the layout reset.
TEST_F(WindowLayout, OnlyThePanelInFrontOfItsTabsIsVisible) {
  const std::array bottom{"candidates", "runs", "analysis", "explain", "schedule", "statistics", "notes"};
  const auto expectVisible = [&](const char* front, const char* alone = "") {
    QApplication::processEvents();
    for (const char* name : bottom) {
      const bool isSeen = name == std::string_view(front) || name == std::string_view(alone);
      EXPECT_EQ(static_cast<QScrollArea*>(dock(name)->widget())->widget()->isVisible(), isSeen) << name << ", in front: " << front;
    }
  };
  open(sample("gpt_small.pt2"));
  expectVisible("candidates");
  for (const char* name : bottom) {
    dock(name)->raise();
    expectVisible(name);
  }
  dock("analysis")->setFloating(true);
  expectVisible("notes", "analysis");
  const auto front = [&] {
    QApplication::processEvents();
    const auto found = std::ranges::find_if(bottom, [this](const char* name) { return !dock(name)->visibleRegion().isEmpty(); });
    return found == bottom.end() ? "none" : *found;
  };
  dock("analysis")->setFloating(false);
  expectVisible(front());
  dock("analysis")->raise();
  dock("analysis")->close();
  expectVisible(front());
  window_->showPanel(Panel::Analysis);
  expectVisible("analysis");
  const auto& commands = window_->commands();
  (*std::ranges::find_if(commands, [](const QAction* action) { return action->text() == QLatin1String("Reset la&yout"); }))->trigger();
  expectVisible("candidates");
  resize(1024, 700);
  expectVisible("candidates");
  dock("statistics")->raise();
  const QByteArray state = window_->saveState();
  dock("notes")->raise();
  window_->restoreState(state);
  expectVisible("statistics");
}

// From the menu; the next window shows what the last one did.
TEST_F(WindowLayout, KeepsWhetherTheModelIsAGraph) {
  const auto graph = [](MainWindow& window) {
    const auto& commands = window.commands();
    return *std::ranges::find_if(commands, [](const QAction* action) { return action->text() == QLatin1String("Model as a &graph"); });
  };
  for (const bool asGraph : {true, false}) {
    {
      MainWindow window;
      window.show();
      graph(window)->setChecked(asGraph);
      EXPECT_EQ(window.findChild<QToolButton*>(QStringLiteral("graph"))->isChecked(), asGraph);
      window.close();
    }
    MainWindow next;
    EXPECT_EQ(graph(next)->isChecked(), asGraph);
  }
}

}  // namespace
}  // namespace pw::gui
