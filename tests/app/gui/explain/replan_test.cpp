// Plans made from a trace or a job: whatever `simulate --costs-from` gives, the app shows.
#include <QAction>
#include <QComboBox>
#include <QDialog>
#include <QFile>
#include <QLabel>
#include <QLineEdit>
#include <QProcess>
#include <QPushButton>
#include <QSpinBox>
#include <QToolButton>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/gui/common/format.h"
#include "app/gui/document/job_design.h"
#include "app/gui/plan/panel.h"
#include "app/gui/timeline/drawing/rows.h"
#include "backends/host/files.h"
#include "schedules/units.h"
#include "simulator/costs/uncertainty.h"
#include "simulator/job/job_json.h"
#include "tests/app/gui/constants.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

class ReplanTest : public WindowFixture {
 protected:
  QAction* replan() {
    for (QAction* action : window_->commands()) {
      if (action->shortcut() == QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_R)) return action;
    }
    return nullptr;
  }
  void openAndReplan(const QString& path) {
    open(path);
    ASSERT_TRUE(replan()->isEnabled());
    replan()->trigger();
    ASSERT_TRUE(settle());
    ASSERT_TRUE(document().prediction()) << document().problem().toStdString();
  }
  static nlohmann::json simulated(const QString& from, const QStringList& more) {
    QProcess process;
    process.start(QStringLiteral(PIPEWRIGHT),
                  QStringList{QStringLiteral("simulate"), QStringLiteral("--costs-from"), from, QStringLiteral("--json")} + more);
    EXPECT_TRUE(process.waitForFinished(kLongMs));
    EXPECT_EQ(process.exitCode(), 0) << process.readAllStandardError().toStdString();
    return nlohmann::json::parse(process.readAllStandardOutput().toStdString());
  }
  /// The app's prediction is the command line's, to the nanosecond.
  void expectAsSimulated(const QString& from, const QStringList& more) {
    ASSERT_TRUE(settle());
    ASSERT_TRUE(document().prediction());
    ASSERT_EQ(document().problem(), QString());
    const nlohmann::json expected = simulated(from, more);
    const std::string what = more.join(QLatin1Char(' ')).toStdString();
    EXPECT_EQ(document().prediction()->makespan, expected.at("makespan_ns").get<Ns>()) << what;
    EXPECT_EQ(document().prediction()->step, expected.at("step_ns").get<Ns>()) << what;
    EXPECT_NEAR(document().prediction()->bubbleFraction, expected.at("bubble_fraction").get<double>(), 1e-12) << what;
  }
  template <class Widget>
  Widget* field(const QString& name) {
    for (Widget* widget : window_->findChild<PlanPanel*>()->findChildren<Widget*>()) {
      if (widget->accessibleName() == name) return widget;
    }
    return nullptr;
  }
  void choose(const QString& schedule) {
    auto* box = field<QComboBox>(QStringLiteral("Schedule"));
    box->setCurrentIndex(box->findText(schedule));
    emit box->activated(box->currentIndex());
  }
};

TEST_F(ReplanTest, ShowsWhatSimulateGivesForEverySchedule) {
  openAndReplan(kReplicas);
  expectAsSimulated(kReplicas, {});
  for (const char* name : {"gpipe", "interleaved-1f1b", "zb-h1", "zbv", "1f1b"}) {
    choose(QString::fromLatin1(name));
    expectAsSimulated(kReplicas, {QStringLiteral("--schedule"), QString::fromLatin1(name)});
  }
}

TEST_F(ReplanTest, MakesTheOrdersThatSimulateMakes) {
  openAndReplan(kReplicas);
  for (const char* chunks : {"1", "2"}) {
    field<QSpinBox>(QStringLiteral("Chunks"))->setValue(std::atoi(chunks));
    for (const char* name : {"auto", "zb-1p"}) {
      choose(QString::fromLatin1(name));
      ASSERT_TRUE(QTest::qWaitFor([&] { return document().certificate().has_value(); }, kLongMs)) << name;
      expectAsSimulated(kReplicas,
                        {QStringLiteral("--schedule"), QString::fromLatin1(name), QStringLiteral("--chunks"), QString::fromLatin1(chunks)});
      EXPECT_EQ(document().certificate()->time,
                document().certificate()->clock == StepClock::Flush ? document().prediction()->makespan : document().prediction()->window);
    }
  }
}

