// Error bars of plans whose times were calibrated by past runs: as the command line prints them, beside the step and each candidate.
#include <gtest/gtest.h>

#include <QAction>
#include <QFile>
#include <QLabel>
#include <QProcess>
#include <nlohmann/json.hpp>

#include "app/gui/candidates/model.h"
#include "app/gui/plan/panel.h"
#include "backends/store/run_store.h"
#include "simulator/report/metrics.h"
#include "simulator/step/simulate.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

class ErrorBarTest : public WindowFixture {
 protected:
  static QString outputOf(const QStringList& arguments) {
    QProcess process;
    process.start(QStringLiteral(PIPEWRIGHT), arguments);
    EXPECT_TRUE(process.waitForFinished(kLongMs));
    EXPECT_EQ(process.exitCode(), 0) << process.readAllStandardError().toStdString();
    return QString::fromUtf8(process.readAllStandardOutput());
  }
  QLabel* figure(const QString& name) {
    for (QLabel* label : window_->findChild<PlanPanel*>()->findChildren<QLabel*>()) {
      if (label->accessibleName() == name) return label;
    }
    return nullptr;
  }
};

TEST_F(ErrorBarTest, StandsBesideTheStepAsTheCommandLinePrintsIt) {
  const QString plan = folder_.filePath(QStringLiteral("plan.json"));
  outputOf({QStringLiteral("plan"), sample("gpt_small.pt2"), QStringLiteral("--ranks"), QStringLiteral("2"), QStringLiteral("--cluster"),
            QStringLiteral("cpu-workstation"), QStringLiteral("--out"), plan});
  open(plan);
  ASSERT_TRUE(figure(QStringLiteral("Error bar")));
  EXPECT_FALSE(figure(QStringLiteral("Error bar"))->isVisible()) << "nothing is known of it";
  QFile file(plan);
  ASSERT_TRUE(file.open(QIODevice::ReadOnly));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(file.readAll().toStdString());
  file.close();
  json.at("profile")["uncertainty"] = {{"deviation", 0.05}, {"runs", 4}};
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(QByteArray::fromStdString(json.dump()));
  file.close();
  open(plan);
  const QLabel* bar = figure(QStringLiteral("Error bar"));
  EXPECT_TRUE(bar->isVisible());
  const Ns step = document().prediction()->step;
  EXPECT_TRUE(bar->text().startsWith(QStringLiteral("± "))) << bar->text().toStdString();
  EXPECT_TRUE(bar->text().endsWith(QStringLiteral(" (4 past runs)"))) << bar->text().toStdString();
  // Four of five steps of a normal distribution are within 1.2816 deviations.
  const Uncertainty known{0.05, 4};
  EXPECT_NEAR(static_cast<double>(errorBar(known, step)), 1.2816 * 0.05 * static_cast<double>(step), 2);
  const QString printed = outputOf({QStringLiteral("simulate"), plan});
  const QString half = bar->text().section(QLatin1Char(' '), 1, 2);  // `12.3 µs`
  EXPECT_TRUE(printed.contains(QStringLiteral("± %1, by 4 past runs").arg(half))) << half.toStdString() << "\n" << printed.toStdString();
}

