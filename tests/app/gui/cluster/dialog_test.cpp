// The cluster editor, with real clicks and keys: what is typed, refused, applied, undone, kept and saved.
#include "app/gui/cluster/dialog.h"

#include <gtest/gtest.h>

#include <QAbstractButton>
#include <QAccessible>
#include <QCheckBox>
#include <QComboBox>
#include <QFile>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QMessageBox>
#include <QProcess>
#include <QPushButton>
#include <QSettings>
#include <QSpinBox>
#include <QTableWidget>
#include <QTemporaryDir>
#include <QTest>
#include <QTimer>
#include <QToolButton>
#include <functional>
#include <nlohmann/json.hpp>

#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "app/gui/plan/panel.h"
#include "backends/host/files.h"
#include "backends/resources/resources.h"
#include "simulator/costs/estimate.h"
#include "simulator/partition/split.h"
#include "tests/app/gui/constants.h"

namespace pw::gui {
namespace {

constexpr const char* kModel = PW_SOURCE_DIR "/resources/models/gpt_small.pt2";

/// The editor of a plan on four ranks of h100-nvlink.
class ClusterEditor : public testing::Test {
 protected:
  void SetUp() override {
    qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
    document.adopt(*loadFiles({kModel}, {}));
    document.edit("four ranks", [this](Design& design) {
      design.cluster = "h100-nvlink";
      design.request.ranks = 4;
      design.request.microbatches = 8;
      design.request.begins.clear();
      for (const char* name : {"blocks.1", "blocks.2", "blocks.3"}) design.request.begins.push_back(findSplit(*document.graph(), name));
    });
    settle();
    dialog = std::make_unique<ClusterDialog>(document);
    dialog->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(dialog.get()));
  }
  void settle() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document.isPredicting(); }, kLongMs));
    ASSERT_EQ(document.problem(), "");
  }
  template <class Widget>
  Widget& named(const QString& name) {
    for (auto* widget : dialog->findChildren<Widget*>()) {
      if (widget->accessibleName() == name) return *widget;
    }
    throw std::logic_error("the editor has no " + name.toStdString());
  }
  QPushButton& button(const QString& text) {
    for (auto* button : dialog->findChildren<QPushButton*>()) {
      if (button->text() == text) return *button;
    }
    throw std::logic_error("the editor has no button " + text.toStdString());
  }
  void type(const QString& field, const QString& text) {
    auto& line = named<QLineEdit>(field);
    line.setFocus();
    line.selectAll();
    QTest::keyClicks(&line, text);
  }
  void set(const QString& field, int value) {
    auto& box = named<QSpinBox>(field);
    box.setFocus();
    box.selectAll();
    QTest::keyClicks(&box, QString::number(value));
    QTest::keyClick(&box, Qt::Key_Tab);
  }
  /// A row of devices that differ, typed into the table.
  void addDevices(const QStringList& cells) {
    QTest::mouseClick(&named<QPushButton>("Add devices that differ"), Qt::LeftButton);
    auto& table = named<QTableWidget>("Devices that differ");
    const int row = table.rowCount() - 1;
    for (int column = 0; column < 3; ++column) {
      table.setCurrentCell(row, column);
      table.editItem(table.item(row, column));
      auto* cell = qobject_cast<QLineEdit*>(QApplication::focusWidget());
      ASSERT_NE(cell, nullptr);
      QTest::keyClicks(cell, cells[column]);
      QTest::keyClick(cell, Qt::Key_Return);
    }
  }
  /// Two nodes of two devices, a slow network and a slow device.
  void typeTwoNodes() {
    type("Name of the cluster", "two boxes");
    set("Nodes", 2);
    set("Devices per node", 2);
    type("Latency between nodes", "50 us");
    type("Bandwidth between nodes", "8 Gb/s");
    addDevices({"3", "0.5", "1 GB"});
  }
  QString shown(int row, int column) { return named<QTableWidget>("Messages of the splits").item(row, column)->text(); }
  bool isTaken(int row, int column) { return named<QTableWidget>("Messages of the splits").item(row, column)->font().bold(); }
  QStringList problemsShown() {
    QStringList texts;
    for (const auto* label : dialog->findChildren<QLabel*>()) {
      if (label->isVisible() && label->wordWrap() && label != &named<QLabel>("State of the cluster") && !label->text().isEmpty())
        texts << label->text();
    }
    return texts;
  }

  QTemporaryDir folder;
  Document document;
  std::unique_ptr<ClusterDialog> dialog;
};

