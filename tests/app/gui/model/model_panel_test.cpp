#include "app/gui/model/panel.h"

#include <gtest/gtest.h>

#include <QApplication>
#include <QClipboard>
#include <QFile>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QPushButton>
#include <QTemporaryDir>
#include <QTest>
#include <QTimer>
#include <QToolButton>

#include <algorithm>
#include <set>

#include "app/gui/common/work_bar.h"
#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/model/margin.h"
#include "app/gui/model/parts/split_handle.h"
#include "app/gui/model/split_commands.h"
#include "app/gui/model/stage_list.h"
#include "app/gui/model/tree_view.h"
#include "backends/pt2/read.h"
#include "simulator/partition/split.h"
#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

class ModelPanelShown : public testing::Test {
 protected:
  void SetUp() override {
    qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
    panel_.resize(800, 1400);
    panel_.show();
    open("gpt_small", {"blocks.1", "blocks.2", "blocks.3"});
  }

  void open(const std::string& model, const std::vector<std::string>& names) {
    document_.adopt(*loadFiles({samplePath(model)}, {}));
    predicted();
    document_.edit("place", [&](Design& d) {
      d.request.begins.clear();
      for (const std::string& name : names) d.request.begins.push_back(at(name));
      d.request.ranks = static_cast<int>(names.size()) + 1;
      d.request.microbatches = 8;
    });
    predicted();
    ASSERT_TRUE(document_.problem().isEmpty()) << document_.problem().toStdString();
    undoable_ = document_.undoText();
  }
  void predicted() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document_.isPredicting(); }, 20'000));
  }

  [[nodiscard]] NodeId at(const std::string& name) const { return findSplit(*document_.graph(), name); }
  [[nodiscard]] const std::vector<NodeId>& begins() const { return document_.design().request.begins; }
  [[nodiscard]] std::vector<NodeId> places(const std::vector<std::string>& names) const {
    std::vector<NodeId> list;
    for (const std::string& name : names) list.push_back(at(name));
    return list;
  }
  /// Layers of equal times; under 1f1b the first of two stages keeps two microbatches, the second one. Split in the middle the ranks need
  /// 2 · (10 + 1) and 1 + 1 MiB, one layer earlier 2 · 10 and 1 + 1 + 1.
  void openLayers(const std::string& schedule) {
    const QTemporaryDir folder;
    QFile file(folder.filePath("layers.csv"));
    ASSERT_TRUE(file.open(QIODevice::WriteOnly));
    file.write("name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n");
    for (const char* layer : {"a,1000,1000,1000,0,10485760,8\n", "b,1000,1000,1000,0,1048576,8\n", "c,1000,1000,1000,0,1048576,8\n",
                              "d,1000,1000,1000,0,1048576,8\n"})
      file.write(layer);
    file.close();
    document_.adopt(*loadFiles({file.fileName().toStdString()}, {}));
    predicted();
    document_.edit("place", [&](Design& d) {
      d.request.schedule = schedule;
      d.request.begins = {NodeId(2)};
      d.request.ranks = 2;
      d.request.microbatches = 8;
      d.request.memoryLimit = Bytes{21} << 20;
    });
    predicted();
  }
  [[nodiscard]] TreeView& view() { return *panel_.findChild<TreeView*>(); }
  [[nodiscard]] Margin& margin() { return *panel_.findChild<Margin*>(); }
  [[nodiscard]] SplitHandle& handle(std::size_t split) { return *margin().handles().at(split); }
  [[nodiscard]] const CallTree& tree() { return static_cast<TreeModel*>(view().model())->tree(); }
  [[nodiscard]] QString notice() { return panel_.findChild<QLabel*>("notice")->text(); }
  [[nodiscard]] int row(const std::string& path) {
    for (int r = 0; r < tree().size(); ++r) {
      if (tree().row(r).isModule && tree().row(r).path == path) return r;
    }
    return -1;
  }
  void choose(const std::string& path) { view().setCurrentIndex(static_cast<TreeModel*>(view().model())->indexOf(row(path))); }

  // A drag of a handle by its middle, in steps of some pixels.
  void press(std::size_t split) { QTest::mousePress(&handle(split), Qt::LeftButton, {}, handle(split).rect().center()); }
  void moveTo(std::size_t split, double y) {  // of the viewport
    const QPoint global = view().viewport()->mapToGlobal(QPoint(-20, static_cast<int>(y)));
    QMouseEvent move(QEvent::MouseMove, handle(split).mapFromGlobal(global), global, Qt::NoButton, Qt::LeftButton, {});
    QApplication::sendEvent(&handle(split), &move);
  }
  void release(std::size_t split) { QTest::mouseRelease(&handle(split), Qt::LeftButton, {}, handle(split).rect().center()); }

  Document document_;
  ModelPanel panel_{document_};
  QString undoable_;
};