TEST_F(ReplanTest, ShowsWhatSimulateGivesForOtherNumbers) {
  openAndReplan(kReplicas);
  field<QSpinBox>(QStringLiteral("Microbatches"))->setValue(12);
  expectAsSimulated(kReplicas,
                    {QStringLiteral("--schedule"), QStringLiteral("1f1b"), QStringLiteral("--microbatches"), QStringLiteral("12")});
  field<QSpinBox>(QStringLiteral("Ranks"))->setValue(3);
  expectAsSimulated(kReplicas, {QStringLiteral("--schedule"), QStringLiteral("1f1b"), QStringLiteral("--microbatches"),
                                QStringLiteral("12"), QStringLiteral("--ranks"), QStringLiteral("3")});
  field<QSpinBox>(QStringLiteral("Ranks"))->setValue(5);  // 48 layers in 5 stages: none of them even in layers
  expectAsSimulated(kReplicas, {QStringLiteral("--schedule"), QStringLiteral("1f1b"), QStringLiteral("--microbatches"),
                                QStringLiteral("12"), QStringLiteral("--ranks"), QStringLiteral("5")});
}

TEST_F(ReplanTest, AJobsFileIsPlannedAsItRanAndAgain) {
  const QString file = folder_.filePath(QStringLiteral("job.json"));
  ASSERT_EQ(QProcess::execute(QStringLiteral(PIPEWRIGHT), {QStringLiteral("import"), kPrimus, QStringLiteral("--out"), file}), 0);
  open(file);
  expectAsSimulated(file, {});
  choose(QStringLiteral("zb-h1"));
  expectAsSimulated(file, {QStringLiteral("--schedule"), QStringLiteral("zb-h1")});
  replan()->trigger();
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().design().request.schedule, "1f1b");
  document().undo();
  EXPECT_EQ(document().design().request.schedule, "zb-h1") << "one step back";
}

TEST_F(ReplanTest, PlansWhatTorchRanWithItsOwnOrder) {
  for (const char* name : {"1f1b", "gpipe", "interleaved", "zbv", "dualpipev", "zero_bubble", "replicas"}) {
    const QString folder = QStringLiteral(PW_SOURCE_DIR "/tests/data/torch_traces/") + QString::fromLatin1(name);
    SCOPED_TRACE(name);
    openAndReplan(folder);
    expectAsSimulated(folder, {});
    EXPECT_EQ(document().design().customRows != nullptr, std::string_view(name) == "dualpipev") << "all others ran a family's order";
  }
}

TEST_F(ReplanTest, TheMeasuredLanesStayAboveTheWhatIf) {
  open(kReplicas);
  const auto measured = document().measured();
  auto* button = window_->findChild<PlanPanel*>()->findChild<QPushButton*>(QStringLiteral("replan"));
  ASSERT_TRUE(button && button->isVisible());
  QTest::mouseClick(button, Qt::LeftButton);
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().measured(), measured);
  const Scene& scene = window_->timeline().scene();
  ASSERT_TRUE(scene.predicted && scene.measured);
  const RowLayout layout = layOutRows(scene);
  ASSERT_GE(layout.rows.size(), 2U);
  EXPECT_EQ(layout.rows[0].source, Source::Measured);
  EXPECT_EQ(layout.rows[1].source, Source::Predicted);
  EXPECT_EQ(layout.rows[0].rank, layout.rows[1].rank);
  EXPECT_LT(layout.rows[0].top, layout.rows[1].top);
}