// A message is 2 samples × 32 tokens × 64 features of 4 bytes = 16,384 bytes.
TEST_F(ClusterEditor, ShowsTheTimeOfEachMessageWhileItIsTyped) {
  ASSERT_EQ(named<QTableWidget>("Messages of the splits").rowCount(), 3);
  EXPECT_EQ(shown(0, 0), "stage 0 → 1");
  EXPECT_EQ(shown(0, 1), "16.0 KiB");
  EXPECT_EQ(shown(0, 2), "5.04 µs") << "5 µs + 16,384 / 450 GB/s";
  EXPECT_TRUE(isTaken(1, 2)) << "all in one node";
  set("Devices per node", 2);
  EXPECT_TRUE(isTaken(0, 2));
  EXPECT_TRUE(isTaken(1, 3)) << "from rank 1 to rank 2";
  EXPECT_FALSE(isTaken(1, 2));
  type("Latency between nodes", "10 us");
  type("Bandwidth between nodes", "1 GB/s");
  EXPECT_EQ(shown(1, 3), "26.4 µs") << "10 µs + 16.384 µs";
  type("Bandwidth between nodes", "80 Gb/s");
  EXPECT_EQ(shown(1, 3), "11.6 µs") << "10 µs + 1.6384 µs";
  type("Bandwidth between nodes", "80 G");
  EXPECT_EQ(shown(1, 3), "–");
  EXPECT_EQ(document.design().cluster, "h100-nvlink") << "nothing is applied";
}

TEST_F(ClusterEditor, RefusesAFieldWhereItStandsAndAppliesNothing) {
  type("Latency within a node", "soon");
  EXPECT_EQ(problemsShown(), QStringList{"Latency within a node: “soon” is not a time; write for example 5 µs or 0.2 ms."});
  EXPECT_EQ(named<QLineEdit>("Latency within a node").accessibleDescription(), problemsShown().front()) << "for screen readers";
  for (const char* text : {"&Apply", "&OK", "&Save as file…"}) EXPECT_FALSE(button(text).isEnabled()) << text;
  QTest::keyClick(&named<QLineEdit>("Latency within a node"), Qt::Key_Return);
  EXPECT_TRUE(dialog->isVisible());
  EXPECT_FALSE(dialog->apply());
  EXPECT_FALSE(dialog->save(folder.filePath("no.json")));
  EXPECT_FALSE(QFile::exists(folder.filePath("no.json")));
  EXPECT_EQ(document.design().cluster, "h100-nvlink");
  type("Latency within a node", "5 µs");
  EXPECT_EQ(problemsShown(), QStringList());
  EXPECT_FALSE(button("&Apply").isEnabled()) << "as before, so there is nothing to apply";
  addDevices({"5", "0.5", ""});
  ASSERT_EQ(problemsShown().size(), 1) << "nodes are as many as needed";
  set("Nodes", 1);
  EXPECT_EQ(problemsShown(), QStringList());
  set("Devices per node", 4);
  EXPECT_EQ(problemsShown(), QStringList{"Devices: there is no device 5; 1 × 4 are numbered 0 to 3."});
  QTest::mouseClick(&named<QPushButton>("Remove devices that differ"), Qt::LeftButton);
  EXPECT_EQ(problemsShown(), QStringList());
}