TEST_F(ModelPanelShown, ShowsAndCopiesMegatronsLayoutOfTheSplits) {
  auto* line = panel_.findChild<QLineEdit*>("layoutString");
  auto* copy = line->parentWidget()->findChild<QToolButton*>();
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(line->isVisible());
  EXPECT_EQ(line->text(), "Et|t|t|tL");
  document_.beginDrag("move");
  document_.edit("move", [&](Design& d) { d.request.begins = places({"blocks.2", "blocks.3"}), d.request.ranks = 3; });
  EXPECT_EQ(line->text(), "Et*2|t|tL") << "at once, before the prediction";
  document_.endDrag(true);
  QTest::mouseClick(copy, Qt::LeftButton);
  EXPECT_EQ(QApplication::clipboard()->text(), "Et*2|t|tL");
  predicted();
  document_.edit("move", [&](Design& d) { d.request.begins = places({"blocks.2.mlp", "blocks.3"}); });
  predicted();
  EXPECT_EQ(line->text(), "stage 1 begins inside blocks.2");
  EXPECT_FALSE(copy->isEnabled());
}

TEST_F(ModelPanelShown, NestedArcsHaveALaneEach) {
  view().expandAll();
  QApplication::processEvents();
  std::vector<NodeId> nodes;  // where visible rows begin
  for (const int row : view().visibleRows().rows()) nodes.push_back(tree().row(row).firstNode);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  constexpr std::size_t kArcs = 11;
  ASSERT_GT(nodes.size(), 2 * kArcs + 1);
  std::vector<Arc> arcs(kArcs);
  for (std::size_t a = 0; a < kArcs; ++a) {
    arcs[a].from = nodes[a];
    arcs[a].to = nodes[2 * kArcs - a];
  }
  const NodeId inner = nodes[kArcs];  // all go past it
  margin().setArcs(arcs);
  std::set<std::size_t> found;
  for (double x = 0; x < margin().width(); x += 0.25) {
    for (const std::size_t arc : margin().arcsAt({x, view().yOf(inner)})) found.insert(arc);
  }
  EXPECT_EQ(found.size(), kArcs);
}

TEST_F(ModelPanelShown, HandlesStandWhereStagesBegin) {
  ASSERT_EQ(margin().handles().size(), 3U);
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_NEAR(handle(s).geometry().center().y(), view().yOf(begins()[s]), 1.5);
    const QRect row = view().visualRect(static_cast<TreeModel*>(view().model())->indexOf(this->row("blocks." + std::to_string(s + 1))));
    EXPECT_NEAR(view().yOf(begins()[s]), row.top(), 1.0);
  }
  EXPECT_TRUE(handle(0).accessibleName().contains("blocks.1"));
}

TEST_F(ModelPanelShown, ADragFollowsTheMouseFromPlaceToPlaceAndIsOneStepOfUndo) {
  press(1);
  moveTo(1, view().yOf(at("blocks.2")) + view().rowHeight() * 0.2);  // nearest to where it is
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
  EXPECT_TRUE(document_.isDragging());
  view().openAround(row("blocks.2.mlp"));
  QApplication::processEvents();
  moveTo(1, view().yOf(at("blocks.2.mlp_norm")));
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2.mlp_norm", "blocks.3"}));
  moveTo(1, view().yOf(at("blocks.2.mlp")) + 2);
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2.mlp", "blocks.3"}));
  EXPECT_NEAR(handle(1).geometry().center().y(), view().yOf(at("blocks.2.mlp")), 1.5);
  release(1);
  EXPECT_FALSE(document_.isDragging());
  EXPECT_EQ(document_.undoText(), "Move split");
  document_.undo();
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
  EXPECT_EQ(document_.undoText(), undoable_);
}