TEST_F(ReplanTest, SplitsCanBeMoved) {
  openAndReplan(kReplicas);
  const auto before = document().prediction();
  const auto sum = [](const CostTable& costs) {
    Ns all = 0;
    for (const StageCost& stage : costs.stages) all += stage.forward + stage.backward;
    return all;
  };
  document().edit(QStringLiteral("move"), [](Design& design) { design.request.begins[0].value -= 6; });
  ASSERT_TRUE(settle());
  const auto after = document().prediction();
  EXPECT_LT(after->costs.stages[0].forward, before->costs.stages[0].forward);
  EXPECT_NEAR(static_cast<double>(after->costs.stages[0].forward), static_cast<double>(before->costs.stages[0].forward) / 2, 1);
  EXPECT_EQ(sum(after->costs), sum(before->costs)) << "the same work, cut elsewhere";
}

TEST_F(ReplanTest, ATableOfTimesHasNoFindings) {
  openAndReplan(kReplicas);
  const auto* button = window_->findChild<QToolButton*>(QStringLiteral("findings"));
  EXPECT_TRUE(button->isHidden()) << button->text().toStdString();
}

TEST_F(ReplanTest, AWorseSplitIsNotFaster) {
  openAndReplan(kPrimus);
  const auto before = document().prediction();
  ASSERT_FALSE(before->actionTimes.empty());
  document().edit(QStringLiteral("move"), [](Design& design) { design.request.begins[0].value += 2; });
  ASSERT_TRUE(settle());
  const auto after = document().prediction();
  // The first stage has a sixth of the second one besides its own work, and each of its actions takes as much longer.
  const double own = static_cast<double>(before->costs.stages[0].forward), next = static_cast<double>(before->costs.stages[1].forward);
  ASSERT_EQ(after->actionTimes.size(), before->actionTimes.size());
  for (std::size_t i = 0; i < before->actionTimes.size(); ++i) {
    const auto& [action, time] = before->actionTimes[i];
    ASSERT_EQ(after->actionTimes[i].first, action);
    if (action.stage != Stage(0) || action.kind != ActionKind::Forward) continue;
    EXPECT_NEAR(static_cast<double>(after->actionTimes[i].second), static_cast<double>(time) * (1 + next / 6 / own), 2);
  }
  EXPECT_GT(after->step, before->step) << "the first stage is now the slowest of all";
  document().undo();
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().prediction()->step, before->step);
}

TEST_F(ReplanTest, SaysWhoseTimesAreUsed) {
  openAndReplan(kReplicas);
  const auto* times = field<QLabel>(QStringLiteral("Where times come from"));
  EXPECT_TRUE(times->text().startsWith(QStringLiteral("each microbatch's usual times of "))) << times->text().toStdString();
  field<QSpinBox>(QStringLiteral("Microbatches"))->setValue(12);
  ASSERT_TRUE(settle());
  EXPECT_TRUE(times->text().startsWith(QStringLiteral("each stage's usual times of "))) << times->text().toStdString();
}

TEST_F(ReplanTest, HasTheErrorBarThatSimulateGives) {
  openAndReplan(kReplicas);
  const auto* bar = field<QLabel>(QStringLiteral("Error bar"));
  const auto expectBar = [&](const QStringList& more) {
    ASSERT_TRUE(settle());
    const nlohmann::json known = simulated(kReplicas, more).at("uncertainty");
    const Ns step = document().prediction()->step;
    const std::string both = formatPrediction(step, Uncertainty{known.at("deviation").get<double>(), known.at("runs").get<int>()});
    EXPECT_TRUE(bar->isVisible());
    EXPECT_EQ(bar->text().toStdString(), both.substr(formatDuration(step).size() + 1)) << more.join(QLatin1Char(' ')).toStdString();
  };
  expectBar({});
  choose(QStringLiteral("zbv"));
  expectBar({QStringLiteral("--schedule"), QStringLiteral("zbv")});
  const std::optional<Uncertainty> ofOthers = document().design().job->ofOthers;
  ASSERT_TRUE(ofOthers);
  EXPECT_EQ(document().profile()->uncertainty, ofOthers) << "as the candidates of a search have it";
  replan()->trigger();
  expectBar({});
  document().edit(QStringLiteral("move"), [](Design& design) { design.request.begins[0].value -= 1; });
  ASSERT_TRUE(settle());
  const std::string both = formatPrediction(document().prediction()->step, ofOthers);
  EXPECT_EQ(bar->text().toStdString(), both.substr(formatDuration(document().prediction()->step).size() + 1))
      << "the job did not run these stages";
}

