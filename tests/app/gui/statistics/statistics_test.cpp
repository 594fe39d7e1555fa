#include <gtest/gtest.h>

#include <QComboBox>
#include <QLabel>
#include <QTemporaryDir>
#include <QTimer>
#include <QTreeWidget>
#include <functional>
#include <numeric>
#include <utility>

#include "app/gui/document/loading.h"
#include "app/gui/runs/run_loading.h"
#include "app/gui/statistics/panel.h"
#include "app/gui/statistics/summary.h"
#include "tests/app/gui/stored_run.h"
#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

std::vector<Block> blocksLasting(SpanKind kind, int stage, const std::vector<Ns>& durations) {
  std::vector<Block> blocks;
  for (const Ns duration : durations) {
    const auto index = static_cast<std::int32_t>(blocks.size());
    blocks.push_back({{Source::Predicted, {Rank(stage), TrackKind::Compute, index}}, kind, Stage(stage), Ns{100} * index, duration});
  }
  return blocks;
}

TEST(SummaryOf, CountsByKindAndStageWithTheirOrderStatistics) {
  std::vector<Block> blocks = blocksLasting(SpanKind::Forward, 1, {30, 10, 20, 50, 40});
  const std::vector<Block> other = blocksLasting(SpanKind::Forward, 0, {10, 90});
  blocks.insert(blocks.end(), other.begin(), other.end());
  const Summary summary = summaryOf(blocks);
  ASSERT_EQ(summary.groups.size(), 2U);
  EXPECT_EQ(summary.count, 7U);
  EXPECT_EQ(summary.total, 250);
  const BlockGroup& one = summary.groups[1];
  EXPECT_EQ(one.stage, Stage(1));
  EXPECT_EQ(one.count, 5U);
  EXPECT_EQ(one.total, 150);
  EXPECT_EQ(one.least, 10);
  EXPECT_EQ(one.median, 30);
  EXPECT_EQ(one.most, 50);
  EXPECT_EQ(one.longest.span.index, 3);
  EXPECT_EQ(std::pair(one.axisFrom, one.axisTo), std::pair(Ns{10}, Ns{90})) << "the axis of all forwards";
  EXPECT_EQ(summary.groups[0].median, 50) << "the mean of the two in the middle";
  EXPECT_FALSE(one.spread);
}

TEST(SummaryOf, PutsEachBlockIntoItsPartOfTheAxis) {
  std::vector<Ns> durations(kBins);
  std::iota(durations.begin(), durations.end(), Ns{0});
  const Summary summary = summaryOf(blocksLasting(SpanKind::Backward, 0, durations));
  const auto& bins = summary.groups.at(0).bins;
  // The axis goes from 0 to kBins − 1, so part i is [i (kBins − 1) / kBins, …): one block in each, and the longest joins the last.
  EXPECT_EQ(std::accumulate(bins.begin(), bins.end(), 0U), kBins);
  std::array<std::uint32_t, kBins> expected{};
  for (const Ns d : durations) ++expected[std::min<std::size_t>(kBins - 1, static_cast<std::size_t>(d) * kBins / (kBins - 1))];
  EXPECT_EQ(bins, expected);
  const Summary alike = summaryOf(blocksLasting(SpanKind::Backward, 0, {7, 7, 7}));
  EXPECT_EQ(alike.groups[0].bins[kBins / 2], 3U) << "all in the middle where they are alike";
}

TEST(SummaryOf, TheSlowestAreFurthestAboveTheMedianOfTheirLike) {
  std::vector<Block> blocks = blocksLasting(SpanKind::Forward, 0, {10, 10, 25});
  const std::vector<Block> longer = blocksLasting(SpanKind::Backward, 1, {100, 100, 105});
  blocks.insert(blocks.end(), longer.begin(), longer.end());
  const Summary summary = summaryOf(blocks);
  ASSERT_EQ(summary.slowest.size(), 6U);
  EXPECT_EQ(summary.slowest[0].block.duration, 25);
  EXPECT_EQ(summary.slowest[0].median, 10);
  EXPECT_EQ(summary.slowest[1].block.duration, 105);
  EXPECT_EQ(summary.slowest[2].block.duration, 100) << "of those at their median the longest, then the earliest";
  EXPECT_EQ(summary.slowest[2].block.start, 0);
  EXPECT_TRUE(summaryOf({}).groups.empty());
}

