// Child processes against tiny shell scripts.
#include "app/gui/runs/child.h"
#include "tests/app/gui/constants.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QElapsedTimer>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>
#include <optional>
#include <vector>

namespace pw::gui {
namespace {

/// Whether a process runs (a zombie does not).
bool isAlive(qint64 pid) {
  QFile stat(QStringLiteral("/proc/%1/stat").arg(pid));
  if (!stat.open(QIODevice::ReadOnly)) return false;
  const QByteArray text = stat.readAll();
  const qsizetype name = text.lastIndexOf(") ");
  return name >= 0 && text[name + 2] != 'Z' && text[name + 2] != 'X';
}

class ChildTest : public testing::Test {
 protected:
  void SetUp() override {
    QObject::connect(&child, &Child::finished, &child, [this](const ChildOutcome& o) { outcome = o; });
    QObject::connect(&child, &Child::progressed, &child, [this](qint64 done, qint64 all, const QString& note) {
      seen.push_back({done, all, note});
    });
  }
  QString script(const QByteArray& text) {
    const QString path = folder.filePath(QStringLiteral("pipewright"));
    QFile file(path);
    EXPECT_TRUE(file.open(QIODevice::WriteOnly | QIODevice::Truncate));
    file.write("#!/bin/sh\n" + text);
    file.close();
    file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    return path;
  }
  ChildOutcome finish(const QByteArray& text, const QStringList& arguments = {}) {
    child.start(script(text), arguments);
    return wait();
  }
  ChildOutcome wait() {
    EXPECT_TRUE(QTest::qWaitFor([this] { return outcome.has_value(); }, kLongMs));
    EXPECT_FALSE(child.isRunning());
    return outcome.value_or(ChildOutcome{});
  }
  /// Waits for a line of progress; it then runs what comes after.
  void waitForProgress() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !seen.empty(); }, kLongMs));
  }

  struct Seen {
    qint64 done, all;
    QString note;
    bool operator==(const Seen&) const = default;
  };
  QTemporaryDir folder;
  Child child;
  std::optional<ChildOutcome> outcome;
  std::vector<Seen> seen;
};

TEST_F(ChildTest, GivesProgressOutputAndStatus) {
  const ChildOutcome o = finish(R"(echo '{"task":"t","done":1,"all":3,"note":"loss 2.5"}' >&2
echo '{"task":"t","done":3,"all":3,"note":""}' >&2
echo "{\"run_id\":$1}"
)",
                                {"7"});
  EXPECT_TRUE(o.ok);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.output, "{\"run_id\":7}\n");
  EXPECT_EQ(o.error, "");
  EXPECT_EQ(seen, (std::vector<Seen>{{1, 3, "loss 2.5"}, {3, 3, ""}}));
}

TEST_F(ChildTest, JoinsLinesThatArriveInPieces) {
  ASSERT_EQ(::mkfifo(folder.filePath("go").toUtf8().constData(), 0600), 0);
  child.start(script(R"(printf '{"task":"t","done":1,"all":9,"note":""}\n{"task":"t","do' >&2
read nothing < ")" + folder.filePath("go").toUtf8() +
                     R"("
printf 'ne":2,"all":9,"note":"x"}\n' >&2
)"),
              {});
  waitForProgress();
  QFile go(folder.filePath("go"));
  ASSERT_TRUE(go.open(QIODevice::WriteOnly));
  go.write("\n");
  go.close();
  EXPECT_TRUE(wait().ok);
  EXPECT_EQ(seen, (std::vector<Seen>{{1, 9, ""}, {2, 9, "x"}}));
}

TEST_F(ChildTest, GivesTheLastSentenceWithoutTheProgramsName) {
  const ChildOutcome o =
      finish("echo 'library: something' >&2; echo 'pipewright: Rank 1 was ended by SIGKILL.' >&2; echo 'library: bye' >&2; exit 1");
  EXPECT_FALSE(o.ok);
  EXPECT_FALSE(o.cancelled);
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(o.error, "Rank 1 was ended by SIGKILL.");
}