TEST_F(ErrorBarTest, PastRunsOfTheStoreGiveIt) {
  open(sample("gpt_small.pt2"));
  ASSERT_TRUE(document().prediction());
  const auto calibrate = [this] {
    for (QAction* action : window_->commands()) {
      if (QString(action->text()).remove(QLatin1Char('&')) == QStringLiteral("Calibrate by past runs")) action->trigger();
    }
    ASSERT_TRUE(settle());
  };
  calibrate();
  EXPECT_TRUE(window_->message().startsWith(QStringLiteral("No run of "))) << window_->message().toStdString();
  const Plan plan = document().plan();
  const Ns before = document().prediction()->makespan;
  RunRecord run;
  run.startedAt = "2024-11-22T14:03:00Z";
  run.transport = Transport::Ucx;
  run.plan = plan;
  run.predicted = simulate(plan.schedule, plan.costs);
  CostTable costs = plan.costs;
  for (StageCost& stage : costs.stages) {
    stage.forward *= 2;
    stage.backward *= 2;
  }
  for (int step = 0; step < 4; ++step) run.steps.push_back({step, 2.5, simulate(plan.schedule, costs)});
  for (int i = 0; i < 3; ++i) RunStore(document().storePath().toStdString(), RunStore::Mode::ReadWrite).add(run);
  calibrate();
  EXPECT_TRUE(window_->message().startsWith(QStringLiteral("Calibrated by 3 runs"))) << window_->message().toStdString();
  const QLabel* bar = figure(QStringLiteral("Error bar"));
  EXPECT_TRUE(bar->isVisible());
  EXPECT_TRUE(bar->text().endsWith(QStringLiteral("(3 past runs)"))) << bar->text().toStdString();
  // Forwards and backwards were twice as long as predicted.
  EXPECT_NEAR(static_cast<double>(document().prediction()->makespan), static_cast<double>(metricsOf(run.steps.front().measured).makespan),
              0.02 * static_cast<double>(before));
  document().undo();
  ASSERT_TRUE(settle());
  EXPECT_FALSE(bar->isVisible());
  EXPECT_EQ(document().prediction()->makespan, before);
}

Candidate candidate(const char* schedule, Ns step) {
  Candidate c;
  c.request.schedule = schedule;
  c.request.ranks = 2;
  c.stages = 2;
  c.step = step;
  c.peak = Bytes(step.value);  // each on the front
  c.samples = 8;
  c.samplesPerSecond = 8e9 / static_cast<double>(step);
  return c;
}

TEST(CandidatesModel, SaysWhichPlansCannotBeToldApartFromTheBest) {
  CandidatesModel model;
  // Bars of 1.2816 %: 10 ms ± 0.128 and 10.25 ms ± 0.131 overlap, 10.27 ms ± 0.132 begins at 10.138 and does not.
  model.set({candidate("zbv", 10'000'000), candidate("zb-h1", 10'250'000), candidate("1f1b", 10'270'000)});
  EXPECT_EQ(model.certainty(), QString());
  EXPECT_EQ(model.index(1, CandidatesModel::Step).data().toString(), QStringLiteral("10.3 ms"));
  model.setUncertainty(Uncertainty{0.01, 4});
  EXPECT_TRUE(model.isLikeBest(0));
  EXPECT_TRUE(model.isLikeBest(1));
  EXPECT_FALSE(model.isLikeBest(2));
  EXPECT_EQ(model.certainty(), QStringLiteral("Steps ± 1.3 % (4 past runs): 1 plan cannot be told apart from the best, marked ≈."));
  EXPECT_EQ(model.index(0, CandidatesModel::Step).data().toString(), QStringLiteral("10.0 ms ± 128 µs"));
  EXPECT_TRUE(model.index(1, CandidatesModel::Step).data().toString().startsWith(QStringLiteral("≈ ")));
  EXPECT_FALSE(model.index(2, CandidatesModel::Step).data().toString().startsWith(QStringLiteral("≈ ")));
  EXPECT_TRUE(model.index(1, 0).data(Qt::ToolTipRole).toString().contains(QStringLiteral("error bars overlap")));
  EXPECT_TRUE(model.index(1, CandidatesModel::Step).data(Qt::AccessibleTextRole).toString().contains(QStringLiteral("told apart")));
  // Twice as long for twice as much is as fast.
  Candidate twice = candidate("gpipe", 20'100'000);
  twice.samples = 16;
  model.append({twice});
  EXPECT_TRUE(model.isLikeBest(3));
  model.set({candidate("zbv", 10'000'000), candidate("zb-h1", 10'250'000), candidate("1f1b", 10'270'000)});
  model.setUncertainty(Uncertainty{0.001, 4});
  EXPECT_EQ(model.certainty(), QStringLiteral("Steps ± 0.1 % (4 past runs): the first plan is the fastest."));
}

}  // namespace
}  // namespace pw::gui
