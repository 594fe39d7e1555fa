// Projects as the window saves and opens them: what is open comes back, also without a plan.
#include <QAction>
#include <QApplication>
#include <QFile>
#include <QMessageBox>
#include <QPushButton>
#include <QTimer>
#include <QTreeView>
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "app/gui/document/notes.h"
#include "app/gui/runs/run_loading.h"
#include "app/gui/timeline/facts/navigation.h"
#include "tests/app/gui/stored_run.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

const QString kTrace = QStringLiteral(PW_SOURCE_DIR "/tests/data/straggler_analysis/timeline-ST.json.gz");

struct ProjectOfATrace : WindowFixture {
  /// Opens the trace at its fourth step, with a note at a block of rank 6.
  void openAndNote(const QString& trace) {
    open(trace);
    window_->showStep(4);
    window_->timeline().select({Source::Measured, {Rank(6), TrackKind::Compute, 3}});
    ASSERT_TRUE(addNote(document(), {"late", 0, blockName(window_->timeline().scene(), *window_->timeline().scene().selected)}));
    ASSERT_TRUE(settle());
    ASSERT_EQ(document().design().notes.size(), 1U);
  }
  const QString path = folder_.filePath(QStringLiteral("noted.pwproj"));
};

TEST_F(ProjectOfATrace, BringsTheTraceBackAtTheSameStepWithItsNotes) {
  openAndNote(kTrace);
  const auto before = document().measured();
  const auto flags = window_->timeline().scene().notes;
  ASSERT_TRUE(flags.front().span) << "at its block";
  ASSERT_TRUE(window_->saveProject(path));
  EXPECT_FALSE(document().isModified());
  open(sample("gpt_small.pt2"));
  EXPECT_FALSE(document().measured());
  open(path);
  ASSERT_TRUE(document().measured()) << window_->message().toStdString();
  EXPECT_EQ(document().measured()->trace, before->trace);
  EXPECT_EQ(document().measured()->title, before->title);
  EXPECT_FALSE(document().graph());
  EXPECT_FALSE(document().isModified());
  EXPECT_EQ(document().problem(), QString());
  EXPECT_TRUE(window_->message().isEmpty()) << window_->message().toStdString();
  ASSERT_EQ(window_->timeline().scene().notes.size(), 1U);
  EXPECT_EQ(window_->timeline().scene().notes.front().span, flags.front().span);
  window_->showStep(5);
  EXPECT_NE(document().measured()->title, before->title) << "with its other steps";
}

TEST_F(ProjectOfATrace, WhoseTraceIsGoneIsRefusedInASentence) {
  const QString own = folder_.filePath(QStringLiteral("own.json.gz"));
  ASSERT_TRUE(QFile::copy(kTrace, own));
  openAndNote(own);
  ASSERT_TRUE(window_->saveProject(path));
  ASSERT_TRUE(QFile::remove(own));
  open(path);
  EXPECT_TRUE(window_->message().contains(own + QStringLiteral(", the trace of this project, does not exist")))
      << window_->message().toStdString();
}

TEST_F(ProjectOfATrace, BesideAPlanIsNotNeededByThePlan) {
  open(sample("gpt_small.pt2"));
  const QString own = folder_.filePath(QStringLiteral("own.json.gz"));
  ASSERT_TRUE(QFile::copy(kTrace, own));
  open(own);
  ASSERT_TRUE(document().measured());
  ASSERT_TRUE(window_->saveProject(path));
  open(sample("gpt_small.pt2"));
  open(path);
  EXPECT_TRUE(document().measured());
  EXPECT_TRUE(document().prediction());
  ASSERT_TRUE(QFile::remove(own));
  open(path);
  EXPECT_FALSE(document().measured());
  EXPECT_TRUE(document().prediction());
  EXPECT_TRUE(window_->message().contains(QStringLiteral("the trace of this project"))) << window_->message().toStdString();
}

