#include "app/gui/window/autosave.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QAbstractButton>
#include <QApplication>
#include <QFile>
#include <QFileInfo>
#include <QMessageBox>
#include <QTest>
#include <QTimer>

#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/window/main_window.h"
#include "backends/host/files.h"
#include "tests/app/gui/constants.h"

namespace pw::gui {
namespace {

/// A number no process has: beyond the kernel's largest (2^22).
const QString kGone = QStringLiteral("4999999.pwproj");

/// Answers the next question with a button, once one is asked.
void answer(QMessageBox::StandardButton button, const QString& text = {}) {
  auto* timer = new QTimer(qApp);
  QObject::connect(timer, &QTimer::timeout, qApp, [timer, button, text] {
    auto* box = qobject_cast<QMessageBox*>(QApplication::activeModalWidget());
    if (box == nullptr) return;
    timer->deleteLater();
    timer->stop();
    if (!text.isEmpty()) {
      EXPECT_EQ(box->button(button)->text(), text);
    }
    QTest::mouseClick(box->button(button), Qt::LeftButton);
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
  answer(QMessageBox::Yes, "&Restore");
  window.show();
  ASSERT_TRUE(QTest::qWaitFor([&] { return window.isIdle() && window.document().graph() != nullptr; }, kLongMs));
  EXPECT_EQ(window.document().design(), crashed);
  EXPECT_TRUE(window.document().isModified()) << "it was never saved";
  EXPECT_FALSE(QFile::exists(left));

  answer(QMessageBox::Cancel);
  EXPECT_FALSE(window.close()) << "unsaved work is asked about";
  answer(QMessageBox::Discard);
  EXPECT_TRUE(window.close());
}

}  // namespace
}  // namespace pw::gui
