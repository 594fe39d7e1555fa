// The Analysis panel: bars of what the makespan depends on, and the tree of what memory is used for, of models and of schedules.
#include <gtest/gtest.h>

#include <QApplication>
#include <QHelpEvent>
#include <QImage>
#include <QLabel>
#include <QTabWidget>
#include <QTest>
#include <QTextDocumentFragment>
#include <QToolTip>
#include <QTreeWidget>
#include <set>

#include "app/gui/analysis/bubble_bars.h"
#include "app/gui/analysis/bubble_table.h"
#include "app/gui/analysis/memory_view.h"
#include "app/gui/analysis/panel.h"
#include "app/gui/analysis/tornado.h"
#include "app/gui/common/format.h"
#include "app/gui/document/document.h"
#include "app/gui/document/job_design.h"
#include "app/gui/document/loading.h"
#include "app/gui/timeline/widget.h"
#include "simulator/report/metrics.h"
#include "tests/app/gui/constants.h"
#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

/// The panel over a document.
class AnalysisTest : public testing::Test {
 protected:
  void SetUp() override {
    qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
    panel = std::make_unique<AnalysisPanel>(document);
    panel->resize(700, 400);
    panel->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(panel.get()));
  }
  void settle() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document.isPredicting() && panel->isIdle(); }, kLongMs));
  }
  void openModel() {
    document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"}, {}));
    document.edit(QStringLiteral("optimizer"), [](Design& design) {
      design.request.optimizer.kind = OptimizerSpec::Kind::AdamW;
      design.request.replicas = 2;
      design.request.batch = 0;
    });
    settle();
    ASSERT_NE(document.prediction(), nullptr) << document.problem().toStdString();
  }
  void openSchedule() {
    const Schedule compute = generate("1f1b", {3, 3, 6});
    Loaded loaded;
    loaded.hasDesign = true;
    loaded.design.customRows = std::make_shared<const Schedule>(lower(compute));
    loaded.design.customCosts = std::make_shared<const CostTable>(smallCosts(3));
    document.adopt(loaded);
    settle();
  }
  Tornado& tornado() { return *panel->findChild<Tornado*>(); }
  MemoryView& memory() { return *panel->findChild<MemoryView*>(); }

  Document document;
  std::unique_ptr<AnalysisPanel> panel;
};

TEST_F(AnalysisTest, SaysWhenItsFiguresAreThoseOfThePreviousPlan) {
  openModel();
  auto* const pages = panel->findChild<QTabWidget*>();
  const auto notes = [&] {
    QStringList shown;
    for (const QLabel* label : panel->findChildren<QLabel*>()) {
      if (label->isVisible() && label->text().contains(QStringLiteral("previous plan"))) shown << label->text();
    }
    return shown;
  };
  EXPECT_TRUE(notes().isEmpty());
  EXPECT_TRUE(pages->isEnabled());
  document.edit(QStringLiteral("schedule"), [](Design& design) {
    design.request.schedule = "dualpipe";
    design.request.ranks = 3;
  });
  settle();
  ASSERT_FALSE(document.problem().isEmpty());
  EXPECT_EQ(notes().size(), 1);
  EXPECT_FALSE(pages->isEnabled());
  document.undo();
  settle();
  EXPECT_TRUE(notes().isEmpty());
  EXPECT_TRUE(pages->isEnabled());
}

TEST_F(AnalysisTest, SaysOfAJobWhoseActionsHaveTheirOwnTimesThatItCountsAverages) {
  const auto sentence = [this] {
    for (const auto* label : panel->findChildren<QLabel*>()) {
      if (label->text().startsWith(QLatin1String("Makespan"))) return label->text();
    }
    return QString();
  };
  openSchedule();
  EXPECT_FALSE(sentence().contains("average")) << sentence().toStdString();
  document.adopt(*planOfJob(readJob({.paths = {PW_SOURCE_DIR "/tests/data/primus/pp8"}}, {})));
  settle();
  EXPECT_NE(tornado().report().makespan, document.prediction()->makespan);
  EXPECT_TRUE(sentence().contains(durationText(tornado().report().makespan) + " with each stage's average times"))
      << sentence().toStdString();
}

