// The candidates panel and its parts: axis, table model, picture, and the way from a search to a loaded plan.
#include <gtest/gtest.h>

#include <QAbstractItemModelTester>
#include <QCheckBox>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalSpy>
#include <QTableView>
#include <QTest>
#include <random>
#include <set>

#include "app/gui/candidates/model.h"
#include "app/gui/candidates/panel.h"
#include "app/gui/candidates/scatter.h"
#include "app/gui/candidates/search_options.h"
#include "app/gui/candidates/study.h"
#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "backends/store/study_store.h"
#include "simulator/search/ranking.h"
#include "tests/app/gui/constants.h"
#include "tests/support/folder.h"
#include "tests/support/graph_builder.h"

namespace pw::gui {
namespace {

Candidate candidate(const char* schedule, int microbatches, Ns step, Bytes peak, Bytes limit = 0) {
  Candidate c;
  c.request.schedule = schedule;
  c.request.ranks = 2;
  c.request.microbatches = microbatches;
  c.request.memoryLimit = limit;
  c.request.begins = {NodeId(static_cast<std::int32_t>(peak % 1000))};
  c.stages = 2;
  c.split = SplitSource::Time;
  c.step = step;
  c.peak = peak;
  c.excess = excessOf(peak, limit);
  c.samples = 8;
  c.samplesPerSecond = 8e9 / static_cast<double>(step);
  return c;
}

/// Leaves no button pressed, as QTest alone would.
void doubleClick(QWidget* widget, const QPoint& at) {
  QTest::mouseDClick(widget, Qt::LeftButton, {}, at);
  QTest::mouseRelease(widget, Qt::LeftButton, {}, at);
}

TEST(CandidateTitle, SaysOneMicrobatchInTheSingular) {
  Candidate c = candidate("auto", 1, 1'000'000, 1);
  c.request.microbatch = 8;
  EXPECT_EQ(titleOf(c), "auto, 1 microbatch of 8");
  c.request.microbatches = 2;
  EXPECT_EQ(titleOf(c), "auto, 2 microbatches of 8");
}

TEST(CandidatesFilter, LeavesOutWhatDoesNotFit) {
  CandidatesModel model;
  Candidate fits = candidate("1f1b", 8, 4'000'000, 3 << 20, 4 << 20), large = candidate("gpipe", 4, 2'000'000, 6 << 20, 4 << 20);
  fits.leads = large.leads = true;
  model.set({large, fits});
  CandidatesFilter filter;
  filter.setSourceModel(&model);
  EXPECT_EQ(filter.rowCount(), 2);
  filter.setOnlyFitting(true);
  ASSERT_EQ(filter.rowCount(), 1);
  EXPECT_EQ(filter.index(0, CandidatesModel::Schedule).data().toString(), "1f1b");
  filter.setShowsAll(true);
  EXPECT_EQ(filter.rowCount(), 1);
  filter.setOnlyFitting(false);
  EXPECT_EQ(filter.rowCount(), 2);
}

// ---- Table ----

TEST(CandidatesModel, PassesTheModelTesterWhileMoreIsFound) {
  CandidatesModel model;
  CandidatesFilter filter;
  filter.setSourceModel(&model);
  const QAbstractItemModelTester direct(&model, QAbstractItemModelTester::FailureReportingMode::Fatal);
  const QAbstractItemModelTester filtered(&filter, QAbstractItemModelTester::FailureReportingMode::Fatal);
  filter.sort(CandidatesModel::Samples, Qt::DescendingOrder);
  std::mt19937_64 random(2);
  std::vector<Candidate> all;
  for (int round = 0; round < 20; ++round) {
    std::vector<Candidate> more;
    for (std::uint64_t i = 0; i < random() % 6; ++i) {
      more.push_back(candidate(random() % 2 == 0 ? "1f1b" : "zbv", 1 + static_cast<int>(random() % 3), 1 + static_cast<Ns>(random() % 50),
                               static_cast<Bytes>(random() % 50), 30));
    }
    model.append(more);
    all.insert(all.end(), more.begin(), more.end());
    std::vector<Candidate> marked = all;
    markFront(marked);
    markLeads(marked);
    EXPECT_EQ(model.all(), marked) << "marks as of all that was found";
    int shown = 0;
    for (const Candidate& c : marked) shown += c.onFront || c.leads ? 1 : 0;
    EXPECT_EQ(filter.rowCount(), shown);
    for (int row = 1; row < filter.rowCount(); ++row) {
      EXPECT_GE(filter.index(row - 1, 0).siblingAtColumn(CandidatesModel::Samples).data(CandidatesModel::SortRole).toDouble(),
                filter.index(row, CandidatesModel::Samples).data(CandidatesModel::SortRole).toDouble());
    }
  }
  filter.setShowsAll(true);
  EXPECT_EQ(filter.rowCount(), static_cast<int>(all.size()));
  model.set({});
  EXPECT_EQ(filter.rowCount(), 0);
}

TEST(CandidatesModel, SaysInWordsWhatAPlanIs) {
  CandidatesModel model;
  Candidate fits = candidate("1f1b", 8, 4'000'000, 3 << 20, 4 << 20), large = candidate("gpipe", 4, 2'000'000, 6 << 20, 4 << 20);
  large.moves = 2;
  large.request.recompute = RecomputeFull();
  model.set({fits, large});
  const auto text = [&](int row, int column) { return model.index(row, column).data().toString(); };
  EXPECT_EQ(text(0, CandidatesModel::Microbatches), "8 × 1");
  EXPECT_EQ(text(0, CandidatesModel::Samples), "2.00 k") << "8 samples in 4 ms";
  EXPECT_EQ(text(0, CandidatesModel::Fits), "yes");
  EXPECT_EQ(text(1, CandidatesModel::Splits), "by time, 2 moved");
  EXPECT_EQ(text(1, CandidatesModel::Recompute), "full");
  EXPECT_TRUE(text(1, CandidatesModel::Fits).startsWith("no, + 2")) << "6 MiB against 4";
  EXPECT_TRUE(model.index(1, 0).data(Qt::ToolTipRole).toString().contains("more than the limit of 4"));
  EXPECT_TRUE(model.index(1, 0).data(Qt::ForegroundRole).isValid()) << "greyed";
  EXPECT_FALSE(model.index(0, 0).data(Qt::ForegroundRole).isValid());
  model.setCurrent(fits.request);
  EXPECT_TRUE(model.isCurrent(0));
  EXPECT_FALSE(model.isCurrent(1));
  EXPECT_TRUE(model.index(0, 0).data(Qt::AccessibleTextRole).toString().contains("current plan"));
  EXPECT_EQ(model.rowOf(large.request), 1);
}

TEST(SearchOptions, ReadsCountsAndNamesWhatIsNone) {
  EXPECT_EQ(countsOf("4, 8 16;32"), (std::vector<int>{4, 8, 16, 32}));
  EXPECT_EQ(countsOf("  "), std::vector<int>{});
  EXPECT_NE(test::usageErrorOf([] { static_cast<void>(countsOf("4, many")); }).find("“many” is not a number of microbatches"),
            std::string::npos);
  EXPECT_NE(test::usageErrorOf([] { static_cast<void>(countsOf("0")); }).find("“0”"), std::string::npos);
}

// ---- Picture ----

class ScatterTest : public testing::Test {
 protected:
  void SetUp() override {
    scatter.resize(600, 400);
    scatter.show();
    // By time: 2, 0, 1; by memory: 1, 0, 2. The last one is a mere dot.
    scatter.setPoints({{20, 200, true, true, true, "b"},
                       {30, 100, true, true, true, "c"},
                       {10, 300, true, true, true, "a"},
                       {20, 300, false, true, false, "dot"}});
  }
  CandidatesScatter scatter;
};

TEST_F(ScatterTest, FindsThePointUnderTheMouseAndNoMereDot) {
  for (const int i : {0, 1, 2}) EXPECT_EQ(scatter.pointAt(scatter.positionOf(i) + QPointF(3, -2)), i);
  EXPECT_EQ(scatter.pointAt(scatter.positionOf(3)), -1);
  EXPECT_LT(scatter.positionOf(2).x(), scatter.positionOf(1).x()) << "time goes right";
  EXPECT_LT(scatter.positionOf(2).y(), scatter.positionOf(1).y()) << "memory goes up";
  QSignalSpy hovered(&scatter, &CandidatesScatter::pointHovered), selected(&scatter, &CandidatesScatter::pointSelected),
      activated(&scatter, &CandidatesScatter::pointActivated);
  QTest::mouseMove(&scatter, scatter.positionOf(1).toPoint());
  ASSERT_EQ(hovered.size(), 1);
  EXPECT_EQ(hovered[0][0].toInt(), 1);
  QTest::mouseClick(&scatter, Qt::LeftButton, {}, scatter.positionOf(0).toPoint());
  ASSERT_EQ(selected.size(), 1);
  EXPECT_EQ(scatter.selected(), 0);
  doubleClick(&scatter, scatter.positionOf(2).toPoint());
  ASSERT_EQ(activated.size(), 1);
  EXPECT_EQ(activated[0][0].toInt(), 2);
}

TEST_F(ScatterTest, IsWalkedByKeysInTimeAndInMemory) {
  const auto after = [&](Qt::Key key) {
    QTest::keyClick(&scatter, key);
    return scatter.selected();
  };
  EXPECT_EQ(after(Qt::Key_Right), 2) << "the fastest";
  EXPECT_EQ(after(Qt::Key_Right), 0) << "and past the dot";
  EXPECT_EQ(after(Qt::Key_Right), 1);
  EXPECT_EQ(after(Qt::Key_Right), 1) << "the last";
  EXPECT_EQ(after(Qt::Key_Up), 0);
  EXPECT_EQ(after(Qt::Key_Up), 2);
  EXPECT_EQ(after(Qt::Key_Down), 0);
  EXPECT_EQ(after(Qt::Key_End), 1);
  EXPECT_EQ(after(Qt::Key_Home), 2);
  EXPECT_TRUE(scatter.accessibleDescription().startsWith("a: ")) << "what is chosen can be read";
  QSignalSpy activated(&scatter, &CandidatesScatter::pointActivated);
  QTest::keyClick(&scatter, Qt::Key_Return);
  ASSERT_EQ(activated.size(), 1);
  EXPECT_EQ(activated[0][0].toInt(), 2);
}

// ---- The panel ----

class CandidatesPanelTest : public testing::Test {
 protected:
  void open(const char* model) { document.adopt(*loadFiles({std::string(PW_SOURCE_DIR "/resources/models/") + model + ".pt2"}, {})); }
  [[nodiscard]] bool predicted() {
    return QTest::qWaitFor([&] { return document.prediction() && !document.isPredicting(); }, kLongMs);
  }
  QPushButton* button(const QString& text) {
    for (QPushButton* b : panel.findChildren<QPushButton*>()) {
      if (QString(b->text()).remove('&') == text) return b;
    }
    return nullptr;
  }
  void searchToTheEnd() {
    QSignalSpy finished(&panel, &CandidatesPanel::searchFinished);
    panel.search();
    ASSERT_TRUE(panel.isSearching());
    ASSERT_TRUE(QTest::qWaitFor([&] { return !finished.isEmpty(); }, kLongMs));
    ASSERT_FALSE(panel.isSearching());
  }
  [[nodiscard]] QTableView* table() { return panel.findChild<QTableView*>(); }
  [[nodiscard]] CandidatesModel* model() { return panel.findChild<CandidatesModel*>(); }
  [[nodiscard]] CandidatesScatter* scatter() { return panel.findChild<CandidatesScatter*>(); }
  [[nodiscard]] QString status() {
    for (QLabel* label : panel.findChildren<QLabel*>()) {
      if (label->accessibleName() == "Result of the search") return label->text();
    }
    return {};
  }