TEST_F(ModelPanelShown, EscapeGivesUpADrag) {
  press(2);
  moveTo(2, view().yOf(at("norm")));
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "norm"}));
  QTest::keyClick(&handle(2), Qt::Key_Escape);
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
  EXPECT_EQ(document_.undoText(), undoable_);
  EXPECT_FALSE(view().dropMark().has_value());
  moveTo(2, view().yOf(at("norm")));  // the button is still down, but the drag is over
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
}

TEST_F(ModelPanelShown, WhereNoStageMayBeginTheDragIsRefusedAndSaysWhy) {
  press(1);
  moveTo(1, view().yOf(at("blocks.1")));
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
  ASSERT_TRUE(view().dropMark().has_value());
  EXPECT_TRUE(view().dropMark()->refusal.startsWith("Stage 1 would be empty"));
  EXPECT_EQ(handle(1).cursor().shape(), Qt::ForbiddenCursor);
  EXPECT_NE(handle(0).cursor().shape(), Qt::ForbiddenCursor);
  moveTo(1, view().yOf(at("blocks.2")));
  EXPECT_TRUE(view().dropMark()->refusal.isEmpty());
  EXPECT_EQ(handle(1).cursor().shape(), Qt::SplitVCursor);
  release(1);
  EXPECT_EQ(document_.undoText(), undoable_);  // nothing changed
}

TEST_F(ModelPanelShown, AStageOfWhatOthersComputeAgainIsRefused) {
  press(0);  // before `embed` are only the positions, which depend on nothing
  moveTo(0, view().yOf(tree().row(row("embed")).firstNode));
  ASSERT_TRUE(view().dropMark().has_value());
  EXPECT_TRUE(view().dropMark()->refusal.contains("recompute all of this")) << view().dropMark()->refusal.toStdString();
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
  release(0);
}