/// The rows as they are drawn, from the top.
QStringList rowsOf(QTreeWidget& tree) {
  QStringList rows;
  const int height = tree.visualItemRect(tree.topLevelItem(0)).height();
  for (int y = height / 2; y < tree.viewport()->height(); y += height) {
    const QTreeWidgetItem* item = tree.itemAt(5, y);
    if (item == nullptr) break;
    rows << item->text(0) + QLatin1Char('|') + item->text(1) + QLatin1Char('|') + item->text(3);
  }
  return rows;
}

TEST_F(AnalysisTest, DrawsTheMemoryOfThePlanThatIsShown) {
  openModel();
  panel->showMemory(Rank(0));
  QCoreApplication::processEvents();
  ASSERT_TRUE(memory().topLevelItem(0)->isExpanded());
  for (const int ranks : {3, 2, 6, 4}) {
    document.edit(QStringLiteral("ranks"), [&](Design& design) { design.request.ranks = ranks; });
    settle();
    QTest::qWait(1);  // the timers of layouts
    EXPECT_TRUE(memory().topLevelItem(0)->isExpanded()) << "as it was before the change";
    QStringList wanted;
    for (int i = 0; i < memory().topLevelItemCount(); ++i) {
      const QTreeWidgetItem* item = memory().topLevelItem(i);
      wanted << item->text(0) + QLatin1Char('|') + item->text(1) + QLatin1Char('|') + item->text(3);
      for (int k = 0; item->isExpanded() && k < item->childCount(); ++k)
        wanted << item->child(k)->text(0) + QLatin1Char('|') + item->child(k)->text(1) + QLatin1Char('|') + item->child(k)->text(3);
    }
    EXPECT_EQ(rowsOf(memory()), wanted.mid(0, rowsOf(memory()).size())) << ranks;
    EXPECT_GE(rowsOf(memory()).size(), std::min<qsizetype>(ranks + 1, 6)) << ranks;
  }
}

TEST_F(AnalysisTest, SaysWhatTheMakespanDependsOn) {
  openSchedule();
  const SensitivityReport& report = tornado().report();
  ASSERT_FALSE(report.all.empty());
  EXPECT_EQ(report.makespan, document.prediction()->makespan);
  // Another way to the same figures: the costs changed by hand and simulated.
  for (const Sensitivity& s : report.all) {
    const auto* stage = std::get_if<Stage>(&s.of);
    if (stage == nullptr) continue;
    CostTable costs = document.prediction()->costs;
    StageCost& cost = costs.stages[stage->index()];
    for (Ns* time : {&cost.forward, &cost.backward, &cost.backwardInput, &cost.backwardWeight})
      *time = Ns(std::llround(static_cast<double>(*time) * 1.1));
    EXPECT_NEAR(static_cast<double>(s.slower), static_cast<double>(Predictor().predict(document.prediction()->rows, costs)->makespan), 20);
  }
  EXPECT_TRUE(tornado().accessibleDescription().contains(QStringLiteral("stage 0: ")));
  EXPECT_GE(tornado().sizeHint().height(), static_cast<int>(report.all.size()) * 10);
  // A design that changes brings new figures.
  const Ns before = report.makespan;
  document.edit(QStringLiteral("times"), [&](Design& design) {
    CostTable costs = *design.customCosts;
    costs.stages[1].forward *= 3;
    design.customCosts = std::make_shared<const CostTable>(costs);
  });
  settle();
  EXPECT_GT(tornado().report().makespan, before);
  EXPECT_EQ(std::get<Stage>(tornado().report().all.front().of), Stage(1)) << "the slowest stage matters most";
}

