// The Explain panel in the window: what it says of traces, jobs and plans is what the command line says, and its rows lead to their places.
#include <QAction>
#include <QComboBox>
#include <QLabel>
#include <QProcess>
#include <QPushButton>
#include <QSignalSpy>
#include <QTabWidget>
#include <algorithm>

#include "app/gui/explain/panel.h"
#include "app/gui/explain/row_tree.h"
#include "backends/store/run_store.h"
#include "engine/planning/inputs/job_source.h"
#include "simulator/job/explain_tables.h"
#include "simulator/step/simulate.h"
#include "simulator/trace/span_kind.h"
#include "tests/app/gui/constants.h"
#include "tests/app/gui/next_turn.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

/// Clicks a button as soon as it is shown: before anything that comes later is looked at.
class ClickWhenShown : public QObject {
 public:
  explicit ClickWhenShown(QPushButton& button) : button_(button) { button.installEventFilter(this); }
  [[nodiscard]] bool isDone() const { return done_; }

  bool eventFilter(QObject* watched, QEvent* event) override {
    if (event->type() == QEvent::Show && !done_) {
      done_ = true;
      QMetaObject::invokeMethod(&button_, &QPushButton::click, Qt::QueuedConnection);
    }
    return QObject::eventFilter(watched, event);
  }

 private:
  QPushButton& button_;
  bool done_ = false;
};

class ExplainTest : public WindowFixture {
 protected:
  ExplainPanel& panel() { return *window_->findChild<ExplainPanel*>(); }
  void openExplained(const QString& path) {
    open(path);
    window_->showPanel(Panel::Explain);
    ASSERT_TRUE(QTest::qWaitFor([this] { return panel().isVisible(); }, kLongMs));
    ASSERT_TRUE(settle());
  }
  /// The page of this title, brought to the front.
  RowTree& page(const QString& title) {
    auto& pages = *panel().findChild<QTabWidget*>();
    for (int i = 0; i < pages.count(); ++i) {
      if (pages.tabText(i) == title) pages.setCurrentIndex(i);
    }
    for (RowTree* tree : panel().findChildren<RowTree*>()) {
      if (tree->accessibleName() == title) return *tree;
    }
    throw std::runtime_error("no such page");
  }
  QString said() {
    QStringList texts;
    for (const QLabel* label : panel().findChildren<QLabel*>()) texts << label->text();
    return texts.join(QString());
  }
  static QTreeWidgetItem* row(RowTree& tree, const QString& name) {
    const auto found = tree.findItems(name, Qt::MatchExactly | Qt::MatchRecursive);
    return found.isEmpty() ? nullptr : found.front();
  }
  void click(RowTree& tree, const QTreeWidgetItem* item) {
    tree.scrollToItem(item);
    QTest::mouseClick(tree.viewport(), Qt::LeftButton, {}, tree.visualItemRect(item).center());
    ASSERT_TRUE(settle());
    waitForNextTurn();  // the selection follows when the timeline has the step
  }
  /// The box in the tool bar that offers steps.
  QComboBox* replayedSteps() {
    for (auto* box : window_->findChildren<QComboBox*>()) {
      if (box->accessibleName() == QStringLiteral("Step of the imported trace")) return box;
    }
    return nullptr;
  }
  [[nodiscard]] const Scene& scene() { return window_->timeline().scene(); }
  /// The action that is selected in the timeline, and on which rank.
  std::optional<std::pair<Rank, SpanTag>> selected(Source source) {
    const auto& span = scene().selected;
    if (!span || span->source != source) return std::nullopt;
    const Timeline& timeline = *timelineFrom(scene(), source);
    return std::pair(span->span.rank, trackOf(timeline, span->span).tags[static_cast<std::size_t>(span->span.index)]);
  }
  static std::vector<ExplainedTable> expectedFor(const QString& path) {
    const pw::Job job = *loadJob({.paths = {path.toStdString()}});
    const JobShape shape(job);
    return explainedTables(shape, job, explainJob(shape, job));
  }
  static const ExplainedTable& tableOf(const std::vector<ExplainedTable>& tables, ExplainTopic topic) {
    return *std::ranges::find(tables, topic, &ExplainedTable::topic);
  }
  static void expectPlace(const std::optional<std::pair<Rank, SpanTag>>& shown, const StepPlace& place) {
    ASSERT_TRUE(shown && place.action && place.worker);
    EXPECT_EQ(shown->first.value, place.worker->value);
    EXPECT_EQ(shown->second.kind, spanKind(place.action->kind));
    EXPECT_EQ(shown->second.stage, place.action->stage);
    EXPECT_EQ(shown->second.microbatch, place.action->microbatch);
  }
};

