// The Plan panel: settings by real mouse and key events, and what is shown of the prediction.
#include "app/gui/plan/panel.h"

#include <gtest/gtest.h>

#include <QComboBox>
#include <QFile>
#include <QHelpEvent>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalSpy>
#include <QSpinBox>
#include <QTemporaryDir>
#include <QTest>
#include <QToolTip>

#include "app/gui/common/format.h"
#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "app/gui/plan/cost_controls.h"
#include "app/gui/plan/memory_bars.h"
#include "backends/resources/resources.h"
#include "backends/store/run_store.h"
#include "simulator/costs/estimate.h"
#include "tests/app/gui/constants.h"

namespace pw::gui {
namespace {

/// The panel of a document with a small model on two ranks.
class PlanPanelTest : public testing::Test {
 protected:
  void SetUp() override {
    qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
    document.setStorePath(folder.filePath("runs.db"));
    panel = std::make_unique<PlanPanel>(document);
    panel->resize(420, 900);
    panel->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(panel.get()));
  }
  void open() {
    document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"}, {}));
    settle();
    ASSERT_NE(document.prediction(), nullptr);
  }
  void settle() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document.isPredicting() && panel->isIdle(); }, kLongMs));
  }
  template <class Widget>
  Widget& named(const QString& accessibleName) {
    for (auto* widget : panel->findChildren<Widget*>()) {
      if (widget->accessibleName() == accessibleName) return *widget;
    }
    throw std::logic_error("the panel has no " + accessibleName.toStdString());
  }
  QString figure(const QString& name) { return named<QLabel>(name).text(); }
  QPushButton& button(const QString& text) {
    for (auto* button : panel->findChildren<QPushButton*>()) {
      if (button->text() == text) return *button;
    }
    throw std::logic_error("the panel has no button " + text.toStdString());
  }
  void type(QLineEdit& line, const QString& text) {
    line.setFocus();
    line.selectAll();
    QTest::keyClick(&line, Qt::Key_Backspace);
    QTest::keyClicks(&line, text);
    QTest::keyClick(&line, Qt::Key_Return);
  }
  void choose(const QString& box, int index) {
    auto& combo = named<QComboBox>(box);
    combo.setFocus();
    while (combo.currentIndex() != index) QTest::keyClick(&combo, combo.currentIndex() < index ? Qt::Key_Down : Qt::Key_Up);
  }
  [[nodiscard]] const PlanRequest& request() const { return document.design().request; }

  QTemporaryDir folder;
  Document document;
  std::unique_ptr<PlanPanel> panel;
};

TEST_F(PlanPanelTest, WithoutAModelNothingCanBeSetOrStarted) {
  for (const char* const name : {"Step", "Samples/s", "Bubble", "Lower bound", "Pipeline makespan"}) EXPECT_EQ(figure(name), "–") << name;
  for (auto* spin : panel->findChildren<QSpinBox*>()) EXPECT_FALSE(spin->isEnabled()) << spin->accessibleName().toStdString();
  EXPECT_FALSE(button("&Run").isEnabled());
  EXPECT_FALSE(button("Profile here").isEnabled());
  EXPECT_EQ(panel->findChild<MemoryBars*>()->accessibleDescription(), "");
}

TEST_F(PlanPanelTest, ShowsTheFiguresOfThePrediction) {
  open();
  const Prediction& prediction = *document.prediction();
  EXPECT_EQ(figure("Step"), durationText(prediction.step));
  EXPECT_EQ(figure("Bubble"), percentText(prediction.bubbleFraction));
  EXPECT_EQ(figure("Pipeline makespan"), durationText(prediction.makespan));
  EXPECT_TRUE(figure("Lower bound").simplified().contains("plan: +")) << figure("Lower bound").toStdString();
  EXPECT_EQ(figure("Prediction error so far"), "no comparable runs yet");
  QStringList words;
  for (const RankMetrics& rank : prediction.ranks) words << QString("rank %1: %2").arg(rank.rank.value).arg(sizeText(rank.peakBytes));
  EXPECT_EQ(panel->findChild<MemoryBars*>()->accessibleDescription(), words.join(", "));
}