struct StatisticsShown : TimelineFixture {
  void SetUp() override {
    TimelineFixture::SetUp();
    panel.resize(1000, 240);
    panel.show();
    ASSERT_TRUE(settled());
  }
  bool settled() {
    return QTest::qWaitFor([this] { return panel.isIdle(); }, 10'000);
  }
  [[nodiscard]] QTreeWidget* table(const QString& name) const {
    for (auto* tree : panel.findChildren<QTreeWidget*>()) {
      if (tree->accessibleName() == name) return tree;
    }
    return nullptr;
  }
  [[nodiscard]] QTreeWidget* groups() const { return table(QStringLiteral("Blocks by kind and stage")); }
  [[nodiscard]] QTreeWidget* slowest() const { return table(QStringLiteral("Slowest blocks")); }
  [[nodiscard]] QString sentence() const { return panel.findChild<QLabel*>()->text(); }
  [[nodiscard]] static int countIn(const QTreeWidget& tree) {
    int count = 0;
    for (int i = 0; i < tree.topLevelItemCount(); ++i) count += tree.topLevelItem(i)->text(2).toInt();
    return count;
  }
  void clickRow(QTreeWidget* tree, int row) {
    QTest::mouseClick(tree->viewport(), Qt::LeftButton, {}, tree->visualItemRect(tree->topLevelItem(row)).center());
  }

  StatisticsPanel panel{document, widget};
};

TEST_F(StatisticsShown, WithoutASelectionAreOfTheWholeStep) {
  // 4 stages, 8 microbatches: F and B of each, and messages between 4 stages both ways.
  EXPECT_EQ(countIn(*groups()), 4 * 8 * 2 + 3 * 8 * 2);
  EXPECT_EQ(groups()->topLevelItemCount(), 4 + 4 + 3 + 3);
  const QTreeWidgetItem* first = groups()->topLevelItem(0);
  EXPECT_EQ(first->text(0), "F");
  EXPECT_EQ(first->text(1), "0");
  EXPECT_EQ(first->text(3), "8.00 ms") << "8 forwards of 1 ms";
  EXPECT_EQ(first->text(6), "1.00 ms");
  EXPECT_TRUE(sentence().startsWith("Whole step: 112 blocks")) << sentence().toStdString();
}

TEST_F(StatisticsShown, OfARangeAreThoseThatTouchIt) {
  widget.selectRange(kMs / 2, kMs);  // the first forward of rank 0 alone: the next starts when the range ends
  ASSERT_TRUE(settled());
  EXPECT_EQ(countIn(*groups()), 1);
  EXPECT_EQ(groups()->topLevelItem(0)->text(0), "F");
  EXPECT_TRUE(sentence().startsWith("Range 500")) << sentence().toStdString();
  key(Qt::Key_Escape);
  ASSERT_TRUE(settled());
  EXPECT_EQ(countIn(*groups()), 112);
}

TEST_F(StatisticsShown, OfFoundAndOfChosenBlocksAreThose) {
  EXPECT_EQ(widget.findText(QStringLiteral("2F")), 8);
  ASSERT_TRUE(settled());
  EXPECT_EQ(countIn(*groups()), 8);
  key(Qt::Key_Escape);
  click(middleOf(at(0, SpanKind::Forward, 0, 0)));
  QTest::mouseClick(canvas(), Qt::LeftButton, Qt::ControlModifier, middleOf(at(2, SpanKind::Backward, 2, 4)));
  ASSERT_TRUE(settled());
  EXPECT_EQ(countIn(*groups()), 2);
  EXPECT_TRUE(sentence().startsWith("Marked blocks: 2 blocks, together 3.00 ms")) << sentence().toStdString();
}

TEST_F(StatisticsShown, AClickGoesToTheSlowestBlockAndTheFiguresStay) {
  measure([](CostTable& costs) { costs.stages[2].forward *= 3; });
  ASSERT_TRUE(settled());
  auto* source = panel.findChild<QComboBox*>();
  EXPECT_EQ(source->currentText(), "measured") << "where there is a measured step, its blocks are the ones that differ";
  widget.selectRange(0, timeline().end);
  ASSERT_TRUE(settled());
  const QString before = sentence();
  clickRow(slowest(), 0);
  ASSERT_TRUE(selected());
  EXPECT_EQ(selected()->source, Source::Measured);
  ASSERT_TRUE(settled());
  EXPECT_EQ(sentence(), before);
  EXPECT_EQ(widget.scene().range, std::pair(Ns{0}, timeline().end)) << "the range stays";
  int row = 0;
  while (groups()->topLevelItem(row)->text(0) != "F" || groups()->topLevelItem(row)->text(1) != "2") ++row;
  EXPECT_EQ(groups()->topLevelItem(row)->text(6), "3.00 ms");
  clickRow(groups(), row);
  ASSERT_TRUE(selected());
  EXPECT_EQ(widget.scene().measured->ranks[2].compute.tags[static_cast<std::size_t>(selected()->span.index)].stage, Stage(2));
}

TEST_F(StatisticsShown, EscapeLeavesTheBlockOfARowAndThenItsRange) {
  const std::pair<Ns, Ns> range(kMs / 2, 5 * kMs);
  widget.selectRange(range.first, range.second);
  ASSERT_TRUE(settled());
  const int inRange = countIn(*groups());
  clickRow(groups(), 0);
  ASSERT_TRUE(selected());
  EXPECT_EQ(widget.scene().range, range);
  key(Qt::Key_Escape);
  EXPECT_FALSE(selected());
  EXPECT_EQ(widget.scene().range, range);
  ASSERT_TRUE(settled());
  EXPECT_EQ(countIn(*groups()), inRange);
  key(Qt::Key_Escape);
  EXPECT_FALSE(widget.scene().range);
  ASSERT_TRUE(settled());
  EXPECT_EQ(countIn(*groups()), 112);
  clickRow(groups(), 0);
  click(middleOf(at(0, SpanKind::Forward, 0, 0)));
  EXPECT_FALSE(widget.scene().range);
}

TEST_F(StatisticsShown, AreCalledWhatTheLanesAre) {
  measure([](CostTable& costs) { costs.stages[2].forward *= 3; });
  ASSERT_TRUE(settled());
  auto* source = panel.findChild<QComboBox*>();
  EXPECT_EQ(source->itemText(1), "predicted");
  auto pinned = std::make_shared<Measured>(*document.measured());
  pinned->pinnedAs = QStringLiteral("A");
  document.setMeasured(pinned);
  ASSERT_TRUE(settled());
  EXPECT_EQ(source->itemText(0), "plan A");
  EXPECT_EQ(source->itemText(1), "this plan");
  EXPECT_EQ(source->currentText(), "this plan") << "the plan at hand, not what it is compared with";
}

TEST_F(StatisticsShown, OfOneBlockAreOfOneBlock) {
  QTest::mouseClick(canvas(), Qt::LeftButton, Qt::ControlModifier, middleOf(at(2, SpanKind::Backward, 2, 4)));
  ASSERT_TRUE(settled());
  EXPECT_TRUE(sentence().startsWith("Marked blocks: 1 block, together 2.00 ms")) << sentence().toStdString();
}

/// Calls something after each pause of the panel, before whatever the pause set going can answer.
class AfterPause : public QObject {
 public:
  explicit AfterPause(std::function<void()> act) : act_(std::move(act)) { qApp->installEventFilter(this); }
  int count = 0;