TEST_F(ReplanTest, OffersOnlyWhatAppliesToAJob) {
  openAndReplan(kReplicas);
  for (const char* name : {"Microbatch size", "Replicas"}) EXPECT_FALSE(field<QSpinBox>(QString::fromLatin1(name))->isEnabled()) << name;
  for (const char* name : {"Recompute", "Shared parameters", "Optimizer", "Cluster"})
    EXPECT_FALSE(field<QComboBox>(QString::fromLatin1(name))->isEnabled()) << name;
  EXPECT_FALSE(field<QLineEdit>(QStringLiteral("Memory limit of a rank"))->isEnabled());
  for (const char* name : {"Ranks", "Chunks", "Microbatches"}) EXPECT_TRUE(field<QSpinBox>(QString::fromLatin1(name))->isEnabled()) << name;
  EXPECT_EQ(field<QLabel>(QStringLiteral("Samples/s"))->text(),
            countText(document().design().request.microbatches / (static_cast<double>(document().prediction()->step) * 1e-9)));
  const auto labels = window_->findChild<PlanPanel*>()->findChildren<QLabel*>();
  EXPECT_TRUE(std::ranges::any_of(labels, [](const QLabel* label) { return label->text() == QStringLiteral("Microbatches/s"); }));
}

TEST_F(ReplanTest, LimitsTheMemoryOfAJobWhoseTracesShowIt) {
  const auto saysThereIsNone = [this] { return window_->message().contains(QStringLiteral("Its traces do not show memory.")); };
  openAndReplan(kReplicas);
  EXPECT_TRUE(saysThereIsNone()) << window_->message().toStdString();
  pw::Job job = document().design().job->job;
  job.memory.assign(static_cast<std::size_t>(shapeOf(job.schedule).ranks), {.base = 1000, .peak = 1600});
  const QString path = folder_.filePath(QStringLiteral("job.json"));
  writeFile(path.toStdString(), toJson(job));
  open(path);
  ASSERT_TRUE(document().prediction()) << document().problem().toStdString();
  EXPECT_EQ(document().prediction()->ranks.front().peakBytes, 1600);
  EXPECT_FALSE(saysThereIsNone()) << window_->message().toStdString();
  EXPECT_TRUE(field<QLineEdit>(QStringLiteral("Memory limit of a rank"))->isEnabled());
  EXPECT_FALSE(field<QComboBox>(QStringLiteral("Optimizer"))->isEnabled());
}

TEST_F(ReplanTest, HasNoClusterToEditAndNoLayersOfMegatron) {
  const auto command = [&] {
    return *std::ranges::find_if(window_->commands(), [](QAction* action) { return action->text() == QStringLiteral("Edit c&luster…"); });
  };
  EXPECT_FALSE(command()->isEnabled()) << "nothing is open";
  open(sample("gpt_small.pt2"));
  EXPECT_TRUE(command()->isEnabled());
  const auto* layout = window_->findChild<QLineEdit*>(QStringLiteral("layoutString"));
  EXPECT_TRUE(layout->isVisible());
  command()->trigger();
  ASSERT_TRUE(window_->findChild<QDialog*>());
  openAndReplan(kPrimus);
  EXPECT_TRUE(QTest::qWaitFor([&] { return window_->findChild<QDialog*>() == nullptr; }, kLongMs)) << "the model's is closed";
  EXPECT_FALSE(command()->isEnabled());
  EXPECT_FALSE(field<QToolButton>(QStringLiteral("Edit cluster"))->isEnabled());
  EXPECT_FALSE(layout->isVisible());
  const Design before = document().design();
  open(QStringLiteral(PW_SOURCE_DIR "/resources/examples/mixed_rack.json"));
  EXPECT_EQ(document().design(), before) << "its times are the job's own";
  EXPECT_TRUE(window_->message().contains(QStringLiteral("the job's own times"))) << window_->message().toStdString();
}