TEST_F(ModelPanelShown, AClosedRowOpensWhenADragWaitsOnIt) {
  const QModelIndex block = static_cast<TreeModel*>(view().model())->indexOf(row("blocks.0"));
  ASSERT_FALSE(view().isExpanded(block));
  press(0);
  moveTo(0, view().yOf(at("blocks.0")) + view().rowHeight() * 0.45);
  EXPECT_TRUE(QTest::qWaitFor([&] { return view().isExpanded(block); }, 10'000));
  release(0);
}

TEST_F(ModelPanelShown, ArrowKeysStepToTheNextPlaceAStageMayBegin) {
  const auto& points = document_.splitPoints();
  const auto here = std::find_if(points.begin(), points.end(), [&](const SplitPoint& p) { return p.begin == begins()[1]; });
  const NodeId above = std::prev(here)->begin, below = std::next(here)->begin;
  handle(1).setFocus(Qt::TabFocusReason);
  QTest::keyClick(&handle(1), Qt::Key_Down);
  EXPECT_EQ(begins()[1], below);
  EXPECT_TRUE(view().visibleRows().isBetweenRows(below));  // opened
  EXPECT_TRUE(handle(1).hasFocus());
  QTest::keyClick(&handle(1), Qt::Key_Up);
  QTest::keyClick(&handle(1), Qt::Key_Up);
  EXPECT_EQ(begins()[1], above);
  EXPECT_TRUE(notice().isEmpty());
}

TEST_F(ModelPanelShown, AnArrowKeyAtTheNextSplitSaysThatAStageWouldBeEmpty) {
  document_.edit("close", [&](Design& d) { d.request.begins = places({"blocks.1", "norm", "head"}); });
  QTest::keyClick(&handle(1), Qt::Key_Down);
  EXPECT_EQ(begins(), places({"blocks.1", "norm", "head"}));
  EXPECT_TRUE(notice().contains("would be empty"));
}

TEST_F(ModelPanelShown, SSplitsAtTheRowAndDeleteRemovesWithARankMoreOrLess) {
  choose("head");
  QTest::keyClick(&view(), Qt::Key_S);
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3", "head"}));
  EXPECT_EQ(document_.design().request.ranks, 5);
  ASSERT_EQ(margin().handles().size(), 4U);
  predicted();
  EXPECT_TRUE(document_.problem().isEmpty()) << document_.problem().toStdString();
  QTest::keyClick(&view(), Qt::Key_Delete);
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
  EXPECT_EQ(document_.design().request.ranks, 4);
  handle(0).setFocus(Qt::TabFocusReason);
  QTest::keyClick(&handle(0), Qt::Key_Delete);
  ASSERT_TRUE(QTest::qWaitFor([&] { return begins().size() == 2; }, 5'000));
  EXPECT_EQ(begins(), places({"blocks.2", "blocks.3"}));
  EXPECT_EQ(document_.undoText(), "Remove split");
}

TEST_F(ModelPanelShown, WhatCannotBeSplitLeavesTheDesignAndSaysWhy) {
  choose("");
  const Design before = document_.design();
  QTest::keyClick(&view(), Qt::Key_S);
  EXPECT_EQ(document_.design(), before);
  EXPECT_FALSE(notice().isEmpty());
  choose("head");
  QTest::keyClick(&view(), Qt::Key_Delete);
  EXPECT_EQ(document_.design(), before);
  EXPECT_TRUE(notice().contains("no split"));
  QTest::keyClick(&view(), Qt::Key_S);
  EXPECT_TRUE(notice().isEmpty());
}

TEST_F(ModelPanelShown, SplitsAreFittedToTheMemoryLimitInOneStepOfUndo) {
  openLayers("1f1b");
  ASSERT_EQ(document_.prediction()->ranks[0].peakBytes, Bytes{22} << 20);
  SplitCommands commands(document_, view());
  QString refusal;
  QObject::connect(&commands, &SplitCommands::refused, [&](const QString& sentence) { refusal = sentence; });
  commands.fitSplits();
  ASSERT_TRUE(QTest::qWaitFor([&] { return begins() == std::vector{NodeId(1)}; }, 20'000)) << refusal.toStdString();
  predicted();
  EXPECT_EQ(document_.prediction()->ranks[0].peakBytes, Bytes{20} << 20);
  commands.fitSplits();
  ASSERT_TRUE(QTest::qWaitFor([&] { return !refusal.isEmpty(); }, 20'000));
  EXPECT_EQ(refusal, "No other splits were found that fit the memory limit better.");
  document_.undo();
  EXPECT_EQ(begins(), std::vector{NodeId(2)});
}

TEST_F(ModelPanelShown, FittingSplitsIsCancelledBelowTheTree) {
  openLayers("1f1b");
  const QString undoable = document_.undoText();
  const auto* bar = panel_.findChild<WorkBar*>();
  QString doing;
  QTimer::singleShot(0, &panel_, [&] {
    auto* menu = qobject_cast<QMenu*>(QApplication::activePopupWidget());
    ASSERT_NE(menu, nullptr);
    for (QAction* action : menu->findChildren<QAction*>()) {
      if (action->text() == "By time, within the memory limit") action->trigger();
    }
    menu->close();
    doing = bar->findChild<QLabel*>()->text();
    bar->findChild<QPushButton*>()->click();  // before the answer can arrive
  });
  emit view().menuRequested(0, view().mapToGlobal(QPoint(5, 5)));
  EXPECT_EQ(doing, "Fit splits…");
  QTest::qWait(500);
  EXPECT_EQ(begins(), std::vector{NodeId(2)});
  EXPECT_EQ(document_.undoText(), undoable);
}

TEST_F(ModelPanelShown, FindingGoesFromMatchToMatch) {
  panel_.find();
  auto* field = panel_.findChild<QLineEdit*>();
  ASSERT_EQ(QApplication::focusWidget(), field);
  QTest::keyClicks(field, "attention.out");
  const auto current = [&] { return tree().row(view().currentRow()).path; };
  EXPECT_EQ(current(), "blocks.0.attention.out");
  QTest::keyClick(field, Qt::Key_Return);
  EXPECT_EQ(current(), "blocks.1.attention.out");
  QTest::keyClick(field, Qt::Key_Return, Qt::ShiftModifier);
  QTest::keyClick(field, Qt::Key_Return, Qt::ShiftModifier);
  EXPECT_EQ(current(), "blocks.3.attention.out");
  EXPECT_TRUE(view().visualRect(view().currentIndex()).isValid());  // opened around it
  QTest::keyClick(field, Qt::Key_Escape);
  EXPECT_TRUE(field->text().isEmpty());
  EXPECT_TRUE(view().hasFocus());
}

TEST_F(ModelPanelShown, OpenRowsAndTheCursorSurviveAnotherMicrobatch) {
  view().openAround(row("blocks.1.mlp.up"));
  choose("blocks.1.mlp");
  document_.edit("samples", [](Design& d) { d.request.microbatch = 4; });
  predicted();
  EXPECT_TRUE(view().isExpanded(static_cast<TreeModel*>(view().model())->indexOf(row("blocks.1.mlp"))));
  EXPECT_FALSE(view().isExpanded(static_cast<TreeModel*>(view().model())->indexOf(row("blocks.0"))));
  EXPECT_EQ(tree().row(view().currentRow()).path, "blocks.1.mlp");
}

TEST_F(ModelPanelShown, ASplitThatComesIntoAClosedRowOpensIt) {
  ASSERT_FALSE(view().isExpanded(static_cast<TreeModel*>(view().model())->indexOf(row("blocks.0"))));
  document_.edit("search", [&](Design& d) { d.request.begins = places({"blocks.0.mlp", "blocks.2", "blocks.3"}); });
  EXPECT_TRUE(view().isExpanded(static_cast<TreeModel*>(view().model())->indexOf(row("blocks.0"))));
  EXPECT_TRUE(view().visibleRows().isBetweenRows(at("blocks.0.mlp")));
}

TEST_F(ModelPanelShown, ArcsAreTheSkipsOfThePrediction) {
  open("resnet18_narrow", {"layer1.0.conv2", "layer1.0.bn2", "layer2"});
  const auto& transfers = document_.prediction()->priced.partition.transfers;
  const auto skips = std::count_if(transfers.begin(), transfers.end(), [](const Transfer& t) { return t.to.value > t.from.value + 1; });
  ASSERT_GT(skips, 0);
  EXPECT_EQ(std::count_if(margin().arcs().begin(), margin().arcs().end(), [](const Arc& a) { return a.kind == ArcKind::Sent; }), skips);
}

TEST_F(ModelPanelShown, TheTooltipOfAHandleNamesWhatCrossesWithShapeTypeAndSize) {
  const QString text = crossingText(document_, 0, "blocks.1");
  for (const char* part : {"blocks.1", "2 × 32 × 64", "float32", "16.0 KiB", "1 value", "rank 0 → rank 1", "gradient back"}) {
    EXPECT_TRUE(text.contains(part)) << part << " is not in " << text.toStdString();
  }
}

TEST_F(ModelPanelShown, WithoutAModelTheStagesAreAList) {
  QTemporaryDir folder;
  QFile file(folder.filePath("rows.csv"));
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write("0F0,0F1,0B0,0B1\n,1F0,1B0,1F1,1B1\n");
  file.close();
  document_.adopt(*loadFiles({file.fileName().toStdString()}, {}));
  predicted();
  EXPECT_TRUE(panel_.findChild<StageList*>()->isVisible());
  EXPECT_EQ(panel_.findChild<StageList*>()->topLevelItemCount(), 2);
  EXPECT_FALSE(margin().isVisible());
  EXPECT_TRUE(panel_.findChild<QLabel*>("nothing")->text().contains("no model"));
}

}  // namespace
}  // namespace pw::gui