TEST_F(AnalysisTest, ShowsWhatMemoryIsUsedForAndWhatWouldFreeSome) {
  openModel();
  const Prediction& prediction = *document.prediction();
  const auto ranks = static_cast<int>(prediction.ranks.size());
  ASSERT_EQ(memory().topLevelItemCount(), ranks + 1) << "the ranks, and what would free memory";
  for (int r = 0; r < ranks; ++r) {
    const QTreeWidgetItem& item = *memory().topLevelItem(r);
    EXPECT_TRUE(item.text(0).startsWith(QStringLiteral("rank %1, during ").arg(r)));
    EXPECT_EQ(item.text(1), sizeText(prediction.ranks[static_cast<std::size_t>(r)].peakBytes));
    EXPECT_GT(item.childCount(), 2);
  }
  EXPECT_GT(memory().topLevelItem(ranks)->childCount(), 0);
  bool modules = false, sharding = false;
  for (int i = 0; i < memory().topLevelItem(0)->childCount(); ++i) {
    const QTreeWidgetItem& part = *memory().topLevelItem(0)->child(i);
    for (int m = 0; m < part.childCount(); ++m) modules = modules || part.child(m)->text(0).startsWith(QStringLiteral("blocks."));
  }
  for (int i = 0; i < memory().topLevelItem(ranks)->childCount(); ++i)
    sharding = sharding || memory().topLevelItem(ranks)->child(i)->text(0).contains(QStringLiteral("ZeRO-1"));
  EXPECT_TRUE(modules);
  EXPECT_TRUE(sharding) << "AdamW on two replicas";
}

TEST_F(AnalysisTest, OpensTheRankThatWasClicked) {
  openModel();
  panel->showMemory(Rank(1));
  EXPECT_EQ(panel->findChild<QTabWidget*>()->currentWidget(), &memory());
  EXPECT_FALSE(memory().topLevelItem(0)->isExpanded());
  EXPECT_TRUE(memory().topLevelItem(1)->isExpanded());
  EXPECT_EQ(memory().currentItem(), memory().topLevelItem(1));
}

TEST_F(AnalysisTest, ShowsTheBubbleByCauseAndTheLongestWaitOfAPart) {
  openSchedule();
  const Prediction& prediction = *document.prediction();
  panel->findChild<QTabWidget*>()->setCurrentIndex(1);
  BubbleBars& bars = *panel->findChild<BubbleBars*>();
  ASSERT_TRUE(QTest::qWaitFor([&] { return bars.isVisible(); }, kLongMs));
  ASSERT_EQ(bars.ranks().size(), prediction.ranks.size());
  EXPECT_TRUE(bars.accessibleDescription().contains(QStringLiteral("rank 2: start-up "))) << bars.accessibleDescription().toStdString();
  QSignalSpy chosen(panel.get(), &AnalysisPanel::bubbleChosen);
  int parts = 0;
  for (std::size_t r = 0; r < bars.ranks().size(); ++r) {
    Ns sum = 0;
    for (const BubbleCause cause : valuesOf<BubbleCause>()) {
      sum += bars.ranks()[r].by.of(cause);
      const QRectF part = bars.partOf(Rank(r), cause);
      if (part.width() < 2) continue;
      QTest::mouseClick(&bars, Qt::LeftButton, {}, part.center().toPoint());
      ASSERT_EQ(chosen.size(), ++parts);
      EXPECT_EQ(chosen.back().front().value<Rank>(), Rank(r));
      const auto bubble = bubbleUnder(prediction.timeline, Source::Predicted, Rank(r), chosen.back().back().value<Ns>());
      EXPECT_TRUE(bubble) << "rank " << r << ", " << nameOf(cause);
    }
    EXPECT_EQ(sum, prediction.ranks[r].idle);
  }
  EXPECT_GE(parts, 4);
  bars.setFocus();
  QTest::keyClick(&bars, Qt::Key_Return);
  EXPECT_EQ(chosen.size(), parts + 1) << "the longest cause of the rank that the keyboard is on";
}