// A run of a store, with no plan open: notes are of what it shows, and come back with it.
struct ProjectOfARun : WindowFixture {
  void SetUp() override {
    WindowFixture::SetUp();
    open(sample("gpt_small.pt2"));
    plan = document().plan();
    run = storeRun(store.toStdString(), plan, {1, 1.5, 1.2, 1});
    openAndNote(false);
  }
  /// The run at its second step, with a note at a block.
  void openAndNote(bool asks) {
    newWindow(asks);
    open(store);
    window_->runs().chooseRun(run, 1);
    ASSERT_TRUE(QTest::qWaitFor([this] { return document().measured() != nullptr; }, kLongMs));
    window_->timeline().select({Source::Measured, {Rank(1), TrackKind::Compute, 3}});
    ASSERT_TRUE(addNote(document(), {"late", 0, blockName(window_->timeline().scene(), *window_->timeline().scene().selected),
                                     runNameOf(*document().measured()->run)}));
  }
  void newWindow(bool asks = false) {
    window_ = std::make_unique<MainWindow>(asks);
    window_->show();
  }
  [[nodiscard]] QTreeView& history() const { return *window_->runs().findChild<QTreeView*>(QStringLiteral("history")); }
  void loadPlan() {
    const auto actions = history().actions();
    (*std::ranges::find(actions, QStringLiteral("Load its plan"), &QAction::text))->trigger();
    ASSERT_TRUE(QTest::qWaitFor([this] { return document().graph() != nullptr && settle(); }, kLongMs)) << window_->message().toStdString();
  }
  void replan() {
    const auto& commands = window_->commands();
    (*std::ranges::find(commands, QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_R), &QAction::shortcut))->trigger();
    ASSERT_TRUE(QTest::qWaitFor([this] { return document().design().job != nullptr && settle(); }, kLongMs))
        << window_->message().toStdString();
  }
  /// Does what asks a question, which gets this answer; returns the question.
  static QString answer(QMessageBox::StandardButton button, const std::function<void()>& act) {
    QTimer timer;
    bool isAsked = false;
    QString question;
    QObject::connect(&timer, &QTimer::timeout, &timer, [&] {
      auto* box = qobject_cast<QMessageBox*>(QApplication::activeModalWidget());
      if (box == nullptr) return;
      isAsked = true;
      question = box->text();
      QTest::mouseClick(box->button(button), Qt::LeftButton);
    });
    timer.start(10);
    act();
    EXPECT_TRUE(isAsked);
    return question;
  }
  const QString store = folder_.filePath(QStringLiteral("stored.db")), path = folder_.filePath(QStringLiteral("noted.pwproj"));
  Plan plan;
  RunId run;
};

TEST_F(ProjectOfARun, BringsTheRunBackAtTheSameStepWithItsNotes) {
  ASSERT_EQ(document().measured()->step, 1) << "not the median";
  const auto trace = document().measured()->trace;
  ASSERT_TRUE(window_->saveProject(path));
  newWindow();
  open(path);
  ASSERT_TRUE(QTest::qWaitFor([this] { return document().measured() != nullptr; }, kLongMs)) << window_->message().toStdString();
  EXPECT_EQ(document().measured()->run->id, run);
  EXPECT_EQ(document().measured()->trace, trace);
  ASSERT_EQ(window_->timeline().scene().notes.size(), 1U);
  EXPECT_TRUE(window_->timeline().scene().notes.front().span) << "at its block";
  EXPECT_FALSE(document().isModified());
}

TEST_F(ProjectOfARun, OrOfATraceIsAskedAboutAsNotes) {
  newWindow(true);
  open(QStringLiteral(PW_SOURCE_DIR "/tests/data/primus/pp8"));
  ASSERT_TRUE(addNote(document(), {"late", 0, {}}));
  EXPECT_EQ(answer(QMessageBox::Discard, [this] { window_->open({sample("gpt_small.pt2")}); }),
            QStringLiteral("There are unsaved notes on pp8. Save them as a project?"));
}

TEST_F(ProjectOfARun, BesideAPlanComesBackWithWhatWasInSight) {
  newWindow();
  open(sample("gpt_small.pt2"));
  document().setStorePath(store);
  window_->runs().chooseRun(run, 1);
  ASSERT_TRUE(QTest::qWaitFor([this] { return document().measured() != nullptr; }, kLongMs));
  window_->timeline().select({Source::Measured, {Rank(1), TrackKind::Compute, 3}});
  window_->timeline().fitSelection();
  const auto selected = window_->timeline().scene().selected;
  const QByteArray view = window_->timeline().saveView();
  ASSERT_TRUE(window_->saveProject(path));
  newWindow();
  open(path);
  ASSERT_TRUE(QTest::qWaitFor([this] { return document().measured() != nullptr; }, kLongMs)) << window_->message().toStdString();
  ASSERT_TRUE(document().prediction());
  EXPECT_EQ(window_->timeline().scene().selected, selected);
  const auto before = parseView(view), after = parseView(window_->timeline().saveView());
  ASSERT_TRUE(before && before->shown && after && after->shown);
  EXPECT_NEAR(after->shown->first, before->shown->first, 1);
  EXPECT_NEAR(after->shown->second, before->shown->second, 1);
  EXPECT_EQ(after->scroll, before->scroll);
}