TEST_F(ChildTest, TakesASentenceWithoutEndOfLineAndAnyOtherWhereTheProgramSaysNone) {
  EXPECT_EQ(finish("printf 'no such option' >&2; exit 2").error, "no such option");
  outcome.reset();
  EXPECT_EQ(finish("exit 3").error, "pipewright ended with status 3 without giving a reason.");
  outcome.reset();
  EXPECT_TRUE(finish("kill -SEGV $$").error.startsWith("pipewright was ended by a signal"));
}

TEST_F(ChildTest, SaysWhenThereIsNoProgram) {
  child.start(folder.filePath("nothing"), {});
  EXPECT_TRUE(wait().error.startsWith("Cannot start " + folder.filePath("nothing")));
  outcome.reset();
  child.start({}, {});
  EXPECT_TRUE(wait().error.contains("which are not here; ./dev build fetches the wheel"));
}

TEST_F(ChildTest, KeepsItsMemoryBoundedWhateverIsWritten) {
  const ChildOutcome o =
      finish("head -c 18000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo >&2; echo 'pipewright: Done with it.' >&2; exit 1");
  EXPECT_EQ(o.output.size(), 16 << 20);
  EXPECT_EQ(o.error, "Done with it.");
}

TEST_F(ChildTest, CancelInterruptsIt) {
  child.start(script(R"(trap 'echo "pipewright: Interrupted; all ranks have ended." >&2; exit 1' INT
echo '{"done":0,"all":1}' >&2
while :; do sleep 0.02; done
)"),
              {});
  waitForProgress();
  const qint64 pid = child.processId();
  ASSERT_TRUE(isAlive(pid));
  child.cancel();
  const ChildOutcome o = wait();
  EXPECT_TRUE(o.cancelled);
  EXPECT_EQ(o.error, "Interrupted; all ranks have ended.") << "the words of its own ending: no firmer signal was needed";
  EXPECT_FALSE(isAlive(pid));
}

TEST_F(ChildTest, CancelLeavesNoProcessOfOneThatIgnoresIt) {
  child.start(script(R"(trap '' INT TERM
sleep 1000 &
echo "{\"done\":$!,\"all\":1}" >&2
while :; do sleep 0.02; done
)"),
              {});
  waitForProgress();
  const qint64 pid = child.processId(), grandchild = seen.front().done;
  ASSERT_TRUE(isAlive(pid) && isAlive(grandchild));
  child.setPatience(50, 50);
  child.cancel();
  EXPECT_TRUE(wait().cancelled);
  EXPECT_TRUE(QTest::qWaitFor([&] { return !isAlive(pid) && !isAlive(grandchild); }, 2000));
}

TEST(Child, LeavesNoProcessWhenItIsDestroyed) {
  qint64 pid = 0;
  {
    Child child;
    child.start(QStringLiteral("/bin/sleep"), {QStringLiteral("1000")});
    ASSERT_TRUE(QTest::qWaitFor([&] { return child.processId() > 0; }, kLongMs));
    pid = child.processId();
    EXPECT_TRUE(isAlive(pid));
  }
  EXPECT_FALSE(isAlive(pid));
}

TEST(Child, DiesWithTheAppHoweverThatEnds) {
  // A process of ours starts one, tells its id and is killed.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t app = ::fork();
  if (app == 0) {
    Child child;
    child.start(QStringLiteral("/bin/sleep"), {QStringLiteral("1000")});
    const qint64 pid = child.processId();
    if (::write(ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
    for (;;) ::pause();
  }
  qint64 pid = 0;
  ASSERT_EQ(::read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(isAlive(pid));
  ::kill(app, SIGKILL);
  ASSERT_EQ(::waitpid(app, nullptr, 0), app);
  EXPECT_TRUE(QTest::qWaitFor([&] { return !isAlive(pid); }, kLongMs));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace pw::gui