  Document document;
  CandidatesPanel panel{document};
};

TEST_F(CandidatesPanelTest, OffersToSearchOnlyWithAModel) {
  panel.show();
  const auto filters = panel.findChildren<QCheckBox*>();
  ASSERT_FALSE(filters.isEmpty());
  EXPECT_FALSE(button("Search")->isEnabled());
  for (const QCheckBox* filter : filters) EXPECT_FALSE(filter->isEnabled()) << filter->text().toStdString();
  EXPECT_FALSE(table()->isVisible());
  panel.search();
  EXPECT_FALSE(panel.isSearching());
  open("gpt_small");
  EXPECT_TRUE(button("Search")->isEnabled());
  for (const QCheckBox* filter : filters) EXPECT_TRUE(filter->isEnabled()) << filter->text().toStdString();
  EXPECT_TRUE(button("Search plans")->isVisible());
}

TEST_F(CandidatesPanelTest, OffersToSearchAlsoWhereItIsLow) {
  QScrollArea area;
  area.setWidgetResizable(true);
  area.setWidget(&panel);
  area.resize(1000, 600);
  area.show();
  open("gpt_small");
  const QPushButton* first = button("Search plans");
  const int above = button("Search")->mapTo(&area, QPoint(0, button("Search")->height())).y();
  area.resize(1000, above + 4 * panel.fontMetrics().lineSpacing());
  EXPECT_TRUE(QTest::qWaitFor([&] { return first->visibleRegion().boundingRect() == first->rect(); }))
      << first->visibleRegion().boundingRect().height() << " of " << first->height();
  area.takeWidget();
}

TEST_F(CandidatesPanelTest, LoadsACandidateOnDoubleClickAndUndoBringsTheOldPlanBack) {
  panel.resize(1300, 420);
  panel.show();
  open("gpt_small");
  ASSERT_TRUE(predicted());
  const Design before = document.design();
  searchToTheEnd();
  ASSERT_GT(table()->model()->rowCount(), 10);
  ASSERT_LT(table()->model()->rowCount(), model()->rowCount()) << "the best splits only";
  const QModelIndex second = table()->model()->index(1, CandidatesModel::Step);
  const Candidate wanted = model()->at(static_cast<CandidatesFilter*>(table()->model())->mapToSource(second).row());
  table()->scrollTo(second);
  QTest::mouseClick(table()->viewport(), Qt::LeftButton, {}, table()->visualRect(second).center());
  EXPECT_GE(scatter()->selected(), 0) << "the picture shows what is chosen";
  doubleClick(table()->viewport(), table()->visualRect(second).center());
  EXPECT_TRUE(isSamePlan(document.design().request, wanted.request));
  EXPECT_EQ(document.undoText(), "Load candidate");
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.problem(), "");
  EXPECT_EQ(document.prediction()->step, wanted.step) << "the search predicts what the document does";
  EXPECT_TRUE(model()->isCurrent(model()->rowOf(wanted.request)));
  document.undo();
  EXPECT_EQ(document.design(), before);
}

TEST_F(CandidatesPanelTest, LinksTableAndPicture) {
  panel.resize(1300, 420);
  panel.show();
  open("gpt_small");
  searchToTheEnd();
  QTest::keyClick(scatter(), Qt::Key_Home);
  const int fastest = scatter()->selected();
  ASSERT_GE(fastest, 0);
  EXPECT_EQ(static_cast<CandidatesFilter*>(table()->model())->mapToSource(table()->currentIndex()).row(), fastest);
  EXPECT_DOUBLE_EQ(model()->at(fastest).samplesPerSecond, model()->all().front().samplesPerSecond);
  const QModelIndex third = table()->model()->index(2, 0);
  table()->scrollTo(third);
  QTest::mouseMove(table()->viewport(), table()->visualRect(third).center());
  EXPECT_EQ(scatter()->hovered(), static_cast<CandidatesFilter*>(table()->model())->mapToSource(third).row());
  QTest::keyClick(scatter(), Qt::Key_Return);
  EXPECT_TRUE(isSamePlan(document.design().request, model()->at(fastest).request));
}

TEST_F(CandidatesPanelTest, KeepsWhatWasFoundWhenTheSearchIsCancelled) {
  open("hf_bert");
  QSignalSpy finished(&panel, &CandidatesPanel::searchFinished);
  panel.search();
  ASSERT_TRUE(QTest::qWaitFor([&] { return model()->rowCount() > 0; }, kLongMs)) << "candidates arrive while it runs";
  if (panel.isSearching()) button("Cancel")->click();
  EXPECT_FALSE(panel.isSearching());
  EXPECT_EQ(finished.size(), 1);
  EXPECT_GT(model()->rowCount(), 0);
  EXPECT_NE(button("Search"), nullptr) << "another one can begin";
  searchToTheEnd();
}

TEST_F(CandidatesPanelTest, ForgetsPlansOfAnotherModelAndMarksOldOnes) {
  open("gpt_small");
  searchToTheEnd();
  document.edit("Ranks", [](Design& d) { d.request.memoryLimit = 1'000'000; });
  EXPECT_TRUE(status().contains("search again")) << status().toStdString();
  EXPECT_GT(model()->rowCount(), 0);
  open("hf_bert");
  EXPECT_EQ(model()->rowCount(), 0);
}

TEST_F(CandidatesPanelTest, SaysWhatIsWrongWithTheOptions) {
  open("gpt_small");
  for (QLineEdit* edit : panel.findChildren<QLineEdit*>()) {
    if (edit->accessibleName() == "Numbers of microbatches to try") edit->setText("4, x");
  }
  panel.search();
  EXPECT_FALSE(panel.isSearching());
  EXPECT_TRUE(status().contains("“x”")) << status().toStdString();
}

TEST_F(CandidatesPanelTest, SaysWhenNothingFits) {
  open("gpt_small");
  document.edit("Limit", [](Design& d) { d.request.memoryLimit = 1'000; });
  searchToTheEnd();
  EXPECT_TRUE(status().contains("None fits")) << status().toStdString();
  EXPECT_TRUE(model()->index(0, CandidatesModel::Fits).data().toString().startsWith("no"));
}

// ---- Studies ----

/// A study of gpt_small with plans on two and on four ranks, of which one does not fit.
std::string studyIn(const test::Folder& folder) {
  std::string path = folder.file("s.db");
  StudyStore store(path, R"({"version": 1, "model": "models/gpt_small.pt2", "cluster": "h100-nvlink", "precision": "bf16",
                "attention": "unfused", "ranks": [2, 4], "microbatches": [4, 8]})",
                   "");
  std::vector<StudyRow> rows;
  for (std::int64_t n = 0; n < 4; ++n) {
    StudyRow row{pointOf(store.study(), n), {}};
    row.result.point = n;
    row.result.stages = row.point.ranks;
    row.result.samples = std::int64_t{2} * row.point.microbatches;
    row.result.step = Ns(1'000'000 + 100'000 * n);
    row.result.samplesPerSecond = static_cast<double>(row.result.samples) * 1e9 / static_cast<double>(row.result.step);
    row.result.peak = Bytes((5 - n) * 1'000'000);
    row.result.excess = n == 0 ? Bytes{1} : Bytes{0};
    row.result.splits = row.point.ranks == 2 ? "blocks.3" : "blocks.0 blocks.1 blocks.3";
    rows.push_back(row);
  }
  store.add(rows);
  return path;
}

TEST_F(CandidatesPanelTest, ShowsAStudyAndLoadsItsPlansIntoItsModel) {
  const test::Folder folder;
  const QString path = QString::fromStdString(studyIn(folder));
  const auto loaded = loadFiles({path.toStdString()}, {});
  EXPECT_EQ(loaded->study, path) << "told from a run store";
  panel.showStudy(loaded->study);
  ASSERT_TRUE(QTest::qWaitFor([&] { return model()->rowCount() > 0; }, kLongMs));
  ASSERT_EQ(model()->rowCount(), 3) << "what fits";
  EXPECT_TRUE(status().contains(QStringLiteral("s.db: 4 of 4 points, 3 fit, 1 need too much memory, 0 are impossible.")));
  std::set<int> ranks;
  for (int row = 0; row < 3; ++row) ranks.insert(model()->index(row, CandidatesModel::Ranks).data().toInt());
  EXPECT_EQ(ranks, (std::set<int>{2, 4}));
  table()->setCurrentIndex(table()->model()->index(0, 0));
  emit table()->activated(table()->currentIndex());
  EXPECT_TRUE(status().contains(QStringLiteral("Open gpt_small.pt2 to load this plan."))) << "no model is open";
  document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"}, {}));
  ASSERT_EQ(model()->rowCount(), 3) << "a study stays where another model is opened";
  const Candidate best = model()->at(0);
  EXPECT_EQ(best.request.microbatches, 8) << "most samples per second";
  emit table()->activated(table()->currentIndex());
  EXPECT_EQ(document.design().request.ranks, best.request.ranks);
  EXPECT_EQ(document.design().request.microbatches, 8);
  const Design& design = document.design();
  EXPECT_EQ(design.cluster, "h100-nvlink");
  EXPECT_EQ(design.precision, DType::BFloat16);
  EXPECT_EQ(design.attention, Attention::Unfused);
  const std::vector<std::string> splits =
      best.request.ranks == 2 ? std::vector<std::string>{"blocks.3"} : std::vector<std::string>{"blocks.0", "blocks.1", "blocks.3"};
  EXPECT_EQ(splitNames(document.splitPoints(), design.request.begins), splits);
}

TEST(Study, HasAFrontForEachNumberOfRanks) {
  std::vector<Candidate> candidates;
  std::vector<ScatterPoint> points;
  const auto add = [&](int ranks, Ns time, Bytes bytes) {
    candidates.push_back(candidate("1f1b", 4, 1, bytes));
    candidates.back().request.ranks = ranks;
    points.push_back({time, bytes, false, true, true, QStringLiteral("p"), 0, 1});
  };
  add(2, 10, 5);
  add(2, 12, 5);  // slower, and no smaller
  add(2, 20, 4);
  add(4, 6, 6);
  add(4, 11, 5);  // two ranks do that in 10
  add(4, 13, 3);
  showRanks(candidates, points);
  std::vector<bool> fronts;
  fronts.reserve(points.size());
  for (const ScatterPoint& point : points) fronts.push_back(point.front);
  EXPECT_EQ(fronts, (std::vector<bool>{true, false, true, true, false, true}));
  EXPECT_GT(points[3].scale, points[0].scale);
  EXPECT_EQ(points[3].ranks, 4);
}

TEST(Study, PlansThatTheAppCannotEstimateAreNotLoaded) {
  StudyPlans study;
  StudyPoint point;
  point.model = "models/gpt.pt2";
  point.cluster = "h100-nvlink+ethernet-25";
  point.precision = DType::Unknown;
  EXPECT_EQ(whyNotLoaded(study, point, "/elsewhere/gpt.pt2"), QString());
  EXPECT_TRUE(whyNotLoaded(study, point, "/elsewhere/other.pt2").contains(QStringLiteral("Open gpt.pt2")));
  EXPECT_TRUE(whyNotLoaded(study, point, "").contains(QStringLiteral("Open gpt.pt2")));
  const test::Folder folder;
  study.path = folder.file("s.db");
  point.cluster = "rack.json+pcie-5+ethernet-25";
  EXPECT_TRUE(whyNotLoaded(study, point, "gpt.pt2").contains(QStringLiteral("/rack.json, which is not there")));
  static_cast<void>(folder.with("rack.json", "{}"));
  EXPECT_EQ(whyNotLoaded(study, point, "gpt.pt2"), QString());
  EXPECT_EQ(clusterOf(study, point), folder.file("rack.json+pcie-5+ethernet-25"));
  point.cluster = "h100-nvlink";
  EXPECT_EQ(clusterOf(study, point), "h100-nvlink");
  study.measured = true;
  EXPECT_TRUE(whyNotLoaded(study, point, "gpt.pt2").contains(QStringLiteral("measured costs")));
}

TEST_F(CandidatesPanelTest, SaysWhyAStudyCannotBeShown) {
  panel.showStudy(QStringLiteral("/nowhere/s.db"));
  ASSERT_TRUE(QTest::qWaitFor([&] { return !status().isEmpty(); }, kLongMs));
  EXPECT_TRUE(status().contains(QStringLiteral("There is no study /nowhere/s.db; name a file that `search --study` wrote.")));
  EXPECT_EQ(model()->rowCount(), 0);
}

}  // namespace
}  // namespace pw::gui
