// Runs and profiles in a child: how it is called, what arrives while it works, and how each way of ending is told. Children are shell
// scripts.
#include "app/gui/runs/run_task.h"

#include <gtest/gtest.h>

#include <QDir>
#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QTest>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/app/gui/constants.h"
#include "tests/support/number_stage.h"

namespace pw::gui {
namespace {

class RunTaskTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(folder.isValid());
    request.plan = std::make_shared<const Plan>(test::chainPlan(lower(generate("gpipe", {2, 2, 2}))));
    request.steps = 3;
    request.transport = Transport::Gloo;
    request.store = folder.filePath("runs.db");
  }
  /// The task starts this script, which first notes the words it was called with.
  void useScript(const QByteArray& text) {
    QFile file(folder.filePath("pipewright"));
    ASSERT_TRUE(file.open(QIODevice::WriteOnly | QIODevice::Truncate));
    file.write("#!/bin/sh\nprintf '%s\\n' \"$@\" > " + quoted("words") + "\n" + text);
    file.close();
    file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    task.setProgram(file.fileName());
  }
  /// The path of a file of the folder, for the script: it may have a blank in it.
  [[nodiscard]] QByteArray quoted(const QString& name) const { return '"' + folder.filePath(name).toUtf8() + '"'; }
  [[nodiscard]] QStringList words() const {
    QFile file(folder.filePath("words"));
    return file.open(QIODevice::ReadOnly) ? QString::fromUtf8(file.readAll()).split('\n', Qt::SkipEmptyParts) : QStringList();
  }
  [[nodiscard]] QString wordAfter(const QString& option) const { return words().value(words().indexOf(option) + 1); }
  /// Waits for the end and returns its arguments.
  static QList<QVariant> ended(QSignalSpy& spy) {
    EXPECT_TRUE(!spy.isEmpty() || spy.wait(kLongMs));
    return spy.isEmpty() ? QList<QVariant>{{}, {}, {}} : spy.front();
  }

  QTemporaryDir folder;
  RunTask task;
  RunRequest request;
  QSignalSpy runs{&task, &RunTask::runEnded}, profiles{&task, &RunTask::profileEnded};
};

TEST_F(RunTaskTest, ARunIsCalledWithItsPlanAndSettingsAndNamesItsNumberInTheStore) {
  useScript("echo '{\"run_id\": 7}'\n");
  request.precision = DType::BFloat16;
  request.optimizer.kind = OptimizerSpec::Kind::AdamW;
  task.run(request);
  EXPECT_TRUE(task.isRunning());
  const auto end = ended(runs);
  EXPECT_TRUE(end[0].toBool());
  EXPECT_EQ(end[1].value<std::optional<RunId>>(), RunId(7));
  EXPECT_EQ(end[2].toString(), "");
  EXPECT_FALSE(task.isRunning());
  EXPECT_EQ(words().value(0), "run");
  EXPECT_EQ(wordAfter("--steps"), "3");
  EXPECT_EQ(wordAfter("--backend"), "gloo");
  EXPECT_EQ(wordAfter("--store"), request.store);
  EXPECT_EQ(wordAfter("--precision"), "bf16");
  EXPECT_EQ(wordAfter("--optimizer"), "adamw");
  EXPECT_EQ(wordAfter("--progress"), "json");
}

TEST_F(RunTaskTest, ARehearsalIsCalledWithoutTheOptimizerThatItDoesNotUse) {
  useScript("echo '{\"run_id\": 7}'\n");
  request.synthetic = true;
  request.optimizer.kind = OptimizerSpec::Kind::AdamW;
  task.run(request);
  EXPECT_TRUE(ended(runs)[0].toBool());
  EXPECT_TRUE(words().contains("--synthetic"));
  EXPECT_FALSE(words().contains("--optimizer"));
}

TEST_F(RunTaskTest, ThePlanThatTheChildReadsIsTheOneRequestedAndItsFolderIsRemovedWithTheTask) {
  const QString copy = folder.filePath("copy.json");
  useScript("cp \"$2\" " + quoted("copy.json") + "\necho '{}'\n");
  {
    RunTask own;
    own.setProgram(folder.filePath("pipewright"));
    QSignalSpy spy(&own, &RunTask::runEnded);
    own.run(request);
    EXPECT_EQ(ended(spy)[1].value<std::optional<RunId>>(), std::nullopt) << "it said no number";
  }
  QFile file(copy);
  ASSERT_TRUE(file.open(QIODevice::ReadOnly));
  EXPECT_EQ(file.readAll().toStdString(), toJson(*request.plan));
  EXPECT_FALSE(QFile::exists(words().value(1))) << words().value(1).toStdString();
}

