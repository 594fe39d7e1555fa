#pragma once

#include <gtest/gtest.h>

#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QTest>
#include <functional>
#include <memory>
#include <string>

#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/runs/panel.h"
#include "simulator/step/simulate.h"
#include "tests/app/gui/constants.h"

namespace pw::gui {

/// A document with a model and a store of its own, and the panel on it.
class RunsPanelTest : public testing::Test {
 protected:
  void SetUp() override {
    qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
    document.setStorePath(folder.filePath("runs.db"));
    document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"}, {}));
    ASSERT_TRUE(QTest::qWaitFor([this] { return document.prediction() != nullptr && !document.isPredicting(); }, kLongMs));
  }

  /// Records a run of the document's plan whose backwards of stage 1 took longer by `more`, in each of three steps the more.
  int record(Ns more, const std::string& failure = {}, RunState state = RunState::Completed, CostSource times = CostSource::Measured,
             int cores = 64, bool synthetic = false) {
    RunRecord run;
    run.facts.synthetic = synthetic;
    run.state = state;
    run.facts.costs = times;
    run.machine.cores = cores;
    run.startedAt = "2024-11-22T14:03:00Z";
    run.transport = Transport::Ucx;
    run.failure = failure;
    run.plan = document.plan();
    run.predicted = simulate(run.plan.schedule, run.plan.costs);
    for (int step = 0; step < 3 && failure.empty(); ++step) {
      CostTable costs = run.plan.costs;
      costs.stages[1].backward += more * (step + 1);
      run.steps.push_back({step, 2.5, simulate(run.plan.schedule, costs)});
    }
    return RunStore(document.storePath().toStdString(), RunStore::Mode::ReadWrite).add(run).value;
  }
  /// Makes a panel, which lists the store.
  RunsPanel& panel() {
    if (panel_) return *panel_;
    panel_ = std::make_unique<RunsPanel>(document);
    QObject::connect(panel_.get(), &RunsPanel::failed, panel_.get(), [this](const QString& sentence) { sentences << sentence; });
    panel_->show();  // hidden, it would not follow the prediction
    QSignalSpy listed(panel_.get(), &RunsPanel::listed);
    EXPECT_TRUE(listed.wait(kLongMs));
    return *panel_;
  }
  void choose(int id) {
    panel().chooseRun(RunId(id));
    waitFor([this, id] { return document.measured() && document.measured()->run && document.measured()->run->id.value == id; });
    waitForComparison();
  }
  void waitForComparison() {
    waitFor([this] {
      return panel().summary().startsWith("Measured") || panel().summary().startsWith("The rehearsal") ||
             panel().summary().startsWith("Run ");
    });
  }
  void waitFor(const std::function<bool()>& done) {
    ASSERT_TRUE(QTest::qWaitFor(done, kLongMs)) << panel().summary().toStdString() << sentences.join(" ").toStdString();
  }
  void useScript(const QByteArray& text) {
    QFile file(folder.filePath("pipewright"));
    ASSERT_TRUE(file.open(QIODevice::WriteOnly | QIODevice::Truncate));
    file.write("#!/bin/sh\n" + text);
    file.close();
    file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    panel().setProgram(file.fileName());
  }
  /// Starts it and waits for its end; whether it ended well.
  bool finish(void (RunsPanel::*ended)(bool), const std::function<void()>& start) {
    QSignalSpy spy(&panel(), ended);
    start();
    EXPECT_TRUE(!spy.isEmpty() || spy.wait(kLongMs));
    EXPECT_FALSE(panel().isBusy());
    return !spy.isEmpty() && spy.front().front().toBool();
  }

  QTemporaryDir folder;
  Document document;
  std::unique_ptr<RunsPanel> panel_;
  QStringList sentences;
};

}  // namespace pw::gui