TEST_F(ExplainTest, SaysOfATraceWhatTheCommandLineSays) {
  openExplained(kPrimus);
  const std::vector<ExplainedTable> tables = expectedFor(kPrimus);
  RowTree& path = page(QStringLiteral("Critical path"));
  const ExplainedTable& expected = tableOf(tables, ExplainTopic::Path);
  ASSERT_EQ(path.topLevelItemCount(), static_cast<int>(expected.rows.size()));
  for (int i = 0; i < path.topLevelItemCount(); ++i) {
    const ExplainedRow& row = expected.rows[static_cast<std::size_t>(i)];
    for (std::size_t c = 0; c < row.cells.size(); ++c)
      EXPECT_EQ(path.topLevelItem(i)->text(static_cast<int>(c)).toStdString(), row.cells[c]);
  }
  EXPECT_TRUE(said().contains(QStringLiteral("rank 7 (5.3 %)"))) << "as `explain` names the straggler";
  RowTree& slow = page(QStringLiteral("Stragglers"));
  ASSERT_EQ(slow.topLevelItemCount(), 2) << "by kind and by stage: each stage is a rank";
  EXPECT_EQ(slow.topLevelItem(1)->child(0)->text(0), QStringLiteral("stage 7"));
}

TEST_F(ExplainTest, AClickOnARowSelectsItsActionInItsStep) {
  openExplained(kPrimus);
  const std::vector<ExplainedTable> tables = expectedFor(kPrimus);
  const ExplainedTable& stages = tableOf(tables, ExplainTopic::Stages);
  const pw::Job job = *loadJob({.paths = {kPrimus.toStdString()}});
  RowTree& slow = page(QStringLiteral("Stragglers"));
  for (const ExplainedRow& expected : stages.rows) {
    click(slow, row(slow, QString::fromStdString(expected.cells.front())));
    expectPlace(selected(Source::Measured), expected.place);
    EXPECT_EQ(document().measured()->stepName, job.steps[*expected.place.step].name);
  }
  RowTree& worst = page(QStringLiteral("Worst steps"));
  const ExplainedTable& steps = tableOf(tables, ExplainTopic::WorstSteps);
  for (const ExplainedRow& expected : steps.rows) {
    click(worst, row(worst, QString::fromStdString(expected.cells.front())));
    EXPECT_EQ(document().measured()->stepName, expected.cells.front());
  }
  EXPECT_TRUE(window_->findChild<QComboBox*>()) << "the steps' box";
}

TEST_F(ExplainTest, ABubblesRowSelectsTheIdleTimeBeforeItsAction) {
  openExplained(kPrimus);
  RowTree& bubble = page(QStringLiteral("Bubble"));
  const std::vector<ExplainedTable> tables = expectedFor(kPrimus);
  const ExplainedTable& expected = tableOf(tables, ExplainTopic::Bubble);
  ASSERT_GT(bubble.topLevelItemCount(), 4);
  for (int i = 0; i < 4; ++i) {
    click(bubble, bubble.topLevelItem(i));
    const auto gap = window_->timeline().selectedBubble();
    ASSERT_TRUE(gap) << i;
    EXPECT_EQ(gap->rank.value, expected.rows[static_cast<std::size_t>(i)].place.worker->value);
    EXPECT_EQ(gap->source, Source::Measured);
  }
}