TEST_F(AnalysisTest, ListsTheBubbleByCauseAndAFigureLeadsToItsWait) {
  openSchedule();
  panel->findChild<QTabWidget*>()->setCurrentIndex(1);
  BubbleTable& table = *panel->findChild<BubbleTable*>();
  const Prediction& prediction = *document.prediction();
  ASSERT_EQ(table.topLevelItemCount(), 3 + 1) << "three ranks, and all of them";
  const int all = 1 + static_cast<int>(countOf<BubbleCause>());
  for (std::size_t r = 0; r < 3; ++r) {
    const QString text = table.topLevelItem(static_cast<int>(r))->text(all);
    EXPECT_TRUE(text.startsWith(durationText(prediction.ranks[r].idle))) << text.toStdString();
  }
  QSignalSpy chosen(panel.get(), &AnalysisPanel::bubbleChosen);
  const QModelIndex cell = table.model()->index(1, 1);  // rank 1 waits for its first forward
  table.resizeColumnToContents(1);
  QTest::mouseClick(table.viewport(), Qt::LeftButton, {}, table.visualRect(cell).center());
  ASSERT_EQ(chosen.size(), 1);
  EXPECT_EQ(chosen.front().front().value<Rank>(), Rank(1));
  EXPECT_TRUE(bubbleUnder(prediction.timeline, Source::Predicted, Rank(1), chosen.front().back().value<Ns>()));
}

TEST_F(AnalysisTest, ShowsWhatTheMemoryLimitAndASlowRankAreTheCauseOf) {
  openModel();
  const BubbleBars& bars = *panel->findChild<BubbleBars*>();
  const auto all = [&](BubbleCause cause) {
    Ns sum = 0;
    for (const CausedIdle& rank : bars.ranks()) sum += rank.by.of(cause);
    return sum;
  };
  EXPECT_EQ(all(BubbleCause::MemoryLimit) + all(BubbleCause::Straggler), 0) << "no limit, and ranks of one speed";
  ASSERT_GT(bars.ranks()[0].by.workReady, 0) << "1F1B holds back the forwards of the first rank";
  // Exactly what the first rank needs: another microbatch would not fit there.
  document.edit(QStringLiteral("limit"), [&](Design& design) { design.request.memoryLimit = document.prediction()->ranks[0].peakBytes; });
  settle();
  EXPECT_GT(bars.ranks()[0].by.of(BubbleCause::MemoryLimit), 0);
  EXPECT_LE(bars.ranks()[0].by.of(BubbleCause::MemoryLimit), bars.ranks()[0].by.workReady);
  for (std::size_t r = 0; r < bars.ranks().size(); ++r) EXPECT_EQ(bars.ranks()[r].by.sum(), document.prediction()->ranks[r].idle) << r;
  document.edit(QStringLiteral("slow"), [](Design& design) {
    design.request.memoryLimit = 0;
    design.cluster = PW_SOURCE_DIR "/resources/examples/mixed_rack.json";
  });
  settle();
  EXPECT_GT(all(BubbleCause::Straggler), 0) << document.problem().toStdString();
  for (std::size_t r = 0; r < bars.ranks().size(); ++r) EXPECT_EQ(bars.ranks()[r].by.sum(), document.prediction()->ranks[r].idle) << r;
}