TEST_F(PlanPanelTest, ATypedNumberIsOneEditThatCanBeUndone) {
  open();
  const PlanRequest before = request();
  auto& ranks = named<QSpinBox>("Ranks");
  ranks.setFocus();
  ranks.selectAll();
  const int twice = 2 * before.ranks;
  QTest::keyClicks(&ranks, QString::number(twice));
  QTest::keyClick(&ranks, Qt::Key_Return);
  settle();
  EXPECT_EQ(request().ranks, twice);
  EXPECT_EQ(document.prediction()->ranks.size(), static_cast<std::size_t>(twice));
  EXPECT_EQ(document.undoText(), "Change ranks");
  document.undo();
  settle();
  EXPECT_EQ(request().ranks, before.ranks);
  EXPECT_EQ(ranks.value(), before.ranks) << "the box follows";
}

TEST_F(PlanPanelTest, AScheduleBringsTheChunksItNeeds) {
  open();
  auto& schedules = named<QComboBox>("Schedule");
  choose("Schedule", schedules.findText("interleaved-1f1b"));
  settle();
  EXPECT_EQ(request().schedule, "interleaved-1f1b");
  EXPECT_EQ(named<QSpinBox>("Chunks").value(), 2);
  EXPECT_EQ(document.problem(), "");
}

TEST_F(PlanPanelTest, AScheduleThatCannotBeSaysWhyInItsTip) {
  open();
  auto& schedules = named<QComboBox>("Schedule");
  const int index = schedules.findText("dualpipe");
  ASSERT_GE(index, 0);
  const QString before = schedules.itemData(index, Qt::ToolTipRole).toString();
  document.edit("three ranks", [](Design& design) { design.request.ranks = 3; });
  settle();
  const QString after = schedules.itemData(index, Qt::ToolTipRole).toString();
  EXPECT_EQ(before.count('\n'), 0) << before.toStdString();
  EXPECT_EQ(after.count('\n'), 1) << after.toStdString();
}

TEST_F(PlanPanelTest, EachOptimizerIsOfferedAndTakesItsMemory) {
  open();
  const auto peak = [this] { return document.prediction()->ranks.front().peakBytes; };
  auto& optimizers = named<QComboBox>("Optimizer");
  choose("Optimizer", optimizers.findText("SGD"));
  settle();
  const Bytes sgd = peak();
  choose("Optimizer", optimizers.findText("AdamW"));
  settle();
  EXPECT_EQ(request().optimizer.kind, OptimizerSpec::Kind::AdamW);
  EXPECT_GT(peak(), sgd) << "two numbers more for each parameter";
  for (const OptimizerFacts& facts : kOptimizers) EXPECT_GE(optimizers.findText(facts.className.data()), 0) << facts.className;
}

TEST_F(PlanPanelTest, TheMemoryLimitFollowsUndoWhileItHasTheFocus) {
  open();
  auto& limit = named<QLineEdit>("Memory limit of a rank");
  type(limit, "24 GiB");
  settle();
  ASSERT_EQ(request().memoryLimit, Bytes{24} << 30);
  document.undo();
  settle();
  EXPECT_EQ(limit.text(), "");
  document.redo();
  settle();
  EXPECT_EQ(limit.text(), sizeText(Bytes{24} << 30));
}

/// What a label says whenever it is enabled again.
class EnabledAgain : public QObject {
 public:
  explicit EnabledAgain(QLabel& label) { label.installEventFilter(this); }
  QStringList texts;

 private:
  bool eventFilter(QObject* watched, QEvent* event) override {
    const auto* label = static_cast<QLabel*>(watched);
    if (event->type() == QEvent::EnabledChange && label->isEnabled()) texts << label->text();
    return false;
  }
};

TEST_F(PlanPanelTest, BoundsOfThePlanBeforeAreNotShownAsThoseOfAnother) {
  open();
  auto& bound = named<QLabel>("Lower bound");
  ASSERT_NE(bound.text(), "…");
  const EnabledAgain again(bound);
  document.edit("Other ranks", [](Design& d) { d.request.ranks = d.request.ranks == 2 ? 4 : 2; });
  settle();
  EXPECT_FALSE(again.texts.isEmpty()) << "grey until the bound of the new plan is known";
  for (const QString& text : again.texts) EXPECT_EQ(text, "…");  // without the figure of the plan before
  EXPECT_TRUE(bound.isEnabled());
  EXPECT_NE(bound.text(), "…");
}