TEST_F(ProjectOfARun, WhoseRunIsGoneSaysSoAndKeepsTheNotes) {
  ASSERT_TRUE(window_->saveProject(path));
  newWindow();
  ASSERT_TRUE(QFile::remove(store));
  open(path);
  EXPECT_TRUE(QTest::qWaitFor([this] { return window_->message().contains(QStringLiteral("There is no run 1 in stored.db")); }, kLongMs))
      << window_->message().toStdString();
  EXPECT_EQ(document().design().notes.size(), 1U);
  // A run of that number that is recorded later is another one: its median step is shown when it is clicked.
  ASSERT_EQ(storeRun(store.toStdString(), plan, {1, 1.5, 1.2, 1}), run);
  window_->runs().refresh();
  ASSERT_TRUE(QTest::qWaitFor([this] { return window_->runs().runs().size() == 1; }, kLongMs));
  history().selectionModel()->select(history().model()->index(0, 0), QItemSelectionModel::ClearAndSelect | QItemSelectionModel::Rows);
  ASSERT_TRUE(QTest::qWaitFor([this] { return document().measured() != nullptr; }, kLongMs)) << window_->message().toStdString();
  EXPECT_NE(document().measured()->step, 1);
}

TEST_F(ProjectOfARun, OfAStoreThatWasReplacedSaysSoInASentence) {
  ASSERT_TRUE(window_->saveProject(path));
  newWindow();
  ASSERT_TRUE(QFile::remove(store));
  ASSERT_EQ(storeRun(store.toStdString(), plan, {1, 1.5, 1.2, 1}, "2025-01-31T09:10:00Z"), run) << "of the same number";
  open(path);
  const QString sentence =
      QStringLiteral("Run 1 in stored.db is another one, started %1; the one that was shown was started %2: choose one from the list.")
          .arg(whenOf("2025-01-31T09:10:00Z"), whenOf("2024-11-22T14:03:00Z"));
  EXPECT_TRUE(QTest::qWaitFor([&] { return window_->message() == sentence; }, kLongMs)) << window_->message().toStdString();
  EXPECT_FALSE(document().measured());
  EXPECT_TRUE(history().selectionModel()->selectedRows().isEmpty());
}

TEST_F(ProjectOfARun, OfAnOlderVersionNamesItByNumberAlone) {
  ASSERT_TRUE(window_->saveProject(path));
  QFile file(path);
  ASSERT_TRUE(file.open(QIODevice::ReadOnly));
  const QByteArray text = file.readAll();
  file.close();
  nlohmann::json project = nlohmann::json::parse(text.toStdString());
  ASSERT_EQ(project.at("run").erase("started_at"), 1U);
  ASSERT_EQ(project.at("notes").at(0).at("run").erase("started_at"), 1U);
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(QByteArray::fromStdString(project.dump()));
  file.close();
  newWindow();
  open(path);
  EXPECT_TRUE(QTest::qWaitFor([this] { return document().measured() != nullptr; }, kLongMs)) << window_->message().toStdString();
  EXPECT_EQ(window_->timeline().scene().notes.size(), 1U);
}

TEST_F(ProjectOfARun, KeepsItsNotesWhenItsPlanIsLoaded) {
  loadPlan();
  ASSERT_EQ(document().design().notes.size(), 1U);
  EXPECT_EQ(document().design().notes.front().text, "late");
  EXPECT_TRUE(document().isModified()) << "they are not in the plan's file";
}

TEST_F(ProjectOfARun, KeepsItsNotesWhenAPlanIsMadeFromIt) {
  const auto shown = window_->timeline().scene().notes;
  ASSERT_EQ(shown.size(), 1U);
  replan();
  EXPECT_TRUE(document().prediction());
  ASSERT_TRUE(document().measured());
  EXPECT_EQ(document().measured()->run->id, run);
  ASSERT_EQ(document().design().notes.size(), 1U);
  EXPECT_EQ(window_->timeline().scene().notes.front().span, shown.front().span) << "at its block";
  EXPECT_TRUE(document().isModified()) << "they are in no file";
}

TEST_F(ProjectOfARun, NotesThatWereDiscardedDoNotComeBackWhenAPlanIsMadeFromIt) {
  openAndNote(true);
  answer(QMessageBox::Discard, [this] { replan(); });
  EXPECT_TRUE(document().prediction());
  EXPECT_TRUE(document().design().notes.empty());
}

TEST_F(ProjectOfARun, NotesThatWereDiscardedDoNotComeBackWithItsPlan) {
  openAndNote(true);
  answer(QMessageBox::Discard, [this] { loadPlan(); });
  EXPECT_TRUE(document().design().notes.empty());
  EXPECT_FALSE(document().isModified());
}

TEST_F(ProjectOfARun, NotesOnAnotherRunDoNotBecomeThoseOfThePlan) {
  RunRecord other;
  other.id = RunId(run.value + 1);
  other.plan = plan;
  emit window_->runs().openRequested({QString::fromStdString(keepPlan(other))});
  ASSERT_TRUE(QTest::qWaitFor([this] { return document().graph() != nullptr && settle(); }, kLongMs)) << window_->message().toStdString();
  EXPECT_TRUE(document().design().notes.empty());
}

}  // namespace
}  // namespace pw::gui