TEST_F(AnalysisTest, CausesThatCanBeMendedAreToldApartWithoutColours) {
  openModel();
  document.edit(QStringLiteral("limit"), [&](Design& design) { design.request.memoryLimit = document.prediction()->ranks[0].peakBytes; });
  settle();
  BubbleBars& bars = *panel->findChild<BubbleBars*>();
  const auto coloursOf = [&](BubbleCause cause) {
    const QImage picture = bars.grab(bars.partOf(Rank(0), cause).toAlignedRect().adjusted(1, 1, -1, -4)).toImage();
    std::set<QRgb> colours;
    for (int y = 0; y < picture.height(); ++y) {
      for (int x = 0; x < picture.width(); ++x) colours.insert(picture.pixel(x, y));
    }
    return colours.size();
  };
  EXPECT_GT(coloursOf(BubbleCause::MemoryLimit), 1U) << "hatched";
  EXPECT_EQ(coloursOf(BubbleCause::Drain), 1U);
  EXPECT_NE(patternOf(BubbleCause::MemoryLimit), patternOf(BubbleCause::Straggler));
}

/// What a tip at a place says when it is read as the HTML that it is.
QString tipAt(QWidget& widget, const QPoint& at) {
  QHelpEvent event(QEvent::ToolTip, at, widget.mapToGlobal(at));
  QApplication::sendEvent(&widget, &event);
  return QTextDocumentFragment::fromHtml(QToolTip::text()).toPlainText();
}

TEST(AnalysisTips, SayAShareThatIsLessThanTheLeastOne) {
  CausedIdle rank;
  rank.by.of(BubbleCause::Drain) = 1000;
  BubbleBars bars;
  bars.resize(700, 200);
  bars.setVisible(true);
  bars.show(std::vector{rank}, 10'000'000);
  const QString idle = tipAt(bars, bars.partOf(Rank(0), BubbleCause::Drain).center().toPoint());
  EXPECT_TRUE(idle.contains("(< 0.1 % of the makespan)")) << idle.toStdString();
  Tornado sensitivity;
  sensitivity.resize(700, 200);
  sensitivity.setVisible(true);
  sensitivity.show({10'000'000, 0.1, {{Stage(0), 1000, 9'999'900, 10'000'100}}});
  const QString path = tipAt(sensitivity, QPoint(350, 5));
  EXPECT_TRUE(path.contains("< 0.1 % of the critical path")) << path.toStdString();
}

TEST(AnalysisTornado, LeavesRoomBesideItsFiguresForAScrollBar) {
  Tornado sensitivity;
  sensitivity.resize(700, 60);
  sensitivity.show({10'000'000, 0.1, {{Stage(0), 10'000'000, 9'000'000, 11'000'000}}});
  const QImage picture = sensitivity.grab().toImage();
  const auto isEmpty = [&](int x) {
    for (int y = 0; y < picture.height(); ++y) {
      if (picture.pixel(x, y) != picture.pixel(699, 59)) return false;
    }
    return true;
  };
  for (int x = 695; x < 700; ++x) EXPECT_TRUE(isEmpty(x)) << x;
  bool hasText = false;
  for (int x = 650; x < 695; ++x) hasText = hasText || !isEmpty(x);
  EXPECT_TRUE(hasText) << "100.0 % of the critical path";
}

TEST_F(AnalysisTest, ComputesNothingWhileItIsHidden) {
  panel->hide();
  openSchedule();
  EXPECT_TRUE(tornado().report().all.empty());
  panel->show();
  settle();
  EXPECT_FALSE(tornado().report().all.empty());
}

TEST_F(TimelineFixture, AClickOnTheMemoryCurveNamesItsRank) {
  QSignalSpy clicked(&widget, &TimelineWidget::memoryClicked);
  QTest::mouseClick(canvas(), Qt::LeftButton, {}, {xOf(timeline().end / 2), yOf(2, Row::Kind::Memory)});
  ASSERT_EQ(clicked.size(), 1);
  EXPECT_EQ(clicked.front().front().value<Rank>(), Rank(2));
  QTest::mouseClick(canvas(), Qt::LeftButton, {}, middleOf(at(1, SpanKind::Forward, 1, 3)));
  EXPECT_EQ(clicked.size(), 1) << "a block is not the curve";
}

}  // namespace
}  // namespace pw::gui