TEST_F(ExplainTest, GoesByKeyboard) {
  openExplained(kPrimus);
  RowTree& slow = page(QStringLiteral("Stragglers"));
  slow.setFocus();
  slow.setCurrentItem(slow.topLevelItem(0));
  QTest::keyClick(&slow, Qt::Key_Down);
  QTest::keyClick(&slow, Qt::Key_Return);
  ASSERT_TRUE(settle());
  waitForNextTurn();
  const std::vector<ExplainedTable> tables = expectedFor(kPrimus);
  expectPlace(selected(Source::Measured), tableOf(tables, ExplainTopic::Kinds).rows.front().place);
  EXPECT_FALSE(slow.accessibleName().isEmpty());
  EXPECT_TRUE(slow.currentItem()->data(0, Qt::AccessibleTextRole).toString().contains(QStringLiteral("F, +"))) << "a row as one text";
}

TEST_F(ExplainTest, WorkersOfReplicasAreRanksOfTheTrace) {
  openExplained(kReplicas);
  const std::vector<ExplainedTable> tables = expectedFor(kReplicas);
  RowTree& slow = page(QStringLiteral("Stragglers"));
  int shown = 0;
  for (const ExplainedRow& expected : tableOf(tables, ExplainTopic::Workers).rows) {
    click(slow, row(slow, QString::fromStdString(expected.cells.front())));
    expectPlace(selected(Source::Measured), expected.place);
    EXPECT_EQ("worker " + std::to_string(expected.place.worker->value), expected.cells.front());
    ++shown;
  }
  EXPECT_EQ(shown, 8);
}

TEST_F(ExplainTest, StepsOfAJobArePutTogetherFromItsTimes) {
  const QString file = folder_.filePath(QStringLiteral("job.json"));
  ASSERT_EQ(QProcess::execute(QStringLiteral(PIPEWRIGHT), {QStringLiteral("import"), kReplicas, QStringLiteral("--out"), file}), 0);
  openExplained(file);
  ASSERT_TRUE(document().measured());
  EXPECT_TRUE(document().measured()->isReplayed);
  EXPECT_EQ(scene().measuredName, QStringLiteral("replayed")) << "nothing is called measured that was not";
  const pw::Job job = *loadJob({.paths = {file.toStdString()}});
  const std::vector<ExplainedTable> tables = expectedFor(file);
  RowTree& worst = page(QStringLiteral("Worst steps"));
  const ExplainedRow& expected = tableOf(tables, ExplainTopic::WorstSteps).rows.front();
  click(worst, worst.topLevelItem(0));
  EXPECT_EQ(document().measured()->stepName, expected.cells.front());
  // It is said which step that is, and the usual one is beside it.
  EXPECT_EQ(scene().measuredName, QString::fromStdString(expected.cells.front() + ", replayed"));
  auto* const usual = replayedSteps();
  ASSERT_TRUE(usual && usual->isVisible());
  ASSERT_EQ(usual->count(), 2);
  EXPECT_TRUE(usual->currentText().contains(QString::fromStdString(expected.cells.front()))) << usual->currentText().toStdString();
  const auto one = document().measured();
  click(worst, worst.topLevelItem(1));
  EXPECT_EQ(usual->count(), 2) << "only the last besides the usual one";
  usual->setCurrentIndex(0);
  emit usual->activated(0);
  EXPECT_EQ(document().measured()->stepName, "");
  EXPECT_EQ(scene().measuredName, QStringLiteral("replayed"));
  click(worst, worst.topLevelItem(0));
  EXPECT_EQ(document().measured()->trace, one->trace);
  // A copy of its pipeline, no longer than the step was for all copies, but for the 0.01 % that replays of this job are off.
  const auto makespan = static_cast<double>(document().measured()->metrics->makespan);
  const auto whole = static_cast<double>(job.steps[*expected.place.step].makespan);
  EXPECT_LE(makespan, 1.0001 * whole);
  EXPECT_GT(makespan, whole / 2);
}