TEST_F(ClusterEditor, AppliesInOneStepOfUndoWithNewTimes) {
  const Ns before = document.prediction()->step;
  const Design designBefore = document.design();
  typeTwoNodes();
  QTest::mouseClick(&button("&Apply"), Qt::LeftButton);
  settle();
  EXPECT_EQ(document.undoText(), "Edit cluster two boxes");
  const Cluster cluster = loadCluster(document.design().cluster);
  EXPECT_EQ(cluster.topology.ranks.size(), 4U);
  EXPECT_EQ(cluster.topology.ranks[3], (RankSpec{0.5, 1'000'000'000, 1}));
  EXPECT_EQ(cluster.topology.network, (LinkSpec{50'000, 1e9}));
  EXPECT_EQ(*document.profile(), estimate(*document.graph(), 2, cluster));
  EXPECT_GT(document.prediction()->step, before) << "a slow link, and a device of half the speed";
  EXPECT_FALSE(button("&Apply").isEnabled()) << "it is";
  EXPECT_EQ(dialog->state(), "The plan is for this cluster.");
  document.undo();
  settle();
  EXPECT_EQ(document.design(), designBefore);
  EXPECT_EQ(document.prediction()->step, before);
  EXPECT_TRUE(button("&Apply").isEnabled()) << "what is typed stays";
  document.redo();
  settle();
  EXPECT_EQ(document.cluster().name, "two boxes");
}

TEST_F(ClusterEditor, TakesTheMemoryAsThePlansLimitWhereChosen) {
  type("Memory per device", "3 MiB");
  QTest::mouseClick(&button("&Apply"), Qt::LeftButton);
  EXPECT_EQ(document.design().request.memoryLimit, 0);
  auto& limits = named<QCheckBox>("Memory limit of the plan, too");
  QTest::keyClick(&limits, Qt::Key_Space);
  QTest::mouseClick(&button("&Apply"), Qt::LeftButton);
  EXPECT_EQ(document.design().request.memoryLimit, Bytes{3} << 20);
  settle();
}

TEST_F(ClusterEditor, AppliesThePrecisionThatTheDeviceHas) {
  dialog->startFrom("a100-nvlink");
  named<QComboBox>("Precision of the plan").setFocus();
  for (int i = 0; i < 3; ++i) QTest::keyClick(&named<QComboBox>("Precision of the plan"), Qt::Key_Down);
  EXPECT_EQ(problemsShown(), QStringList{"Precision: the device has no peak in fp8; choose another, or start from a cluster that has it."});
  EXPECT_FALSE(button("&OK").isEnabled());
  EXPECT_FALSE(dialog->apply());
  for (int i = 0; i < 2; ++i) QTest::keyClick(&named<QComboBox>("Precision of the plan"), Qt::Key_Up);
  QTest::mouseClick(&button("&Apply"), Qt::LeftButton);
  settle();
  EXPECT_EQ(document.design().precision, DType::BFloat16);
  EXPECT_EQ(*document.profile(), estimate(*document.graph(), 2, loadCluster("a100-nvlink"), DType::BFloat16));
}

TEST_F(ClusterEditor, TakesTheFiguresOfAKnownLink) {
  const auto links = linkPresets();
  const auto wanted = std::ranges::find(links, "ethernet-25", &NamedLink::name);
  ASSERT_NE(wanted, links.end());
  for (QAction* action : named<QToolButton>("Known links between nodes").menu()->actions()) {
    if (action->text().startsWith("ethernet-25:")) action->trigger();
  }
  EXPECT_EQ(named<QLineEdit>("Bandwidth between nodes").text(), "3.125 GB/s") << "25 Gb/s";
  EXPECT_EQ(dialog->state(), "Not applied yet.");
  ASSERT_TRUE(dialog->apply());
  settle();
  EXPECT_EQ(loadCluster(document.design().cluster).topology.network, wanted->link);
  EXPECT_EQ(*document.profile(), [&] {
    Profile same = estimate(*document.graph(), 2, loadCluster("h100-nvlink+ethernet-25"));
    same.cluster = document.profile()->cluster;
    same.machine.host = "h100-nvlink";
    return same;
  }()) << "as with the link chosen under Plan";
}

TEST_F(ClusterEditor, StartsFromEveryPreset) {
  auto& start = named<QComboBox>("Start from");
  EXPECT_EQ(start.currentText(), "h100-nvlink");
  for (const std::string& preset : clusterPresets()) {
    const int index = start.findText(QString::fromStdString(preset));
    ASSERT_GE(index, 0) << preset;
    start.setFocus();
    while (start.currentIndex() != index) QTest::keyClick(&start, start.currentIndex() < index ? Qt::Key_Down : Qt::Key_Up);
    EXPECT_EQ(named<QLineEdit>("Name of the cluster").text().toStdString(), loadCluster(preset).name);
  }
  EXPECT_EQ(document.design().cluster, "h100-nvlink") << "nothing is applied";
  dialog->startFrom("a100-pcie");
  QTest::mouseClick(&button("&OK"), Qt::LeftButton);
  settle();
  EXPECT_EQ(document.design().cluster, "a100-pcie") << "unchanged, it stays the preset";
  EXPECT_FALSE(dialog->isVisible());
}

TEST_F(ClusterEditor, EveryControlHasANameAndEveryMnemonicOneOfThem) {
  int controls = 0;
  QString mnemonics;
  for (QWidget* w : dialog->findChildren<QWidget*>()) {
    const auto* label = qobject_cast<QLabel*>(w);
    const auto* button = qobject_cast<QAbstractButton*>(w);
    const QString text = label != nullptr && label->buddy() != nullptr ? label->text() : button != nullptr ? button->text() : QString();
    if (const auto at = text.indexOf('&'); at >= 0) mnemonics += text[at + 1].toLower();
    const bool isPart = w->objectName().startsWith("qt_") || w->parentWidget()->inherits("QAbstractSpinBox") ||
                        w->inherits("QTableCornerButton") || w->inherits("QComboBoxListView") ||
                        qobject_cast<QComboBox*>(w->parentWidget());
    if (isPart || w->focusPolicy() == Qt::NoFocus) continue;
    QAccessibleInterface* face = QAccessible::queryAccessibleInterface(w);
    ASSERT_NE(face, nullptr);
    if (w->inherits("QHeaderView") || w->inherits("QScrollBar") || w->inherits("DeviceTable")) continue;
    EXPECT_FALSE(face->text(QAccessible::Name).isEmpty()) << w->metaObject()->className();
    ++controls;
  }
  EXPECT_GE(controls, 20);
  EXPECT_GE(mnemonics.size(), 18);
  for (const auto* control : dialog->findChildren<QAbstractButton*>()) {
    if (control->text().isEmpty() || control->objectName().startsWith("qt_")) continue;
    EXPECT_FALSE(QKeySequence::mnemonic(control->text()).isEmpty()) << control->text().toStdString();
  }
  std::ranges::sort(mnemonics);
  EXPECT_EQ(std::ranges::adjacent_find(mnemonics), mnemonics.end()) << mnemonics.toStdString();
}

TEST_F(ClusterEditor, HasRoomInASmallWindow) {
  dialog->resize(984, 660);
  QApplication::processEvents();
  ASSERT_EQ(dialog->size(), QSize(984, 660)) << "of a window of 1024 × 700";
  for (const char* name : {"Latency within a node", "Bandwidth between nodes", "Memory per device"}) {
    const auto& field = named<QLineEdit>(name);
    EXPECT_EQ(field.visibleRegion().boundingRect(), field.rect()) << name;
  }
  for (const char* text : {"&Save as file…", "&Apply", "&OK"}) EXPECT_EQ(button(text).visibleRegion().boundingRect(), button(text).rect());
}

TEST_F(ClusterEditor, IsKeptInProjectsAndPlans) {
  typeTwoNodes();
  ASSERT_TRUE(dialog->apply());
  settle();
  const Design& design = document.design();
  const std::string project = toJson(Project{design, {}, {}});
  EXPECT_EQ(nlohmann::json::parse(project)["cluster"]["name"], "two boxes") << "as an object";
  EXPECT_EQ(parseProject(project, "p.pwproj").design.cluster, design.cluster);
  const std::string path = folder.filePath("plan.json").toStdString();
  writeFile(path, toJson(document.plan()));
  const auto loaded = loadFiles({path}, {});
  EXPECT_EQ(loaded->design.cluster, design.cluster);
  EXPECT_EQ(loaded->design.profile, nullptr) << "its estimates follow the design";
  const Ns step = document.prediction()->step;
  document.adopt(*loaded);
  settle();
  EXPECT_EQ(document.prediction()->step, step);
  EXPECT_EQ(document.cluster().name, "two boxes");
}

TEST_F(ClusterEditor, AFileOfItGivesTheSamePredictionOnTheCommandLine) {
  typeTwoNodes();
  const QString path = folder.filePath("two_boxes.json");
  ASSERT_TRUE(dialog->save(path)) << dialog->state().toStdString();
  ASSERT_TRUE(dialog->apply());
  settle();
  QProcess call;
  call.start(PIPEWRIGHT,
             {"plan", kModel, "--ranks", "4", "--microbatches", "8", "--microbatch", "2", "--split", "blocks.1,blocks.2,blocks.3",
              "--rank-order", "0,1,2,3", "--cluster", path, "--out", folder.filePath("plan.json"), "--json"});
  ASSERT_TRUE(call.waitForFinished(kLongMs));
  ASSERT_EQ(call.exitCode(), 0) << call.readAllStandardError().toStdString();
  const auto said = nlohmann::json::parse(call.readAllStandardOutput().toStdString());
  const Prediction& prediction = *document.prediction();
  EXPECT_EQ(said["step_ns"], prediction.step.value);
  EXPECT_EQ(said["makespan_ns"], prediction.makespan.value);
  ASSERT_EQ(said["ranks"].size(), prediction.ranks.size());
  for (std::size_t r = 0; r < prediction.ranks.size(); ++r) {
    EXPECT_EQ(said["ranks"][r]["busy_ns"], prediction.ranks[r].busy.value) << r;
    EXPECT_EQ(said["ranks"][r]["peak_bytes"], prediction.ranks[r].peakBytes.value) << r;
  }
}

TEST_F(ClusterEditor, IsOpenedFromThePlanPanelWhichNamesTheEditedCluster) {
  dialog.reset();
  PlanPanel panel(document);
  panel.resize(420, 900);
  panel.show();
  ASSERT_TRUE(QTest::qWaitForWindowExposed(&panel));
  QComboBox* clusters = nullptr;
  for (auto* box : panel.findChildren<QComboBox*>()) {
    if (box->accessibleName() == "Cluster") clusters = box;
  }
  ASSERT_NE(clusters, nullptr);
  const int presets = clusters->count();
  for (auto* button : panel.findChildren<QToolButton*>()) {
    if (button->accessibleName() == "Edit cluster") QTest::mouseClick(button, Qt::LeftButton);
  }
  auto* editor = panel.findChild<ClusterDialog*>();
  ASSERT_NE(editor, nullptr);
  for (const char* latency : {"7 us", "8 us"}) {
    for (auto* line : editor->findChildren<QLineEdit*>()) {
      if (line->accessibleName() != "Latency within a node") continue;
      line->selectAll();
      QTest::keyClicks(line, latency);
    }
    ASSERT_TRUE(editor->apply());
    settle();
    EXPECT_EQ(clusters->currentText(), "h100-nvlink (edited)");
    EXPECT_EQ(clusters->count(), presets + 1) << "an earlier edit is not offered";
  }
  document.undo();
  document.undo();
  settle();
  EXPECT_EQ(clusters->currentText(), "h100-nvlink");
}

/// Presses a button of the question that is asked next, if one is; its text.
QString answered(QMessageBox::StandardButton button, const std::function<void()>& act) {
  QString question;
  QTimer::singleShot(0, [&] {
    auto* box = qobject_cast<QMessageBox*>(QApplication::activeModalWidget());
    if (box == nullptr) return;
    question = box->text();
    if (auto* pressed = box->button(button)) return pressed->click();
    ADD_FAILURE() << "no such button";
    box->done(QMessageBox::Cancel);
  });
  act();
  QCoreApplication::processEvents();
  return question;
}

TEST_F(ClusterEditor, EditsAreNotLostByClosingWithoutAQuestion) {
  const auto escape = [this] { QTest::keyClick(dialog.get(), Qt::Key_Escape); };
  const Design before = document.design();
  type("Bandwidth within a node", "200 GB/s");
  EXPECT_EQ(answered(QMessageBox::Cancel, escape), "The changes of this cluster are neither applied nor saved. Apply them?");
  EXPECT_TRUE(dialog->isVisible());
  EXPECT_EQ(document.design(), before);
  type("Bandwidth within a node", "wide");
  EXPECT_EQ(answered(QMessageBox::Cancel, escape), "The changes of this cluster are neither applied nor saved. Discard them?");
  type("Bandwidth within a node", "200 GB/s");
  EXPECT_NE(answered(QMessageBox::Apply, [this] { button("C&lose").click(); }), "");
  EXPECT_FALSE(dialog->isVisible());
  EXPECT_EQ(loadCluster(document.design().cluster).topology.sameNode.bytesPerSecond, 200e9);
}

TEST_F(ClusterEditor, ClosesWithoutAQuestionWhereNothingIsLost) {
  const auto close = [this] { button("C&lose").click(); };
  EXPECT_EQ(answered(QMessageBox::Cancel, close), "");
  EXPECT_FALSE(dialog->isVisible());
  dialog->show();
  type("Bandwidth within a node", "200 GB/s");
  ASSERT_TRUE(dialog->apply());
  EXPECT_EQ(answered(QMessageBox::Cancel, close), "");
  EXPECT_FALSE(dialog->isVisible());
  dialog->show();
  type("Bandwidth within a node", "100 GB/s");
  ASSERT_TRUE(dialog->save(folder.filePath("mine.json")));
  EXPECT_EQ(answered(QMessageBox::Cancel, close), "") << "the file has them";
  EXPECT_FALSE(dialog->isVisible());
  dialog->show();
  type("Bandwidth within a node", "50 GB/s");
  EXPECT_NE(answered(QMessageBox::Discard, close), "");
  EXPECT_FALSE(dialog->isVisible());
}

TEST_F(ClusterEditor, AsksForThePrecisionThatAFileDoesNotHave) {
  dialog->startFrom("a100-nvlink");
  ASSERT_TRUE(dialog->apply());
  named<QComboBox>("Precision of the plan").setFocus();
  QTest::keyClick(&named<QComboBox>("Precision of the plan"), Qt::Key_Down);
  ASSERT_TRUE(dialog->save(folder.filePath("mine.json")));
  EXPECT_NE(answered(QMessageBox::Discard, [this] { button("C&lose").click(); }), "");
}

}  // namespace
}  // namespace pw::gui
