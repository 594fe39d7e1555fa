// Which of the plans found fit, after the plan's memory limit has changed, and the options of a search where there is no plan.
#include <gtest/gtest.h>

#include <QLineEdit>
#include <QPushButton>
#include <QSpinBox>
#include <QTableView>
#include <QTest>

#include "app/gui/candidates/model.h"
#include "app/gui/candidates/panel.h"
#include "app/gui/candidates/search_options.h"
#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "simulator/plan/excess.h"
#include "tests/app/gui/constants.h"

namespace pw::gui {
namespace {

constexpr Bytes kMiB = 1 << 20;

Candidate planOf(Bytes peak, Bytes limit) {
  Candidate c;
  c.request.schedule = "1f1b";
  c.request.memoryLimit = limit;
  c.peak = peak;
  c.excess = excessOf(peak, limit);
  c.step = 1'000'000;
  c.samplesPerSecond = 1;
  return c;
}

TEST(CandidatesLimit, PlansAreShownAsTheyFitTheLimitOfThePlan) {
  CandidatesModel model;
  CandidatesFilter filter;
  filter.setSourceModel(&model);
  filter.setShowsAll(true);
  model.set({planOf(kMiB, 0), planOf(2 * kMiB, 0)});
  filter.setOnlyFitting(true);
  EXPECT_EQ(filter.rowCount(), 2);
  EXPECT_TRUE(model.setLimit(kMiB * 3 / 2));
  EXPECT_FALSE(model.setLimit(kMiB * 3 / 2)) << "no change";
  ASSERT_EQ(filter.rowCount(), 1) << "what no longer fits is left out";
  EXPECT_EQ(filter.index(0, CandidatesModel::Fits).data().toString(), "yes");
  EXPECT_EQ(model.index(1, CandidatesModel::Fits).data().toString(), "no, + 512 KiB");
  EXPECT_TRUE(model.index(1, 0).data(Qt::ToolTipRole).toString().contains("more than the limit of 1.50 MiB"));
  EXPECT_TRUE(model.index(1, 0).data(Qt::ForegroundRole).isValid()) << "greyed";
  EXPECT_TRUE(model.setLimit(0));
  EXPECT_EQ(filter.rowCount(), 2) << "and comes back";
}

TEST(CandidatesLimit, AHigherOneLetsMorePlansFitButNoRankHasMoreMemoryOfItsOwn) {
  Candidate ofOwn = planOf(3 * kMiB, 0);
  ofOwn.excess = kMiB;  // of the memory of its rank
  EXPECT_EQ(excessUnder(planOf(2 * kMiB, kMiB), 0), 0);
  EXPECT_EQ(excessUnder(planOf(2 * kMiB, kMiB), 2 * kMiB), 0);
  EXPECT_EQ(excessUnder(ofOwn, 4 * kMiB), kMiB);
  EXPECT_EQ(excessUnder(ofOwn, kMiB), 2 * kMiB);
}

TEST(CandidatesPanel, AreLoadedOnlyWhereThatChangesThePlanAndTheButtonSaysWhy) {
  Document document;
  document.adopt(*loadFiles({kGpt}, {}));
  document.edit("Small", [](Design& design) { design.request.ranks = 2, design.request.microbatches = 2; });
  ASSERT_TRUE(QTest::qWaitFor([&] { return !document.isPredicting(); }, kLongMs));
  CandidatesPanel panel(document);
  QPushButton* loader = nullptr;
  for (auto* button : panel.findChildren<QPushButton*>()) {
    if (button->text() == "&Load plan") loader = button;
  }
  ASSERT_NE(loader, nullptr);
  EXPECT_FALSE(loader->isEnabled());
  EXPECT_EQ(loader->toolTip(), "Select a plan in the table first.");
  panel.search();
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.isSearching(); }, kLongMs));
  auto* table = panel.findChild<QTableView*>();
  table->setCurrentIndex(table->model()->index(0, 0));
  ASSERT_TRUE(loader->isEnabled());
  loader->click();
  EXPECT_EQ(document.undoText(), "Load candidate");
  EXPECT_FALSE(loader->isEnabled());
  EXPECT_EQ(loader->toolTip(), "The selected plan is the current one.");
  document.undo();
  EXPECT_TRUE(loader->isEnabled());
}

TEST(SearchOptions, SayNothingOfAPlanWhereATraceIsOpen) {
  Document document;
  SearchOptions options(document);
  document.adopt(*loadFiles({kReplicas.toStdString()}, {}));
  options.refresh();
  EXPECT_EQ(options.findChild<QLineEdit*>()->placeholderText(), "");
  EXPECT_EQ(options.findChild<QSpinBox*>()->specialValueText().toStdString(), "–");
  document.adopt(*loadFiles({kGpt}, {}));
  options.refresh();
  EXPECT_EQ(options.findChild<QSpinBox*>()->specialValueText(), "as in the plan: 16");
}

}  // namespace
}  // namespace pw::gui