TEST_F(ExplainTest, CanBeStoppedBetweenReplays) {
  openExplained(sample("gpt_small.pt2"));
  const std::vector<Explainable> all = explainableIn(document());
  ASSERT_EQ(all.size(), 1U);
  int asked = 0;
  EXPECT_TRUE(explained(all.front(), [&](std::int64_t, std::int64_t) { return ++asked > 0; }));
  ASSERT_GT(asked, 2);
  EXPECT_FALSE(explained(all.front(), [left = asked / 2](std::int64_t, std::int64_t) mutable { return --left > 0; }));
}

TEST_F(ExplainTest, ExplainsThePlanWhereNothingIsMeasured) {
  openExplained(sample("gpt_small.pt2"));
  ASSERT_TRUE(document().prediction());
  EXPECT_TRUE(said().contains(QStringLiteral("<p>Predicted step "))) << said().toStdString();
  RowTree& path = page(QStringLiteral("Critical path"));
  ASSERT_GT(path.topLevelItemCount(), 0);
  click(path, row(path, QStringLiteral("F")));
  const auto shown = selected(Source::Predicted);
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->second.kind, SpanKind::Forward);
  // Another plan is explained as soon as it is predicted.
  document().edit(QStringLiteral("microbatches"), [](Design& design) { design.request.microbatches *= 2; });
  ASSERT_TRUE(settle());
  const QString before = path.topLevelItem(0)->text(1);
  document().undo();
  ASSERT_TRUE(settle());
  EXPECT_NE(path.topLevelItem(0)->text(1), before);
}

TEST_F(ExplainTest, StepsOfARunComeFromItsStore) {
  open(sample("gpt_small.pt2"));
  // A run does not record how long a message waits for its link: here for no other's, and microbatches are so large that it takes no time.
  const NodeId middle = findSplit(*document().graph(), "blocks.2");
  document().edit(QStringLiteral("ranks"), [&](Design& design) {
    design.request.ranks = 2;
    design.request.begins = {middle};
    design.request.microbatch = 64;
  });
  ASSERT_TRUE(settle());
  const Plan plan = document().plan();
  RunRecord run;
  run.startedAt = "2024-11-22T14:03:00Z";
  run.transport = Transport::Ucx;
  run.plan = plan;
  run.predicted = simulate(plan.schedule, plan.costs);
  for (int step = 0; step < 6; ++step) {
    CostTable costs = plan.costs;
    if (step == 4) costs.stages[1].backward *= 2;
    run.steps.push_back({step, 2.5, simulate(plan.schedule, costs)});
  }
  const RunId id = RunStore(document().storePath().toStdString(), RunStore::Mode::ReadWrite).add(run);
  window_->runs().refresh();
  window_->runs().chooseRun(id);
  ASSERT_TRUE(QTest::qWaitFor([this] { return document().measured() != nullptr; }, kLongMs));
  window_->showPanel(Panel::Explain);
  ASSERT_TRUE(QTest::qWaitFor([this] { return panel().isVisible(); }, kLongMs));
  ASSERT_TRUE(settle());
  RowTree& worst = page(QStringLiteral("Worst steps"));
  ASSERT_GT(worst.topLevelItemCount(), 0) << said().toStdString();
  EXPECT_EQ(worst.topLevelItem(0)->text(0), QStringLiteral("step 4"));
  click(worst, worst.topLevelItem(0));
  EXPECT_EQ(document().measured()->step, 4);
  const auto shown = selected(Source::Measured);
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->second.stage, Stage(1));
  EXPECT_EQ(shown->second.kind, SpanKind::Backward);
  // The predicted plan is explained where it is chosen.
  auto* source = panel().findChild<QComboBox*>();
  ASSERT_EQ(source->count(), 2);
  source->setCurrentIndex(1);
  emit source->activated(1);
  ASSERT_TRUE(settle());
  RowTree& path = page(QStringLiteral("Critical path"));
  click(path, path.topLevelItem(0));
  EXPECT_TRUE(selected(Source::Predicted));
  // And a plan can be made of it, whose usual step is as long as that of the run's steps which were as predicted.
  const Ns predicted = document().prediction()->makespan;
  for (QAction* action : window_->commands()) {
    if (action->shortcut() == QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_R)) action->trigger();
  }
  ASSERT_TRUE(settle());
  ASSERT_TRUE(document().design().job);
  EXPECT_NEAR(static_cast<double>(document().prediction()->makespan), static_cast<double>(predicted),
              0.01 * static_cast<double>(predicted));
  EXPECT_TRUE(document().measured()->run) << "its measured lanes stay";
}

