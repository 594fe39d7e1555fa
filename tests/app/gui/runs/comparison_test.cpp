// The Runs panel: what measured steps are compared with, and what it says of them.
#include <QAbstractItemModelTester>
#include <QTabBar>
#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/document/pinned_plans.h"
#include "app/gui/document/times.h"
#include "app/gui/explain/explainable.h"
#include "app/gui/figure/source.h"
#include "app/gui/runs/comparison_view.h"
#include "app/gui/runs/group_table.h"
#include "app/gui/runs/run_list.h"
#include "backends/store/trace_blob.h"
#include "simulator/report/compare.h"
#include "simulator/timeline/fill.h"
#include "tests/app/gui/runs/runs_panel_fixture.h"

namespace pw::gui {
namespace {

using Fatal = QAbstractItemModelTester::FailureReportingMode;

struct RunsComparisonTest : RunsPanelTest {};

TEST_F(RunsComparisonTest, RanksWhatTheErrorComesFrom) {
  choose(record(1'000'000));
  const RunRecord& run = *document.measured()->run;
  const int microbatches = run.plan.schedule.microbatches;
  EXPECT_TRUE(panel().summary().contains("most of it: B of stage 1, +" + QString::number(2 * microbatches)))
      << panel().summary().toStdString();  // step 1: 2 ms each
  const GroupError& shown = panel().findChild<ComparisonView*>()->table().groups().front();
  EXPECT_EQ(shown.group, "B of stage 1") << "the table begins with what the sentence names";
  EXPECT_EQ(shown.measured - shown.predicted, microbatches * Ns(2'000'000)) << "and counts it in the same way";
  GroupTable table;
  const QAbstractItemModelTester tester(&table, Fatal::Fatal);
  const Comparison c = compare(run.predicted, document.measured()->trace);
  table.setGroups(c.byStage, "predicted", "measured");
  ASSERT_EQ(table.rowCount(), static_cast<int>(c.byStage.size()));
  EXPECT_EQ(table.index(0, GroupTable::Group).data(), "stage 1");
  EXPECT_EQ(table.index(0, GroupTable::Difference).data(GroupTable::kBarRole), 1.0);
  EXPECT_TRUE(table.index(0, GroupTable::Difference).data().toString().startsWith("▲ +"));
  for (int row = 1; row < table.rowCount(); ++row) EXPECT_EQ(table.index(row, GroupTable::Difference).data(GroupTable::kBarRole), 0.0);
  table.setGroups(compare(document.measured()->trace, run.predicted).byStage, "predicted", "measured");
  EXPECT_EQ(table.index(0, GroupTable::Difference).data(GroupTable::kBarRole), -1.0);
  EXPECT_TRUE(table.index(0, GroupTable::Difference).data().toString().startsWith("▼ −"));
}

TEST_F(RunsComparisonTest, ARunThatComputedNothingIsRehearsedNotMeasured) {
  choose(record(1'000'000, {}, RunState::Completed, CostSource::Estimated, 64, true));
  EXPECT_TRUE(panel().summary().startsWith("The rehearsal took ")) << panel().summary().toStdString();
  EXPECT_TRUE(panel().summary().contains("times as long as its prediction")) << panel().summary().toStdString();
  EXPECT_FALSE(panel().summary().contains("easured"));
  EXPECT_FALSE(panel().summary().contains("Profile measures")) << "it took as long as its plan says, whatever that is from";
  const auto& table = panel().findChild<ComparisonView*>()->table();
  EXPECT_EQ(table.headerData(GroupTable::After, Qt::Horizontal, Qt::DisplayRole).toString().trimmed(), "rehearsed");
  EXPECT_EQ(nameOfTimes(*document.measured()), "rehearsed") << "in the timeline, its details and the statistics";
  EXPECT_EQ(explainableIn(document).front().title.left(10), "Rehearsed:");
  const FigureSource figure = figureSource(document);
  EXPECT_TRUE(figureCall(figure, FigureSteps::Both, {}, "a.svg", 0).contains("--measured-title Rehearsed"));
  RunList list;
  list.setRuns(panel().runs());
  EXPECT_TRUE(list.index(0, RunList::Measured).data().toString().endsWith(" rehearsed"));
}

TEST_F(RunsComparisonTest, SaysWhenThePlanThatIsOpenIsAnotherOne) {
  choose(record(1000));
  EXPECT_FALSE(panel().summary().contains("different plan"));
  document.edit("more microbatches", [](Design& d) { d.request.microbatches += 1; });
  waitFor([this] { return panel().summary().contains("different plan"); });
  document.undo();
  waitFor([this] { return !panel().summary().contains("different plan"); });
}

TEST_F(RunsComparisonTest, SaysOfARunThatIsFarOffWhichTimesItWasPredictedFrom) {
  const QString offer = QStringLiteral("predicted from times estimated for cpu-workstation; Profile measures");
  choose(record(5'000'000, {}, RunState::Completed, CostSource::Estimated));
  EXPECT_TRUE(panel().summary().contains(offer)) << panel().summary().toStdString();
  choose(record(5'000'000));
  waitFor([&] { return panel().summary().contains("predicted from times measured on "); });
  EXPECT_FALSE(panel().summary().contains(offer));
  choose(record(5'000'000, {}, RunState::Completed, CostSource::Estimated));
  waitFor([&] { return panel().summary().contains(offer); });
  choose(record(1000, {}, RunState::Completed, CostSource::Estimated));
  waitFor([&] { return !panel().summary().contains(offer); });  // near enough
}

TEST_F(RunsComparisonTest, OfPlansWhoseStepsDifferInSizeItSaysWhatASampleTakes) {
  PinnedPlans pins(document);
  pins.pin();
  const std::int64_t samples = samplesOf(document.predicted());
  const Ns before = document.prediction()->step;
  pins.compareWith(0);
  waitFor([this] { return panel().summary().contains("Plan A"); });
  EXPECT_FALSE(panel().summary().contains("Per sample"));
  document.edit("twice the microbatches", [](Design& d) { d.request.microbatches *= 2; });
  waitFor([this] { return panel().summary().contains("Per sample"); });
  const double after = static_cast<double>(document.prediction()->step) / (2 * static_cast<double>(samples)),
               slower = static_cast<double>(before) / static_cast<double>(samples) / after - 1;
  ASSERT_GT(slower, 0.01) << "a longer step has a smaller part of bubbles";
  EXPECT_TRUE(panel().summary().startsWith(QStringLiteral("Per sample: Plan A is %1 % slower than this plan (%2, not %3). Their batches "
                                                          "differ: %4 and %5 samples.\nMakespan: Plan A is ")
                                               .arg(100 * slower, 0, 'f', 1)
                                               .arg(durationText(before / samples))
                                               .arg(durationText(static_cast<Ns>(after)))
                                               .arg(samples)
                                               .arg(2 * samples)))
      << panel().summary().toStdString();
}

TEST_F(RunsComparisonTest, ComparesTwoRunsTheOlderOneFirst) {
  const int slower = record(1'000'000), faster = record(0);
  panel().compareRuns(RunId(faster), RunId(slower));
  waitFor([this] { return panel().summary().startsWith("Run "); });
  EXPECT_TRUE(panel().summary().startsWith(QString("Run %1 was ").arg(faster))) << panel().summary().toStdString();
  EXPECT_TRUE(panel().summary().contains(QString("faster than run %1").arg(slower)));
  EXPECT_EQ(document.measured()->run->id.value, faster);
}

TEST_F(RunsComparisonTest, DoesNotCompareStagesOfRunsWithOtherSplits) {
  panel().resize(1600, 500);
  panel().show();
  const int one = record(1'000'000);
  document.edit("move a split", [this](Design& d) {
    NodeId& first = d.request.begins.front();
    first = std::ranges::find_if(document.splitPoints(), [&](const SplitPoint& point) { return point.begin > first; })->begin;
  });
  waitFor([this] { return !document.isPredicting() && document.problem().isEmpty(); });
  const int other = record(1'000'000);
  const QString note = QStringLiteral("Their splits differ, so their stages are not compared.");
  const auto offered = [this] {
    const auto* tabs = panel().findChild<ComparisonView*>()->findChild<QTabBar*>();
    QStringList names;
    for (int tab = 0; tab < tabs->count(); ++tab) {
      if (tabs->isTabVisible(tab)) names << tabs->tabText(tab);
    }
    return names;
  };
  const auto groups = [this] {
    std::string names;
    for (const GroupError& group : panel().findChild<ComparisonView*>()->table().groups()) names += group.group + ", ";
    return names;
  };
  panel().compareRuns(RunId(one), RunId(other));
  waitFor([&] { return panel().summary().startsWith("Run ") && panel().summary().contains(note); });
  EXPECT_FALSE(panel().summary().contains("of stage")) << panel().summary().toStdString();
  EXPECT_EQ(offered(), (QStringList{"By kind", "By rank"}));
  EXPECT_EQ(groups().find("stage"), std::string::npos) << groups();
  choose(other);
  waitFor([&] { return panel().summary().startsWith("Measured"); });
  EXPECT_FALSE(panel().summary().contains(note)) << "its own prediction has the same";
  EXPECT_EQ(offered().size(), 4);
  const auto* tabs = panel().findChild<ComparisonView*>()->findChild<QTabBar*>();
  waitFor([&] { return tabs->width() == tabs->sizeHint().width(); });  // of all four, not of two
  EXPECT_NE(groups().find("B of stage 1"), std::string::npos) << groups();
  // The same of a plan that is pinned before its splits are moved.
  PinnedPlans pins(document);
  pins.pin();
  document.edit("move it back", [this](Design& d) { d.request.begins.front() = document.splitPoints().front().begin; });
  waitFor([this] { return !document.isPredicting() && document.problem().isEmpty(); });
  pins.compareWith(0);
  waitFor([&] { return panel().summary().startsWith("Plan A ") && panel().summary().contains(note); });
}

TEST_F(RunsComparisonTest, CountsReductionsFromWhenTheLastOfTheirRanksBegins) {
  // At the end of each step ranks 0 and 1 reduce a gradient that both hold; rank 1 comes 3 ms later, and both end after 1 ms more.
  const auto recordReducing = [this] {
    const RunId plain(record(0));
    RunStore store(document.storePath().toStdString(), RunStore::Mode::ReadWrite);
    RunRecord run = store.load(plain);
    run.steps = store.loadSteps(plain, 0, 10);
    for (StepRecord& step : run.steps) {
      const Ns end = durationOf(step.measured), ms(1'000'000);
      for (const auto& [rank, start] : {std::pair(Rank(0), end), std::pair(Rank(1), end + 3 * ms)})
        step.measured.spans.push_back({rank, SpanKind::ReduceGrad, Stage(0), Microbatch(-1), rank, 1 << 20, start, end + 4 * ms});
    }
    return store.add(run);
  };
  const auto note = [](const QString& step) {
    return QStringLiteral("Before reductions of gradients, ranks of %1 waited 3.00 ms in all for others to begin them").arg(step);
  };
  const auto reduced = [this] {
    auto& comparison = *panel().findChild<ComparisonView*>();
    comparison.findChild<QTabBar*>()->setCurrentIndex(1);  // by kind
    const auto& groups = comparison.table().groups();
    const auto found = std::ranges::find(groups, "REDUCE_GRAD", &GroupError::group);
    return found == groups.end() ? GroupError() : *found;
  };
  const RunId one = recordReducing(), two = recordReducing();
  choose(two.value);
  waitFor([&] { return panel().summary().contains(note("the run")); });
  EXPECT_EQ(reduced().measured, Ns(2'000'000)) << "1 ms on either rank";
  panel().compareRuns(one, two);
  waitFor([&] { return panel().summary().contains(note("run 2")) && panel().summary().contains(note("run 4")); });
  EXPECT_EQ(reduced().predicted, Ns(2'000'000));
  EXPECT_EQ(reduced().measured, Ns(2'000'000));
}

TEST_F(RunsComparisonTest, ComparesATraceThatIsNoRunWithThePrediction) {
  auto measured = std::make_shared<Measured>();
  measured->title = "a trace";
  measured->trace = traceOf(*document.prediction());
  measured->timeline = timelineOf(measured->trace);
  panel();
  document.setMeasured(measured);
  waitFor([this] { return panel().summary().startsWith("Measured as predicted"); });
}

}  // namespace
}  // namespace pw::gui
