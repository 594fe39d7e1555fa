// The Runs panel: history, and children that are tiny shell scripts.
#include "app/gui/runs/panel.h"

#include <gtest/gtest.h>

#include <QAbstractItemModelTester>
#include <QFile>
#include <QLabel>
#include <QPushButton>
#include <QTest>
#include <QTreeView>
#include <fstream>

#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/document/drawn.h"
#include "app/gui/document/project.h"
#include "app/gui/runs/comparison_view.h"
#include "app/gui/runs/run_controls.h"
#include "app/gui/runs/run_list.h"
#include "app/gui/runs/run_loading.h"
#include "simulator/step/cost_table.h"
#include "tests/app/gui/runs/runs_panel_fixture.h"
#include "tests/support/folder.h"

namespace pw::gui {
namespace {

using Fatal = QAbstractItemModelTester::FailureReportingMode;

// ---- History ----

TEST_F(RunsPanelTest, ListsTheRunsOfTheStoreNewestFirst) {
  record(1000);
  record(0, "Rank 1 was ended by SIGKILL");
  auto* view = panel().findChild<QTreeView*>("history");
  auto* list = panel().findChild<RunList*>();
  ASSERT_TRUE(view && list);
  const QAbstractItemModelTester tester(list, Fatal::Fatal);
  ASSERT_EQ(list->rowCount(), 2);
  EXPECT_EQ(list->index(0, RunList::Id).data(), "2");
  EXPECT_EQ(list->index(0, RunList::Backend).data().toString().trimmed(), "ucx");
  EXPECT_EQ(list->index(0, RunList::Measured).data(), "–");
  EXPECT_EQ(list->index(0, RunList::Ended).data().toString().trimmed(), "✕ Rank 1 was ended by SIGKILL");
  EXPECT_EQ(list->index(1, RunList::Id).data(), "1");
  EXPECT_EQ(list->index(1, RunList::Ended).data().toString().trimmed(), "completed, 3 steps");
  EXPECT_TRUE(list->index(1, RunList::Error).data().toString().startsWith("▲ +"));
  record(2000);
  panel().refresh();
  waitFor([&] { return list->rowCount() == 3; });
}

TEST_F(RunsPanelTest, ARunThatHasNotEndedShowsAsUnfinishedWithTheStepsItHas) {
  const int id = record(1000, {}, RunState::Unfinished);
  auto* list = panel().findChild<RunList*>();
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->rowCount(), 1);
  const QModelIndex ended = list->index(0, RunList::Ended);
  EXPECT_EQ(ended.data().toString().trimmed(), "unfinished, 3 steps");
  EXPECT_EQ(ended.data(Qt::ToolTipRole).toString().toStdString(), kUnfinishedRun);
  EXPECT_NE(ended.data(Qt::ForegroundRole).value<QColor>(), currentTheme().error) << "that is no failure";
  choose(id);
  EXPECT_EQ(document.measured()->step, 1) << "what it has is shown";
  RunStore(document.storePath().toStdString(), RunStore::Mode::ReadWrite).end(RunId(id), "");
  panel().refresh();
  waitFor([&] { return list->index(0, RunList::Ended).data().toString().trimmed() == "completed, 3 steps"; });
}

TEST_F(RunsPanelTest, OverlaysTheMedianStepOfTheRunThatIsChosenAndThenAnyOther) {
  const int id = record(1000);
  choose(id);
  EXPECT_EQ(document.measured()->step, 1);  // of steps 1 and 2 the shorter; step 0 warms up
  auto* comparison = panel().findChild<ComparisonView*>();
  ASSERT_NE(comparison, nullptr);
  emit comparison->stepChosen(2);
  waitFor([this] { return document.measured()->step == 2; });
  emit comparison->stepChosen(std::nullopt);
  waitFor([this] { return document.measured()->step == 1; });
  panel().showNothing();
  EXPECT_EQ(document.measured(), nullptr);
  EXPECT_TRUE(panel().summary().startsWith("Select a run"));
}

TEST_F(RunsPanelTest, SaysBeforeAndAfterARunThatRanksShareCores) {
  choose(record(1000, {}, RunState::Completed, CostSource::Measured, 2));
  EXPECT_TRUE(panel().summary().contains(QStringLiteral("4 ranks share 2 cores and take turns"))) << panel().summary().toStdString();
  choose(record(1000));
  waitFor([&] { return !panel().summary().contains(QStringLiteral("share")); });
  const auto& controls = *panel().findChild<RunControls*>();
  document.edit("more ranks than any machine has cores", [](Design& d) { d.request.ranks = 1024; });
  waitFor([&] { return controls.text().contains(QStringLiteral("1024 ranks share")); });
  document.edit("one rank", [](Design& d) { d.request.ranks = 1; });
  waitFor([&] { return !controls.text().contains(QStringLiteral("share")); });
}

TEST_F(RunsPanelTest, APlanThatCannotBePredictedCannotBeRunAndTheButtonSaysWhy) {
  const auto* const run = [this] {
    for (const auto* button : panel().findChildren<QPushButton*>())
      if (button->accessibleName() == "Run the plan on this machine") return button;
    throw std::logic_error("the panel has no button to run");
  }();
  EXPECT_TRUE(run->isEnabled());
  document.edit("five ranks", [](Design& d) { d.request.schedule = "dualpipe", d.request.ranks = 5; });
  waitFor([&] { return !document.problem().isEmpty(); });
  EXPECT_FALSE(run->isEnabled());
  EXPECT_EQ(run->toolTip(), document.problem());
  EXPECT_FALSE(finish(&RunsPanel::runFinished, [this] { panel().startRun(1); })) << "by its key";
  EXPECT_EQ(panel().findChild<RunControls*>()->text(), "There is no plan to run: " + document.problem());
  EXPECT_TRUE(sentences.isEmpty()) << sentences.join(" ").toStdString();
  document.undo();
  waitFor([&] { return document.problem().isEmpty() && run->isEnabled(); });
  EXPECT_TRUE(run->toolTip().startsWith("Executes the plan")) << run->toolTip().toStdString();
  EXPECT_FALSE(panel().findChild<RunControls*>()->text().contains("no plan"));
}

TEST_F(RunsPanelTest, SaysWhyAFailedRunShowsNothing) {
  panel().chooseRun(RunId(record(0, "Rank 1 was ended by SIGKILL")));
  waitFor([this] { return panel().summary().contains("Rank 1 was ended by SIGKILL"); });
  EXPECT_EQ(document.measured(), nullptr);
}

TEST_F(RunsPanelTest, LoadsThePlanOfARunAsAnEditThatCanBeUndone) {
  const int id = record(1000);
  const int microbatches = document.design().request.microbatches;
  document.edit("other", [](Design& d) { d.request.microbatches += 3; });
  waitFor([this] { return !document.isPredicting(); });
  choose(id);
  QObject::connect(&panel(), &RunsPanel::openRequested, &panel(),
                   [this](const QStringList& paths) { sentences << "asked to open " + paths.join(", "); });
  for (QAction* action : panel().findChild<QTreeView*>("history")->actions()) {
    if (action->text() == "Load its plan") action->trigger();
  }
  waitFor([&] { return document.design().request.microbatches == microbatches; });
  EXPECT_EQ(document.undoText(), QString("Load the plan of run %1").arg(id));
  document.undo();
  EXPECT_EQ(document.design().request.microbatches, microbatches + 3);
}

TEST_F(RunsPanelTest, LoadsThePlanOfARunWithItsClusterAndKeepsWhatWasDrawnAndNoted) {
  document.edit("H100", [](Design& d) { d.cluster = "h100-nvlink"; });
  waitFor([this] { return !document.isPredicting(); });
  const Ns step = document.prediction()->step;
  const int id = record(1000);
  document.edit("workstation", [](Design& d) { d.cluster = "cpu-workstation"; });
  waitFor([this] { return !document.isPredicting(); });
  Schedule order = std::get<Schedule>(editableSchedule(document));
  std::swap(order.rows[0][1], order.rows[0][2]);
  setDrawn(document, "Swap", std::move(order));
  ASSERT_TRUE(addNote(document, {"a note", 1000, {}}));
  waitFor([this] { return !document.isPredicting(); });
  choose(id);
  EXPECT_TRUE(panel().summary().contains("different plan"));
  for (QAction* action : panel().findChild<QTreeView*>("history")->actions()) {
    if (action->text() == "Load its plan") action->trigger();
  }
  waitFor([&] { return document.design().cluster == "h100-nvlink" && !document.isPredicting(); });
  EXPECT_EQ(document.prediction()->step, step);
  EXPECT_EQ(document.design().request.schedule, "1f1b");
  ASSERT_EQ(document.design().drawn.size(), 1U);
  EXPECT_EQ(document.design().drawn[0]->name, "1f1b, edited");
  EXPECT_EQ(document.design().notes.size(), 1U);
  waitFor([this] { return !panel().summary().contains("different plan"); });
}

TEST_F(RunsPanelTest, AStoreThatCannotBeReadIsOneSentence) {
  record(1000);
  const QString path = folder.filePath("broken.db");
  std::ofstream(path.toStdString())
      << "this is not a database at all, but long enough to have a header of a hundred bytes, which it has, more or less, with this";
  panel();
  document.setStorePath(path);
  waitFor([this] { return !sentences.isEmpty(); });
  EXPECT_TRUE(sentences.front().contains("broken.db is not a Pipewright run store")) << sentences.front().toStdString();
  EXPECT_EQ(panel().runs().size(), 0U);
  document.setStorePath(folder.filePath("runs.db"));
  waitFor([this] { return panel().runs().size() == 1U; });
}

TEST_F(RunsPanelTest, AStoreOfANewerVersionIsShownWithOneSentence) {
  record(1000);
  // SQLite keeps user_version in bytes 60 to 63 of the file, big-endian; the WAL was written back when the store was closed.
  std::fstream file(document.storePath().toStdString(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(63);
  file.put(99);
  file.close();
  panel();
  waitFor([this] { return panel().runs().size() == 1U; });
  QStringList shown;
  for (const QLabel* label : panel().findChildren<QLabel*>()) shown << label->text();
  EXPECT_EQ(shown.filter("is of a newer Pipewright (format 99,").size(), 1) << shown.join('|').toStdString();
  EXPECT_TRUE(sentences.isEmpty());
}

TEST_F(RunsPanelTest, AStoreThatIsNotThereYetIsEmpty) {
  panel();
  EXPECT_EQ(panel().runs().size(), 0U);
  EXPECT_TRUE(sentences.isEmpty());
}

// ---- Runs ----

TEST_F(RunsPanelTest, ShowsSpansAsTheyArriveAndThenTheStoredRun) {
  const int id = record(1000);
  useScript(R"(while [ $# -gt 0 ]; do
  case "$1" in
    --live) live="$2"; shift ;;
  esac
  shift
done
echo '{"rank":0,"step":3,"from":1000000,"spans":[["F",0,0,0,0,0,0,5000]],"memory":[],"done":false}' >> "$live"
echo '{"task":"train","done":1,"all":5,"note":"loss 2.5"}' >&2
while [ ! -e ")" +
            folder.filePath("go").toUtf8() + R"(" ]; do sleep 0.02; done
echo '{"run_id":)" +
            QByteArray::number(id) + "}'\n");
  std::vector<bool> busy;
  QObject::connect(&panel(), &RunsPanel::busyChanged, &panel(), [&](bool b) { busy.push_back(b); });
  const bool ok = finish(&RunsPanel::runFinished, [this] {
    panel().startRun(5);
    EXPECT_TRUE(panel().isBusy());
    waitFor([this] { return document.measured() && document.measured()->live; });
    EXPECT_EQ(document.measured()->title, "running · step 3");
    ASSERT_EQ(document.measured()->trace.spans.size(), 1U);
    EXPECT_EQ(document.measured()->trace.spans[0].end, 5000);
    QFile go(folder.filePath("go"));
    ASSERT_TRUE(go.open(QIODevice::WriteOnly));
  });
  EXPECT_TRUE(ok);
  EXPECT_EQ(busy, (std::vector<bool>{true, false}));
  waitFor([this, id] { return document.measured() && document.measured()->run && document.measured()->run->id.value == id; });
}

TEST_F(RunsPanelTest, ARunThatFailsLeavesWhatWasShown) {
  choose(record(1000));
  const auto before = document.measured();
  const Design design = document.design();
  useScript(R"(while [ "$1" != --live ]; do shift; done
echo '{"rank":0,"step":0,"from":1000000,"spans":[["F",0,0,0,0,0,0,5000]],"memory":[],"done":false}' >> "$2"
while [ ! -e ")" +
            folder.filePath("go").toUtf8() + R"(" ]; do sleep 0.02; done
echo 'pipewright: Rank 1 failed in step 3, action 1F2: the disk is full.' >&2
exit 1
)");
  EXPECT_FALSE(finish(&RunsPanel::runFinished, [this] {
    panel().startRun(2);
    waitFor([this] { return document.measured() && document.measured()->live; });
    QFile go(folder.filePath("go"));
    ASSERT_TRUE(go.open(QIODevice::WriteOnly));
  }));
  EXPECT_EQ(sentences, QStringList{"Rank 1 failed in step 3, action 1F2: the disk is full."});
  EXPECT_EQ(document.measured(), before);
  EXPECT_EQ(document.design(), design);
}

TEST_F(RunsPanelTest, CancelEndsARunWithoutComplaint) {
  useScript(
      "trap 'echo \"pipewright: Interrupted; all ranks have ended.\" >&2; exit 1' INT\necho '{\"done\":0,\"all\":5,\"note\":\"\"}' "
      ">&2\nwhile :; do sleep 0.02; done\n");
  EXPECT_FALSE(finish(&RunsPanel::runFinished, [this] {
    panel().startRun(5);
    panel().cancel();
  })) << "before it was started";
  EXPECT_TRUE(sentences.isEmpty()) << sentences.join(" ").toStdString();
}

TEST_F(RunsPanelTest, AskingForARunWhileThePlanIsPredictedWaitsForIt) {
  useScript("echo '{\"run_id\":0}'\n");
  document.edit("more", [](Design& d) { d.request.microbatches += 1; });
  ASSERT_TRUE(document.isPredicting());
  EXPECT_TRUE(finish(&RunsPanel::runFinished, [this] { panel().startRun(1); }));
}

TEST_F(RunsPanelTest, WithoutAModelOneSentenceSaysSo) {
  Document empty;
  RunsPanel panel(empty);
  QStringList said;
  QObject::connect(&panel, &RunsPanel::failed, &panel, [&](const QString& sentence) { said << sentence; });
  panel.startRun(1);
  panel.startProfile();
  EXPECT_EQ(said.size(), 2);
  EXPECT_FALSE(panel.isBusy());
}

TEST_F(RunsPanelTest, AProfileBecomesOneEditOfTheDesign) {
  Profile measured = *document.profile();
  measured.estimated = false;
  measured.nodes[0].forward += 12345;
  const std::string file = folder.filePath("measured.json").toStdString();
  std::ofstream(file) << toJson(measured);
  useScript(QByteArray("while [ \"$1\" != --out ]; do shift; done\ncp \"") + file.c_str() + "\" \"$2\"\n");
  EXPECT_TRUE(finish(&RunsPanel::profileFinished, [this] { panel().startProfile(); }));
  ASSERT_NE(document.design().profile, nullptr);
  EXPECT_EQ(*document.design().profile, measured);
  EXPECT_EQ(document.undoText(), "Use measured profile");
  document.undo();
  EXPECT_EQ(document.design().profile, nullptr);
}

TEST_F(RunsPanelTest, AProfileThatIsNoneLeavesTheDesign) {
  useScript("while [ \"$1\" != --out ]; do shift; done\necho nonsense > \"$2\"\n");
  EXPECT_FALSE(finish(&RunsPanel::profileFinished, [this] { panel().startProfile(); }));
  EXPECT_EQ(sentences.size(), 1);
  EXPECT_EQ(document.design().profile, nullptr);
}

TEST_F(RunsPanelTest, RunsAndProfilesComputeAsTheCostsInUseWereMeasured) {
  Profile measured = *document.profile();
  measured.estimated = false;
  measured.computing.precision = DType::BFloat16;
  const QString words = folder.filePath("words");
  useScript("echo \"$@\" > \"" + words.toUtf8() + "\"\necho '{\"run_id\":0}'\n");
  document.edit("Use measured profile", [&](Design& design) { design.profile = std::make_shared<const Profile>(measured); });
  const auto said = [&] { return test::contentOf(words.toStdString()); };
  EXPECT_TRUE(finish(&RunsPanel::runFinished, [this] { panel().startRun(1); }));
  EXPECT_NE(said().find("--backend ucx"), std::string::npos) << said();
  EXPECT_NE(said().find("--precision bf16"), std::string::npos) << said();
  finish(&RunsPanel::profileFinished, [this] { panel().startProfile(); });
  EXPECT_NE(said().find("--precision bf16 --device cpu"), std::string::npos) << said();
}

}  // namespace
}  // namespace pw::gui