TEST_F(RunTaskTest, ProgressAndStepsArriveWhileItRuns) {
  useScript(R"(while [ "$1" != --live ]; do shift; done
echo '{"rank":1,"step":4,"from":1000,"spans":[["F",1,1,0,1,0,0,500]],"memory":[],"done":false}' >> "$2"
echo '{"task":"train","done":2,"all":3,"note":"loss 2.5"}' >&2
while [ ! -e ")" +
            folder.filePath("go").toUtf8() + "\" ]; do sleep 0.02; done\necho '{\"run_id\":1}'\n");
  QSignalSpy progress(&task, &RunTask::progressed);
  std::shared_ptr<const Measured> seen;
  QObject::connect(&task, &RunTask::arrived, &task, [&](const std::shared_ptr<const Measured>& measured) { seen = measured; });
  task.run(request);
  ASSERT_TRUE(QTest::qWaitFor([&] { return seen != nullptr && !progress.isEmpty(); }, kLongMs));
  EXPECT_EQ(progress.front(), (QList<QVariant>{2, 3, "loss 2.5"}));
  EXPECT_TRUE(seen->live);
  EXPECT_EQ(seen->title, "running · step 4");
  EXPECT_EQ(seen->trace, (Trace{2, {{Rank(1), SpanKind::Forward, Stage(1), Microbatch(0), Rank(1), 0, 0, 500}}, {}}));
  EXPECT_TRUE(runs.isEmpty());
  QFile go(folder.filePath("go"));
  ASSERT_TRUE(go.open(QIODevice::WriteOnly));
  EXPECT_TRUE(ended(runs)[0].toBool());
}

TEST_F(RunTaskTest, AFailureIsTheChildsOwnSentence) {
  useScript("echo 'pipewright: Rank 1: the disk is full; make room.' >&2\nexit 1\n");
  task.run(request);
  const auto end = ended(runs);
  EXPECT_FALSE(end[0].toBool());
  EXPECT_EQ(end[2].toString(), "Rank 1: the disk is full; make room.");
}

TEST_F(RunTaskTest, ARunThatIsCancelledEndsWithoutAnError) {
  useScript("echo '{\"task\":\"train\",\"done\":1,\"all\":3,\"note\":\"\"}' >&2\nexec sleep 600\n");
  QSignalSpy progress(&task, &RunTask::progressed);
  task.run(request);
  ASSERT_TRUE(QTest::qWaitFor([&] { return !progress.isEmpty(); }, kLongMs));
  EXPECT_GT(task.processId(), 0);
  task.cancel();
  const auto end = ended(runs);
  EXPECT_FALSE(end[0].toBool());
  EXPECT_EQ(end[2].toString(), "");
  EXPECT_FALSE(task.isRunning());
}

TEST_F(RunTaskTest, ASecondTaskIsNotStartedWhileOneRuns) {
  useScript("while [ ! -e \"" + folder.filePath("go").toUtf8() + "\" ]; do sleep 0.02; done\necho '{\"run_id\":1}'\n");
  task.run(request);
  task.profile({});
  task.run(request);
  QFile go(folder.filePath("go"));
  ASSERT_TRUE(go.open(QIODevice::WriteOnly));
  ended(runs);
  QCoreApplication::processEvents();
  EXPECT_EQ(runs.count(), 1);
  EXPECT_EQ(profiles.count(), 0);
}

TEST_F(RunTaskTest, AProfileIsReadFromWhatTheChildWrote) {
  Profile measured;
  measured.microbatch = 2;
  measured.ranksAtOnce = measured.threads = 1;
  measured.nodes.resize(3);
  QFile file(folder.filePath("profile.json"));
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(QByteArray::fromStdString(toJson(measured)));
  file.close();
  useScript("while [ \"$1\" != --out ]; do shift; done\ncp " + quoted("profile.json") + " \"$2\"\n");
  task.profile({{"a.pt2", "b.pt2"}, 2, 1, parseLoss("mse"), {}});
  ended(profiles);
  const auto profile = profiles.front()[0].value<std::shared_ptr<const Profile>>();
  ASSERT_NE(profile, nullptr) << profiles.front()[1].toString().toStdString();
  EXPECT_EQ(*profile, measured);
  EXPECT_EQ(words().mid(0, 3), (QStringList{"profile", "a.pt2", "b.pt2"}));
  EXPECT_EQ(wordAfter("--microbatch"), "2");
  EXPECT_EQ(wordAfter("--loss"), "mse");
  EXPECT_EQ(wordAfter("--device"), "cpu");
}

TEST_F(RunTaskTest, AProfileThatIsNoneIsRefusedInOneSentence) {
  useScript("while [ \"$1\" != --out ]; do shift; done\necho '{' > \"$2\"\n");
  task.profile({{"a.pt2"}, 1, 1, parseLoss("sum"), {}});
  ended(profiles);
  EXPECT_EQ(profiles.front()[0].value<std::shared_ptr<const Profile>>(), nullptr);
  EXPECT_TRUE(profiles.front()[1].toString().contains("is not a usable profile")) << profiles.front()[1].toString().toStdString();
  EXPECT_FALSE(task.isRunning());
}

TEST_F(RunTaskTest, AProgramThatIsNotThereIsSaid) {
  task.setProgram(folder.filePath("none"));
  task.run(request);
  const auto end = ended(runs);
  EXPECT_FALSE(end[0].toBool());
  EXPECT_FALSE(end[2].toString().isEmpty());
}

}  // namespace
}  // namespace pw::gui