TEST_F(PlanPanelTest, ALayerTableIsRehearsedAndNotProfiled) {
  EXPECT_FALSE(button("Profile here").isEnabled());
  EXPECT_EQ(button("Profile here").toolTip(), "No model is open to profile; open one first.");
  EXPECT_EQ(button("&Run").toolTip(), "No model is open to run; open one first.");
  QFile file(folder.filePath("layers.csv"));
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(
      "name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes\n"
      "a,1000,3000,10,7,3\nb,1000,3000,10,7,3\nc,1000,3000,10,7,3\nd,1000,3000,10,7,0\n");
  file.close();
  document.adopt(*loadFiles({file.fileName().toStdString()}, {}));
  settle();
  EXPECT_FALSE(button("Profile here").isEnabled());
  EXPECT_TRUE(button("Profile here").toolTip().contains("nothing to measure"));
  EXPECT_TRUE(button("&Run").isEnabled());
  EXPECT_TRUE(button("&Run").toolTip().startsWith("Rehearse")) << button("&Run").toolTip().toStdString();
  open();
  EXPECT_TRUE(button("Profile here").isEnabled());
  EXPECT_TRUE(button("&Run").toolTip().startsWith("Train"));
}

TEST_F(PlanPanelTest, AMemoryLimitIsReadWithItsUnitAndANonsensicalOneIsRefusedInPlace) {
  open();
  auto& limit = named<QLineEdit>("Memory limit of a rank");
  type(limit, "24 GiB");
  settle();
  EXPECT_EQ(request().memoryLimit, Bytes{24} << 30);
  type(limit, "plenty");
  EXPECT_EQ(request().memoryLimit, Bytes{24} << 30) << "as before";
  EXPECT_TRUE(named<QLabel>("Problem").isVisible());
  EXPECT_TRUE(figure("Problem").contains("plenty")) << figure("Problem").toStdString();
  type(limit, "");
  settle();
  EXPECT_EQ(request().memoryLimit, 0);
  EXPECT_FALSE(named<QLabel>("Problem").isVisible());
}

TEST_F(PlanPanelTest, RecomputationIsChosenOrNamedByModule) {
  open();
  auto& recompute = named<QComboBox>("Recompute");
  type(*recompute.lineEdit(), "full");
  settle();
  EXPECT_EQ(request().recompute, Recompute(RecomputeFull()));
  type(*recompute.lineEdit(), "blocks.0, blocks.1");
  settle();
  EXPECT_EQ(request().recompute, Recompute(RecomputeModules{{"blocks.0", "blocks.1"}}));
  type(*recompute.lineEdit(), "");
  settle();
  EXPECT_EQ(request().recompute, Recompute(RecomputeNone()));
}

TEST_F(PlanPanelTest, SharedParametersAreFastestUnlessChosen) {
  open();
  EXPECT_EQ(request().sharing, std::nullopt);
  choose("Shared parameters", 2);
  EXPECT_EQ(request().sharing, Sharing::Transmit);
  choose("Shared parameters", 1);
  EXPECT_EQ(request().sharing, Sharing::Replicate);
  choose("Shared parameters", 0);
  EXPECT_EQ(request().sharing, std::nullopt);
}

TEST_F(PlanPanelTest, AClusterReplacesMeasuredTimes) {
  open();
  Profile measured = *document.profile();
  EXPECT_FALSE(button("Use estimated times again").isVisible()) << "they are estimated";
  document.edit("open a plan", [&](Design& design) { design.profile = std::make_shared<const Profile>(measured); });
  settle();
  EXPECT_FALSE(button("Use estimated times again").isVisible()) << "a plan's, but estimated";
  measured.estimated = false;
  document.edit("measure", [&](Design& design) { design.profile = std::make_shared<const Profile>(measured); });
  settle();
  EXPECT_TRUE(button("Use estimated times again").isVisible());
  QTest::mouseClick(&button("Use estimated times again"), Qt::LeftButton);
  settle();
  EXPECT_EQ(document.design().profile, nullptr);
  EXPECT_FALSE(button("Use estimated times again").isVisible());
  auto& clusters = named<QComboBox>("Cluster");
  choose("Cluster", clusters.findText("h100-nvlink"));
  settle();
  EXPECT_EQ(document.design().cluster, "h100-nvlink");
  EXPECT_TRUE(figure("Where times come from").contains("H100")) << figure("Where times come from").toStdString();
}