TEST_F(ExplainTest, RowsLeadWhereTheyWereFoundUntilOthersAreThere) {
  open(kPrimus);
  for (QAction* action : window_->commands()) {
    if (action->shortcut() == QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_R)) action->trigger();
  }
  ASSERT_TRUE(settle());
  window_->showPanel(Panel::Explain);
  ASSERT_TRUE(QTest::qWaitFor([this] { return panel().isVisible(); }, kLongMs));
  ASSERT_TRUE(settle());
  auto* source = panel().findChild<QComboBox*>();
  ASSERT_GE(source->count(), 2);
  QSignalSpy chosen(&panel(), &ExplainPanel::placeChosen);
  RowTree& path = page(QStringLiteral("Critical path"));
  const auto clickFirst = [&] {
    QTest::mouseClick(path.viewport(), Qt::LeftButton, {}, path.visualItemRect(path.topLevelItem(0)).center());
    return chosen.isEmpty() ? std::nullopt : std::optional(chosen.takeLast()[0].value<ExplainedPlace>());
  };
  const auto before = clickFirst();
  ASSERT_TRUE(before);
  source->setCurrentIndex(source->count() - 1);
  emit source->activated(source->count() - 1);
  ASSERT_FALSE(panel().isIdle()) << "the next one is being found";
  const auto meanwhile = clickFirst();
  ASSERT_TRUE(meanwhile);
  EXPECT_EQ(meanwhile->of, before->of);
  EXPECT_EQ(meanwhile->job, before->job);
  ASSERT_TRUE(settle());
  const auto after = clickFirst();
  ASSERT_TRUE(after);
  EXPECT_EQ(after->of, ExplainedOf::Plan);
}

TEST_F(ExplainTest, CanBeCancelledAndBeginsAgainWhereItIsChosen) {
  openExplained(kPrimus);
  QPushButton* cancel = nullptr;
  for (QPushButton* button : panel().findChildren<QPushButton*>()) {
    if (button->text() == QStringLiteral("&Cancel")) cancel = button;
  }
  ASSERT_NE(cancel, nullptr);
  ClickWhenShown click(*cancel);
  window_->open({kReplicas});
  ASSERT_TRUE(QTest::qWaitFor([&] { return click.isDone(); }, kLongMs)) << "it reads the trace";
  ASSERT_TRUE(settle());
  EXPECT_TRUE(said().startsWith(QStringLiteral("Not explained"))) << said().toStdString();
  EXPECT_EQ(page(QStringLiteral("Critical path")).topLevelItemCount(), 0);
  emit panel().findChild<QComboBox*>()->activated(0);
  ASSERT_TRUE(settle());
  EXPECT_GT(page(QStringLiteral("Critical path")).topLevelItemCount(), 0);
}

TEST_F(ExplainTest, FitsASmallWindow) {
  window_->resize(1024, 700);
  openExplained(kReplicas);
  RowTree& slow = page(QStringLiteral("Stragglers"));
  EXPECT_GE(slow.viewport()->height(), 3 * slow.visualItemRect(slow.topLevelItem(0)).height());
  EXPECT_LE(window_->width(), 1024);
  EXPECT_LE(window_->height(), 700);
}

}  // namespace
}  // namespace pw::gui
