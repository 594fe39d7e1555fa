#include "app/gui/window/autosave.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QAbstractButton>
#include <QAction>
#include <QApplication>
#include <QDateTime>
#include <QFile>
#include <QFileInfo>
#include <QLineEdit>
#include <QMessageBox>
#include <QTemporaryDir>
#include <QTest>
#include <QTimer>
#include <QToolButton>
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "app/gui/cluster/dialog.h"
#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "app/gui/window/main_window.h"
#include "backends/host/files.h"
#include "tests/app/gui/constants.h"

namespace pw::gui {
namespace {

/// A number no process has: beyond the kernel's largest (2^22).
const QString kGone = QStringLiteral("4999999.pwproj");

/// Answers the next questions with these buttons, as each is asked, and notes both.
void answer(std::vector<QMessageBox::StandardButton> buttons, QStringList* questions = nullptr) {
  auto* timer = new QTimer(qApp);
  QObject::connect(timer, &QTimer::timeout, qApp, [timer, buttons = std::move(buttons), questions, next = std::size_t{0}]() mutable {
    auto* box = qobject_cast<QMessageBox*>(QApplication::activeModalWidget());
    if (box == nullptr) return;
    QAbstractButton* button = box->button(buttons[next++]);  // none: Escape
    if (questions != nullptr) *questions << box->text() + QLatin1Char(' ') + (button != nullptr ? button->text() : QString());
    if (next == buttons.size()) {
      timer->deleteLater();
      timer->stop();
    }
    button != nullptr ? QTest::mouseClick(button, Qt::LeftButton) : QTest::keyClick(box, Qt::Key_Escape);
  });
  timer->start(10);
}

struct Autosave : testing::Test {
  void SetUp() override {
    for (const QString& path : leftBehind()) QFile::remove(path);
    left = QFileInfo(autosavePath()).path() + QLatin1Char('/') + kGone;
  }
  void TearDown() override {
    QFile::remove(left);
    QFile::remove(autosavePath());
  }
  QString left;
};

TEST_F(Autosave, FindsWhatAProcessThatIsGoneLeftBehind) {
  EXPECT_TRUE(leftBehind().isEmpty());
  writeFile(autosavePath().toStdString(), "{}");
  EXPECT_TRUE(leftBehind().isEmpty()) << "this process is alive";
  writeFile(left.toStdString(), "{}");
  EXPECT_EQ(leftBehind(), QStringList{left});
  forget(left);
  EXPECT_TRUE(leftBehind().isEmpty());
}

TEST_F(Autosave, TellsALivingProcessByItsLockAndNotByItsNumber) {
  // The first process of the machine is alive, but did not write this.
  left = QFileInfo(autosavePath()).path() + QStringLiteral("/1.pwproj");
  writeFile(left.toStdString(), "{}");
  EXPECT_EQ(leftBehind(), QStringList{left});
  const pid_t other = fork();
  if (other == 0) {  // a process that lives: it holds the lock until it is killed
    const int fd = ::open((left.chopped(7) + QStringLiteral(".lock")).toLocal8Bit().constData(), O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ::flock(fd, LOCK_EX) != 0) ::_exit(1);
    for (;;) ::pause();
  }
  ASSERT_TRUE(QTest::qWaitFor([] { return leftBehind().isEmpty(); }, kLongMs));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  EXPECT_EQ(leftBehind(), QStringList{left}) << "killed";
  forget(left);
}

TEST_F(Autosave, KeepsUnsavedWorkAndBringsItBackAfterACrash) {
  Design crashed;
  {
    MainWindow window(true);
    window.show();
    window.open({QStringLiteral(PW_SOURCE_DIR "/resources/models/gpt_small.pt2")});
    ASSERT_TRUE(QTest::qWaitFor([&] { return window.isIdle() && window.document().graph() != nullptr; }, kLongMs));
    EXPECT_FALSE(QFile::exists(autosavePath()));
    window.document().edit("Microbatches", [](Design& d) { d.request.microbatches = 13; });
    crashed = window.document().design();
    ASSERT_TRUE(QTest::qWaitFor([&] { return QFile::exists(autosavePath()); }, kLongMs));
    ASSERT_TRUE(QFile::rename(autosavePath(), left));  // as if this process were gone
  }
  MainWindow window(true);
  QStringList questions;
  answer({QMessageBox::Yes}, &questions);
  window.show();
  ASSERT_TRUE(QTest::qWaitFor([&] { return window.isIdle() && window.document().graph() != nullptr; }, kLongMs));
  ASSERT_EQ(questions.size(), 1);
  EXPECT_TRUE(questions[0].endsWith(" &Restore")) << questions[0].toStdString();
  EXPECT_EQ(window.document().design(), crashed);
  EXPECT_TRUE(window.document().isModified()) << "it was never saved";
  EXPECT_FALSE(QFile::exists(left));

  answer({QMessageBox::Cancel});
  EXPECT_FALSE(window.close()) << "unsaved work is asked about";
  answer({QMessageBox::Discard});
  EXPECT_TRUE(window.close());
}

// What is typed there may still become part of the plan, which is asked about after it.
TEST_F(Autosave, ClosingTheWindowAsksAboutAnEditedClusterFirst) {
  MainWindow window(true);
  window.show();
  window.open({QStringLiteral(PW_SOURCE_DIR "/resources/models/gpt_small.pt2")});
  ASSERT_TRUE(QTest::qWaitFor([&] { return window.isIdle() && window.document().graph() != nullptr; }, kLongMs));
  const auto buttons = window.findChildren<QToolButton*>();
  QTest::mouseClick(*std::ranges::find(buttons, QStringLiteral("Edit cluster"), &QWidget::accessibleName), Qt::LeftButton);
  auto* editor = window.findChild<ClusterDialog*>();
  ASSERT_NE(editor, nullptr);
  const auto fields = editor->findChildren<QLineEdit*>();
  auto* field = *std::ranges::find(fields, QStringLiteral("Latency within a node"), &QWidget::accessibleName);
  field->selectAll();
  QTest::keyClicks(field, QStringLiteral("7 us"));
  const Design before = window.document().design();
  QStringList questions;
  answer({QMessageBox::Cancel}, &questions);
  EXPECT_FALSE(window.close());
  EXPECT_TRUE(editor->isVisible() && window.isVisible());
  EXPECT_EQ(window.document().design(), before);
  answer({QMessageBox::Apply, QMessageBox::Cancel}, &questions);
  EXPECT_FALSE(window.close()) << "it is now unsaved work";
  EXPECT_FALSE(editor->isVisible());
  EXPECT_NE(window.document().design().cluster, before.cluster);
  ASSERT_EQ(questions.size(), 3) << questions.join('\n').toStdString();
  EXPECT_TRUE(questions[0].startsWith("The changes of this cluster") && questions[1].startsWith("The changes of this cluster"));
  EXPECT_TRUE(questions[2].contains("Save")) << questions[2].toStdString();
  answer({QMessageBox::Discard}, &questions);
  EXPECT_TRUE(window.close());
}

/// A window as a user has it, with a sample model that is edited.
struct Crash : Autosave {
  static QString sample(const char* name) { return QStringLiteral(PW_SOURCE_DIR "/resources/models/") + QLatin1String(name); }
  static bool open(MainWindow& window, const QString& path) {
    window.open({path});
    return QTest::qWaitFor([&] { return window.isIdle() && window.document().graph() != nullptr; }, kLongMs);
  }
  /// Moves what this process keeps to where a process that is gone would have it, so old.
  static bool leaveAs(const QString& path, int secondsAgo) {
    if (!QTest::qWaitFor([] { return QFile::exists(autosavePath()); }, kLongMs) || !QFile::rename(autosavePath(), path)) return false;
    QFile file(path);
    return file.open(QIODevice::ReadWrite) &&
           file.setFileTime(QDateTime::currentDateTime().addSecs(-secondsAgo), QFileDevice::FileModificationTime);
  }
  /// Restores what was left behind.
  static void restoreIn(MainWindow& window) {
    answer({QMessageBox::Yes});
    window.show();
    ASSERT_TRUE(QTest::qWaitFor([&] { return window.isIdle() && window.document().graph() != nullptr; }, kLongMs));
  }
};

TEST_F(Crash, EachPlanThatWasLeftIsAskedAboutNewestFirst) {
  const QString older = QFileInfo(left).path() + QStringLiteral("/4999998.pwproj");
  for (const auto& [name, path, age] : {std::tuple("gpt_small.pt2", older, 100), std::tuple("vit_small.pt2", left, 10)}) {
    MainWindow window(true);
    window.show();
    ASSERT_TRUE(open(window, sample(name)));
    window.document().edit("Microbatches", [](Design& d) { d.request.microbatches = 13; });
    ASSERT_TRUE(leaveAs(path + ".later", age));  // so that the second window does not ask about the first one's
  }
  for (const QString& path : {older, left}) ASSERT_TRUE(QFile::rename(path + ".later", path));
  ASSERT_EQ(leftBehind(), (QStringList{left, older}));
  MainWindow window(true);
  QStringList questions;
  answer({QMessageBox::No, QMessageBox::Yes}, &questions);
  window.show();
  ASSERT_TRUE(QTest::qWaitFor([&] { return window.isIdle() && window.document().graph() != nullptr; }, kLongMs));
  ASSERT_EQ(questions.size(), 2);
  EXPECT_TRUE(questions[0].contains("vit_small")) << questions[0].toStdString();
  EXPECT_TRUE(questions[1].contains("gpt_small")) << questions[1].toStdString();
  EXPECT_EQ(window.document().title(), "gpt_small");
  EXPECT_TRUE(leftBehind().isEmpty());
}

TEST_F(Crash, APlanStaysWhereTheQuestionIsClosedAndIsKeptAnewBeforeItIsRestored) {
  {
    MainWindow window(true);
    window.show();
    ASSERT_TRUE(open(window, sample("gpt_small.pt2")));
    window.document().edit("Microbatches", [](Design& d) { d.request.microbatches = 13; });
    ASSERT_TRUE(leaveAs(left, 100'000));
  }
  QStringList questions;
  {
    MainWindow window(true);
    answer({QMessageBox::NoButton}, &questions);
    window.show();
    ASSERT_TRUE(QTest::qWaitFor([&] { return questions.size() == 1 && QApplication::activeModalWidget() == nullptr; }, kLongMs));
    EXPECT_TRUE(questions[0].contains(QDateTime::currentDateTime().addSecs(-100'000).toString("d MMM yyyy, HH:mm")))
        << questions[0].toStdString();
    EXPECT_EQ(leftBehind(), QStringList{left});
  }
  MainWindow window(true);
  restoreIn(window);
  EXPECT_TRUE(leftBehind().isEmpty());
  EXPECT_TRUE(QFile::exists(autosavePath())) << "at once, not only when the timer ends";
}

TEST_F(Crash, APlanThatIsRestoredKeepsItsNameAndAProjectItsFile) {
  const QTemporaryDir folder;
  const QString file = folder.filePath("mine.pwproj");
  for (const bool isSaved : {false, true}) {
    {
      MainWindow window(true);
      window.show();
      ASSERT_TRUE(open(window, isSaved ? file : sample("gpt_small.pt2")));
      window.document().edit("Microbatches", [&](Design& d) { d.request.microbatches = isSaved ? 13 : 12; });
      ASSERT_TRUE(leaveAs(left, 10));
    }
    MainWindow window(true);
    restoreIn(window);
    EXPECT_EQ(window.document().title(), isSaved ? "mine" : "gpt_small");
    EXPECT_EQ(window.document().projectPath(), isSaved ? file : QString());
    EXPECT_TRUE(window.isWindowModified());
    EXPECT_TRUE(window.windowTitle().startsWith(isSaved ? "mine[*]" : "gpt_small[*]")) << window.windowTitle().toStdString();
    ASSERT_TRUE(window.saveProject(file));
    EXPECT_FALSE(window.document().isModified());
  }
}

TEST_F(Crash, NotesWithoutAPlanAreAskedAboutAsSuch) {
  Project notes;
  notes.design.notes = {{"late", 0, {}}};
  notes.unsaved = UnsavedProject{};
  writeFile(left.toStdString(), toJson(notes));
  EXPECT_TRUE(unsavedPlan(left).startsWith("unsaved notes (")) << unsavedPlan(left).toStdString();
  notes.unsaved->title = "trace.json";
  writeFile(left.toStdString(), toJson(notes));
  EXPECT_TRUE(unsavedPlan(left).startsWith("unsaved notes on trace.json (")) << unsavedPlan(left).toStdString();
  notes.unsaved->title = "gpt_small";
  notes.design.models = {"gpt_small.pt2"};
  writeFile(left.toStdString(), toJson(notes));
  EXPECT_TRUE(unsavedPlan(left).startsWith("unsaved plan of gpt_small (")) << unsavedPlan(left).toStdString();
}

TEST_F(Crash, WhatIsPinnedIsKeptAndAskedAbout) {
  {
    MainWindow window(true);
    window.show();
    ASSERT_TRUE(open(window, sample("gpt_small.pt2")));
    const auto& commands = window.commands();
    const auto pin =
        std::ranges::find_if(commands, [](const QAction* action) { return action->shortcut() == QKeySequence(QStringLiteral("Ctrl+I")); });
    ASSERT_NE(pin, commands.end());
    (*pin)->trigger();
    ASSERT_TRUE(leaveAs(left, 10));
    answer({QMessageBox::Cancel});
    EXPECT_FALSE(window.close());
  }
  const auto kept = loadFiles({left.toStdString()}, {});
  ASSERT_EQ(kept->pins.size(), 1U);
  EXPECT_EQ(kept->pins[0].name, "A");
}

}  // namespace
}  // namespace pw::gui