TEST_F(PlanPanelTest, EstimatesAreForTheChosenPrecisionAttentionAndLinks) {
  open();
  const auto chosen = [&](const QString& box, const QString& item) {
    const int index = named<QComboBox>(box).findText(item);
    ASSERT_GE(index, 0) << item.toStdString();
    choose(box, index);
    settle();
  };
  chosen("Cluster", "h100-nvlink");
  chosen("Links", "ethernet-25");
  chosen("Estimated precision", "bf16");
  chosen("Estimated attention", "unfused");
  EXPECT_EQ(document.design().cluster, "h100-nvlink+ethernet-25");
  EXPECT_EQ(*document.profile(),
            estimate(*document.graph(), request().microbatch, loadCluster("h100-nvlink+ethernet-25"), DType::BFloat16, Attention::Unfused));
  chosen("Cluster", "a100-nvlink");
  EXPECT_EQ(document.design().cluster, "a100-nvlink+ethernet-25") << "the link stays";
  chosen("Links", "as in the cluster");
  EXPECT_EQ(document.design().cluster, "a100-nvlink");
  const Design saved = parseProject(toJson(Project{document.design(), {}, {}}), "p.pwproj").design;
  EXPECT_EQ(saved.precision, DType::BFloat16);
  EXPECT_EQ(saved.attention, Attention::Unfused);
  while (document.design().precision != DType::Unknown) document.undo();
  settle();
  EXPECT_EQ(named<QComboBox>("Estimated precision").currentText(), "as traced");
  EXPECT_EQ(named<QComboBox>("Links").currentText(), "ethernet-25");
}

TEST_F(PlanPanelTest, AClusterFileIsOpenedOrRefusedInPlace) {
  open();
  Cluster own = loadCluster("h100-nvlink");
  own.deviceName = "Own device";
  QFile file(folder.filePath("own.json"));
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(QByteArray::fromStdString(toJson(own)));
  file.close();
  auto& controls = *panel->findChild<CostControls*>();
  controls.useClusterFile(file.fileName());
  settle();
  EXPECT_EQ(figure("Where times come from"), "estimated for Own device");
  EXPECT_EQ(named<QComboBox>("Cluster").currentText(), "own.json");
  const std::string before = document.design().cluster;
  EXPECT_EQ(before, file.fileName().toStdString());
  controls.useClusterFile(QStringLiteral(PW_SOURCE_DIR "/resources/links.json"));
  EXPECT_TRUE(figure("Problem").contains("links.json")) << figure("Problem").toStdString();
  EXPECT_EQ(document.design().cluster, before);
}

TEST_F(PlanPanelTest, WhatIsWrongWithThePlanIsSaidAndItsFiguresFade) {
  open();
  document.edit("a module that is not there", [](Design& design) { design.request.recompute = RecomputeModules{{"no.such.module"}}; });
  settle();
  EXPECT_TRUE(named<QLabel>("Problem").isVisible());
  EXPECT_EQ(figure("Problem"), document.problem());
  for (const char* const name : {"Step", "Samples/s", "MFU", "Bubble", "Lower bound", "Order", "Pipeline makespan", "On one rank"})
    EXPECT_FALSE(named<QLabel>(name).isEnabled()) << name;
  EXPECT_FALSE(panel->findChild<MemoryBars*>()->isEnabled());
  EXPECT_FALSE(button("&Run").isEnabled()) << "there is no plan to run";
  EXPECT_EQ(button("&Run").toolTip(), document.problem());
  document.undo();
  settle();
  EXPECT_FALSE(named<QLabel>("Problem").isVisible());
  EXPECT_TRUE(named<QLabel>("Step").isEnabled());
  EXPECT_TRUE(named<QLabel>("On one rank").isEnabled());
  EXPECT_TRUE(panel->findChild<MemoryBars*>()->isEnabled());
  EXPECT_TRUE(button("&Run").isEnabled());
}