  bool eventFilter(QObject* watched, QEvent* event) override {
    const auto* timer = qobject_cast<QTimer*>(watched);
    if (event->type() == QEvent::Timer && timer != nullptr && timer->isSingleShot() && timer->interval() == 80) {
      ++count;
      QMetaObject::invokeMethod(this, act_, Qt::QueuedConnection);
    }
    return QObject::eventFilter(watched, event);
  }

 private:
  std::function<void()> act_;
};

TEST_F(StatisticsShown, AThemeThatChangesWhileTheyAreSummedUpIsSurvived) {
  measure([](CostTable& costs) { costs.stages[2].forward *= 3; });
  ASSERT_TRUE(settled());
  bool changed = false;
  AfterPause change([&] {
    if (std::exchange(changed, true)) return;
    QEvent palette(QEvent::PaletteChange);
    QApplication::sendEvent(&panel, &palette);
  });
  panel.setSteps({document.measured(), document.measured()});  // which are summed up in the background
  bool wasLost = false;
  ASSERT_TRUE(QTest::qWaitFor(
      [&] {
        wasLost = wasLost || sentence().startsWith("Open a model");
        return panel.isIdle();
      },
      10'000));
  EXPECT_TRUE(changed);
  EXPECT_FALSE(wasLost) << "an answer without its question";
  EXPECT_EQ(change.count, 2) << "once for the steps, once for the colours";
  EXPECT_EQ(countIn(*groups()), 112);
  EXPECT_GT(slowest()->topLevelItemCount(), 0);
}

TEST_F(StatisticsShown, TheSpreadBetweenStepsIsOfTheirMeans) {
  const auto stepOf = [&](double factor) {
    CostTable costs = document.prediction()->costs;
    costs.stages[1].forward = Ns(factor * static_cast<double>(kMs));
    auto step = std::make_shared<Measured>();
    step->trace = traceOf(*Predictor().predict(document.prediction()->rows, costs));
    step->timeline = timelineOf(step->trace);
    return std::shared_ptr<const Measured>(step);
  };
  const std::vector<std::shared_ptr<const Measured>> steps{stepOf(1), stepOf(1.5), stepOf(2)};
  document.setMeasured(steps[1]);
  panel.setSteps(steps);
  ASSERT_TRUE(settled());
  for (int i = 0; i < groups()->topLevelItemCount(); ++i) {
    const QTreeWidgetItem* item = groups()->topLevelItem(i);
    const bool isChanged = item->text(0) == "F" && item->text(1) == "1";
    EXPECT_EQ(item->text(9), isChanged ? "66.7 %" : "0.0 %") << i << ": (2 − 1) / 1.5";
  }
}

TEST_F(StatisticsShown, TheSpreadOfAStoredRunIsThatOfItsStepsAfterTheFirst) {
  document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"}, {}));
  ASSERT_TRUE(QTest::qWaitFor([this] { return document.prediction() && !document.isPredicting(); }, 20'000));
  const QTemporaryDir folder;
  const std::string path = folder.filePath("runs.db").toStdString();
  const RunId id = storeRun(path, document.plan(), {9, 1, 1.5, 2});
  const RunStore store(path, RunStore::Mode::ReadOnly);
  const auto shown = measuredOf(store, path, store.load(id), {});
  document.setMeasured(shown);
  ASSERT_TRUE(settled());
  ASSERT_GT(groups()->topLevelItemCount(), 0);
  for (int i = 0; i < groups()->topLevelItemCount(); ++i) {
    const QTreeWidgetItem* item = groups()->topLevelItem(i);
    const bool isChanged = item->text(0) == "F" && item->text(1) == "1";
    EXPECT_EQ(item->text(9), isChanged ? "66.7 %" : "0.0 %") << i << ": (2 − 1) / 1.5";
  }
  widget.selectRange(0, kMs);
  ASSERT_TRUE(settled());
  EXPECT_EQ(groups()->topLevelItem(0)->text(9), "0.0 %") << "of whole steps, whatever is selected";
  document.setMeasured(nullptr);
  ASSERT_TRUE(settled());
  EXPECT_EQ(groups()->topLevelItem(0)->text(9), "") << "of a prediction there is one step";
}

}  // namespace
}  // namespace pw::gui