TEST_F(ReplanTest, TheArrangementForAJobEndsWithIt) {
  for (const Arrangement own : {Arrangement::Below, Arrangement::Over}) {
    window_->timeline().setArrangement(own);
    openAndReplan(kReplicas);
    EXPECT_EQ(window_->timeline().scene().arrangement, Arrangement::Above);
    open(sample("gpt_small.pt2"));
    EXPECT_EQ(window_->timeline().scene().arrangement, own);
  }
  window_->timeline().setArrangement(Arrangement::Above);
  openAndReplan(kReplicas);
  open(sample("gpt_small.pt2"));
  EXPECT_EQ(window_->timeline().scene().arrangement, Arrangement::Above) << "the user's own choice";
}

TEST_F(ReplanTest, SaysHowManyStagesAJobCanHave) {
  openAndReplan(kReplicas);
  field<QSpinBox>(QStringLiteral("Ranks"))->setValue(49);
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().problem(), QStringLiteral("A job of 4 stages can be cut into 48 at most; use fewer ranks or chunks."));
  field<QSpinBox>(QStringLiteral("Ranks"))->setValue(48);
  field<QSpinBox>(QStringLiteral("Microbatches"))->setValue(48);
  expectAsSimulated(kReplicas, {QStringLiteral("--schedule"), QStringLiteral("1f1b"), QStringLiteral("--microbatches"),
                                QStringLiteral("48"), QStringLiteral("--ranks"), QStringLiteral("48")});
}

TEST_F(ReplanTest, AProjectReadsItsJobAgain) {
  openAndReplan(kReplicas);
  choose(QStringLiteral("zbv"));
  ASSERT_TRUE(settle());
  const Ns step = document().prediction()->step;
  const QString path = folder_.filePath(QStringLiteral("again.pwproj"));
  ASSERT_TRUE(window_->saveProject(path));
  open(sample("gpt_small.pt2"));
  EXPECT_FALSE(document().design().job);
  open(path);
  ASSERT_TRUE(document().prediction()) << document().problem().toStdString();
  EXPECT_EQ(document().design().request.schedule, "zbv");
  EXPECT_EQ(document().prediction()->step, step);
  ASSERT_TRUE(document().measured()) << "what it is planned from is above the plan";
  EXPECT_EQ(window_->timeline().scene().arrangement, Arrangement::Above);
}

TEST_F(ReplanTest, AProjectKeepsWhoseOrderItHas) {
  // torch ran DualPipeV in an order of its own.
  openAndReplan(QStringLiteral(PW_SOURCE_DIR "/tests/data/torch_traces/dualpipev"));
  ASSERT_TRUE(document().design().customRows);
  const Ns own = document().prediction()->step;
  const QString path = folder_.filePath(QStringLiteral("again.pwproj"));
  ASSERT_TRUE(window_->saveProject(path));
  open(path);
  EXPECT_EQ(document().prediction()->step, own);
  choose(QStringLiteral("dualpipev"));
  ASSERT_TRUE(settle());
  const Ns generated = document().prediction()->step;
  EXPECT_NE(generated, own);
  ASSERT_TRUE(window_->saveProject(path));
  open(path);
  EXPECT_EQ(document().prediction()->step, generated);
}

TEST_F(ReplanTest, AProjectWhoseJobIsGoneIsRefusedInASentence) {
  openAndReplan(kReplicas);
  const QString path = folder_.filePath(QStringLiteral("again.pwproj"));
  ASSERT_TRUE(window_->saveProject(path));
  QFile file(path);
  ASSERT_TRUE(file.open(QIODevice::ReadOnly));
  QByteArray text = file.readAll();
  file.close();
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(text.replace("timeline-ST.json.gz", "no-such-trace.json.gz"));
  file.close();
  open(path);
  EXPECT_TRUE(window_->message().contains(QStringLiteral("no-such-trace.json.gz"))) << window_->message().toStdString();
}

TEST_F(ReplanTest, IsOfferedOnlyWhereThereIsAJob) {
  EXPECT_FALSE(replan()->isEnabled());
  open(sample("gpt_small.pt2"));
  EXPECT_FALSE(replan()->isEnabled());
  open(kPrimus);
  EXPECT_TRUE(replan()->isEnabled());
}

}  // namespace
}  // namespace pw::gui