TEST_F(PlanPanelTest, TheLastBarStandsForTheRanksThatHaveNoneAndItsTipSaysWhatTheyNeed) {
  std::vector<RankMetrics> ranks(40);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].rank = Rank(r);
    ranks[r].peakBytes = static_cast<Bytes>(r == 20 ? 1000 : 100 - r) << 20;
  }
  MemoryBars bars;
  bars.resize(240, bars.sizeHint().height());
  bars.show(ranks, {});
  bars.resize(240, bars.sizeHint().height());
  QHelpEvent help(QEvent::ToolTip, QPoint(20, bars.height() - 8), QPoint(20, 20));
  QApplication::sendEvent(&bars, &help);
  EXPECT_EQ(QToolTip::text(), QString("25 more ranks, from %1 (rank 39) to %2 (rank 20). Analysis, Memory lists every rank.")
                                  .arg(sizeText(Bytes(61) << 20), sizeText(Bytes(1000) << 20)));
  QToolTip::hideText();
}

/// A device of its own memory limits its rank as a limit of the plan does; of both the lower counts.
TEST_F(PlanPanelTest, ARankThatNeedsMoreThanItsDeviceHoldsIsSaidToDoSo) {
  open();
  Cluster cluster = document.cluster();
  cluster.topology.ranks = {{1, 0, 0, {}}, {1, Bytes{1} << 20, 0, {}}};
  document.edit("Small device", [&](Design& d) {
    d.cluster = toJson(cluster);
    d.request.ranks = 2;
    d.request.begins.clear();
  });
  settle();
  EXPECT_EQ(document.rankLimits(), (std::vector<Bytes>{0, Bytes{1} << 20}));
  const auto said = [&](std::size_t rank) {
    return panel->findChild<MemoryBars*>()->accessibleDescription().split(", rank ").at(static_cast<qsizetype>(rank));
  };
  ASSERT_GT(document.prediction()->ranks[1].peakBytes, Bytes{1} << 20);
  EXPECT_FALSE(said(0).contains("more than")) << said(0).toStdString();
  EXPECT_TRUE(said(1).endsWith(", more than its 1.00 MiB")) << said(1).toStdString();
  document.edit("Limit", [](Design& d) { d.request.memoryLimit = Bytes{900} << 10; });
  EXPECT_EQ(document.rankLimits(), (std::vector<Bytes>{Bytes{900} << 10, Bytes{900} << 10}));
}

TEST_F(PlanPanelTest, PastRunsOfTheModelGiveTheStepARange) {
  open();
  RunRecord run;
  run.startedAt = "2024-11-22T14:03:00Z";
  run.transport = Transport::Ucx;
  run.plan = document.plan();
  run.facts.costs = CostSource::Estimated;
  const Ns step = 1'000'000;
  run.predicted = {1, {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, step}}, {}};
  run.steps.push_back({0, 1, {1, {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, step * 5 / 4}}, {}}});
  RunStore(document.storePath().toStdString(), RunStore::Mode::ReadWrite).add(run);
  emit document.storeChanged();
  const auto scaled = [this](double factor) {
    return durationText(static_cast<Ns>(static_cast<double>(document.prediction()->step) * factor));
  };
  EXPECT_EQ(figure("Prediction error so far"), QString("%1: from %2 to %3").arg(percentText(0.25), scaled(1 / 1.25), scaled(1.25)));
}

TEST_F(PlanPanelTest, ATraceOfReplicasIsOfAWholeStep) {
  // 4 ranks of a pipeline on each of 2 replicas, as the trace's `pipeline-parallel` and `data-parallel` numbers say.
  document.adopt(*loadFiles({PW_SOURCE_DIR "/tests/data/straggler_analysis/timeline-ST.json.gz"}, {}));
  settle();
  EXPECT_EQ(named<QComboBox>("Schedule").currentText(), "1f1b (as in the trace)");
  EXPECT_EQ(named<QSpinBox>("Ranks").text(), "4 in each of 2 copies");
  EXPECT_EQ(named<QSpinBox>("Chunks").value(), 1);
  open();
  EXPECT_FALSE(named<QSpinBox>("Ranks").text().contains("copies"));
}

TEST_F(PlanPanelTest, TheButtonsAskForARunAndAProfile) {
  open();
  QSignalSpy runs(panel.get(), &PlanPanel::runRequested), profiles(panel.get(), &PlanPanel::profileRequested);
  QTest::mouseClick(&button("&Run"), Qt::LeftButton);
  EXPECT_EQ(runs.count(), 1);
  EXPECT_EQ(profiles.count(), 0);
  QTest::mouseClick(&button("Profile here"), Qt::LeftButton);
  EXPECT_EQ(profiles.count(), 1);
}

}  // namespace
}  // namespace pw::gui
