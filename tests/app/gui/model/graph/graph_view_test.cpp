// The graph of the Model panel with keys and mouse.
#include "app/gui/model/graph/graph_view.h"

#include <QApplication>
#include <QLabel>
#include <QScrollBar>
#include <QTest>
#include <QTextBrowser>
#include <QToolButton>

#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/model/panel.h"
#include "app/gui/model/parts/split_handle.h"
#include "app/gui/model/tree_view.h"
#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

class GraphShown : public testing::Test {
 protected:
  void SetUp() override {
    qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
    panel_.resize(480, 1000);
    panel_.show();
    document_.adopt(*loadFiles({samplePath("gpt_small")}, {}));
    predicted();
    document_.edit("place", [&](Design& d) {
      d.request.begins = places({"blocks.1", "blocks.2", "blocks.3"});
      d.request.ranks = 4;
    });
    predicted();
    QTest::mouseClick(panel_.findChild<QToolButton*>("graph"), Qt::LeftButton);
    QApplication::processEvents();
    ASSERT_TRUE(graph().isVisible());
  }
  void predicted() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document_.isPredicting(); }, 20'000));
  }
  [[nodiscard]] NodeId at(const std::string& name) const { return findSplit(*document_.graph(), name); }
  [[nodiscard]] std::vector<NodeId> places(const std::vector<std::string>& names) const {
    std::vector<NodeId> list;
    for (const std::string& name : names) list.push_back(at(name));
    return list;
  }
  [[nodiscard]] const std::vector<NodeId>& begins() const { return document_.design().request.begins; }
  [[nodiscard]] GraphView& graph() { return *panel_.findChild<GraphView*>(); }
  [[nodiscard]] SplitHandle& handle(std::size_t split) { return *graph().handles().at(split); }
  [[nodiscard]] const CallTree& tree() { return static_cast<TreeModel*>(panel_.findChild<TreeView*>()->model())->tree(); }
  [[nodiscard]] int row(const std::string& path) {
    for (int r = 0; r < tree().size(); ++r) {
      if (tree().row(r).isModule && tree().row(r).path == path) return r;
    }
    return -1;
  }
  [[nodiscard]] bool isFrame(int row) {
    const auto& frames = graph().drawn().frames;
    return std::any_of(frames.begin(), frames.end(), [&](const GraphFrame& f) { return f.row == row; });
  }
  void moveTo(std::size_t split, double y) {  // of the viewport
    const QPoint global = graph().viewport()->mapToGlobal(QPoint(200, static_cast<int>(y)));
    QMouseEvent move(QEvent::MouseMove, handle(split).mapFromGlobal(global), global, Qt::NoButton, Qt::LeftButton, {});
    QApplication::sendEvent(&handle(split), &move);
  }

  Document document_;
  ModelPanel panel_{document_};
};

TEST_F(GraphShown, CutsStandWhereStagesBeginAndSayWhatCrosses) {
  ASSERT_EQ(graph().handles().size(), 3U);
  for (std::size_t s = 0; s < 3; ++s) {
    graph().reveal(begins()[s]);
    EXPECT_NEAR(handle(s).geometry().center().y(), graph().yOf(begins()[s]), 1.5);
    EXPECT_TRUE(handle(s).accessibleName().contains(QString("blocks.%1").arg(s + 1)));
    // The hidden state of the microbatch.
    EXPECT_EQ(bytesAcross(graph().flow(), begins(), s), document_.design().request.microbatch * 32 * 64 * 4);
  }
}

TEST_F(GraphShown, ADragGoesFromPlaceToPlaceAndIsOneStepOfUndo) {
  graph().reveal(at("blocks.3"));
  QTest::mousePress(&handle(1), Qt::LeftButton, {}, handle(1).rect().center());
  graph().setOpen(row("blocks.2"), true);
  moveTo(1, graph().yOf(at("blocks.2.mlp_norm")) + 2);
  EXPECT_TRUE(document_.isDragging());
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2.mlp_norm", "blocks.3"}));
  EXPECT_NEAR(handle(1).geometry().center().y(), graph().yOf(at("blocks.2.mlp_norm")), 1.5);
  moveTo(1, graph().yOf(at("blocks.2.mlp")) - 2);
  QTest::mouseRelease(&handle(1), Qt::LeftButton);
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2.mlp", "blocks.3"}));
  EXPECT_EQ(document_.undoText(), "Move split");
  document_.undo();
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
}

TEST_F(GraphShown, ADragOntoAnotherCutIsRefusedAndChangesNothing) {
  graph().reveal(at("blocks.3"));
  QTest::mousePress(&handle(1), Qt::LeftButton, {}, handle(1).rect().center());
  moveTo(1, graph().yOf(at("blocks.3")) + 1);
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
  EXPECT_EQ(handle(1).cursor().shape(), Qt::ForbiddenCursor);
  QTest::keyClick(&handle(1), Qt::Key_Escape);
  EXPECT_FALSE(document_.isDragging());
}

TEST_F(GraphShown, ControlAndWheelOrKeysZoom) {
  const auto wheel = [this](double y, int delta, Qt::KeyboardModifiers keys) {
    const QPointF at(200, y);
    QWheelEvent event(at, graph().viewport()->mapToGlobal(at), {}, QPoint(0, delta), Qt::NoButton, keys, Qt::NoScrollPhase, false);
    QApplication::sendEvent(graph().viewport(), &event);
  };
  graph().reveal(begins()[1]);
  const double box = graph().metrics().box, y = graph().yOf(begins()[1]);
  const int scrolled = graph().verticalScrollBar()->value();
  wheel(y, 240, Qt::ControlModifier);
  EXPECT_GT(graph().metrics().box, 1.2 * box) << "two notches are 1.44 times as large, and lines are whole pixels";
  EXPECT_NEAR(graph().yOf(begins()[1]), y, graph().metrics().gap) << "what is at the pointer stays there";
  EXPECT_NEAR(handle(1).geometry().center().y(), graph().yOf(begins()[1]), 1.5);
  QTest::keyClick(&graph(), Qt::Key_0, Qt::ControlModifier);
  EXPECT_EQ(graph().metrics().box, box);
  EXPECT_NEAR(graph().verticalScrollBar()->value(), scrolled, 2 * graph().metrics().gap);
  QTest::keyClick(&graph(), Qt::Key_Minus, Qt::ControlModifier);
  EXPECT_LT(graph().metrics().box, box);
  for (int i = 0; i < 40; ++i) wheel(y, -120, Qt::ControlModifier);
  EXPECT_EQ(graph().zoom(), 0.4) << "no smaller";
  const QFont font = QApplication::font();
  QFont larger = font;
  larger.setPointSizeF(2 * font.pointSizeF());
  const double small = graph().metrics().box;
  QApplication::setFont(larger);
  QApplication::processEvents();
  EXPECT_GT(graph().metrics().box, 1.2 * small) << "as the window's text does";
  QApplication::setFont(font);
  QApplication::processEvents();
  EXPECT_EQ(graph().metrics().box, small);
  const int before = graph().verticalScrollBar()->value();
  wheel(y, 120, {});
  EXPECT_LE(graph().verticalScrollBar()->value(), before) << "scrolls";
  EXPECT_EQ(graph().zoom(), 0.4);
}

TEST_F(GraphShown, ArrowKeysMoveACut) {
  handle(1).setFocus();
  QTest::keyClick(&handle(1), Qt::Key_Down);
  EXPECT_GT(begins()[1], at("blocks.2"));
  EXPECT_LT(begins()[1], at("blocks.3"));
  EXPECT_EQ(document_.undoText(), "Move split");
  QTest::keyClick(&handle(1), Qt::Key_Up);
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
}

TEST_F(GraphShown, ACutThatComesIntoAFoldedBlockUnfoldsItAndOneFoldedByHandStaysSo) {
  const int block = row("blocks.2");
  EXPECT_FALSE(isFrame(block));
  document_.edit("move", [&](Design& d) { d.request.begins = places({"blocks.1", "blocks.2.mlp", "blocks.3"}); });
  EXPECT_TRUE(isFrame(block));
  graph().setOpen(block, false);
  EXPECT_FALSE(isFrame(block));
  auto* button = panel_.findChild<QToolButton*>("graph");
  QTest::mouseClick(button, Qt::LeftButton);
  QTest::mouseClick(button, Qt::LeftButton);
  EXPECT_FALSE(isFrame(block));
  const GraphBox& box = graph().drawn().box(graph().drawn().showing(tree(), block));
  const double y = graph().drawn().yOf(at("blocks.2.mlp"));
  EXPECT_TRUE(y > box.top && y < box.bottom()) << "through the folded box";
}

TEST_F(GraphShown, KeysChooseFoldAndSplit) {
  graph().setFocus();
  QTest::keyClick(&graph(), Qt::Key_Down);
  EXPECT_EQ(graph().current(), 1) << "the first inside the model";
  graph().choose(row("blocks.0"));
  EXPECT_FALSE(isFrame(row("blocks.0")));
  QTest::keyClick(&graph(), Qt::Key_Right);
  EXPECT_TRUE(isFrame(row("blocks.0")));
  QTest::keyClick(&graph(), Qt::Key_Down);
  EXPECT_EQ(tree().row(graph().current()).path, "blocks.0.attention_norm");
  QTest::keyClick(&graph(), Qt::Key_Left);
  EXPECT_FALSE(isFrame(row("blocks.0")));
  EXPECT_EQ(graph().current(), row("blocks.0"));
  QTest::keyClick(&graph(), Qt::Key_Down);
  EXPECT_EQ(graph().current(), row("blocks.1"));
  QTest::keyClick(&graph(), Qt::Key_Delete);
  EXPECT_EQ(begins(), places({"blocks.2", "blocks.3"}));
  QTest::keyClick(&graph(), Qt::Key_S);
  EXPECT_EQ(begins(), places({"blocks.1", "blocks.2", "blocks.3"}));
  QTest::keyClick(&graph(), Qt::Key_End);
  EXPECT_EQ(graph().current(), GraphBox::kOutputs);
  QTest::keyClick(&graph(), Qt::Key_Home);
  EXPECT_EQ(graph().current(), GraphBox::kInputs);
  QTest::keyClick(&graph(), Qt::Key_Right);  // nothing is inside
  QTest::keyClick(&graph(), Qt::Key_Left);
}

TEST_F(GraphShown, WhatIsChosenIsDescribedAndTheTreeGoesThereToo) {
  graph().choose(row("blocks.1"));
  const QString text = panel_.findChild<QTextBrowser*>()->toPlainText().replace(QChar::Nbsp, ' ');
  EXPECT_TRUE(text.contains("blocks.1")) << text.toStdString();
  EXPECT_TRUE(text.contains("× 32 × 64")) << text.toStdString();
  QTest::mouseClick(panel_.findChild<QToolButton*>("graph"), Qt::LeftButton);
  EXPECT_TRUE(panel_.findChild<TreeView*>()->isVisible());
  EXPECT_EQ(panel_.findChild<TreeView*>()->currentRow(), row("blocks.1"));
  EXPECT_TRUE(graph().handles().empty());
}

TEST_F(GraphShown, AnotherModelIsShownFromItsStart) {
  graph().choose(row("blocks.3"));
  document_.adopt(*loadFiles({samplePath("resnet18_narrow")}, {}));
  predicted();
  EXPECT_EQ(graph().verticalScrollBar()->value(), 0);
  EXPECT_EQ(graph().handles().size(), begins().size());
  EXPECT_EQ(graph().drawn().boxOfNode.size(), document_.graph()->nodes.size());
}

/// 10,000 nodes in 2,500 blocks of 4, each with a skip: folded, scrolled and unfolded.
TEST(GraphScale, TenThousandNodesAreLaidOutAndPaintedFluently) {
  constexpr int kBlocks = 2500, kPerBlock = 4;
  CallTree tree;
  const auto add = [&](const std::string& path, int parent, int first, int end) {
    CallRow row;
    row.path = row.label = path;
    row.parent = parent;
    row.depth = parent < 0 ? 0 : tree.row(parent).depth + 1;
    row.firstNode = NodeId(first);
    row.endNode = NodeId(end);
    row.end = tree.size() + 1;
    tree.rows.push_back(row);
    tree.children.emplace_back();
    return tree.size() - 1;
  };
  add("", -1, 0, kBlocks * kPerBlock);
  ModelFlow flow;
  flow.nodes = kBlocks * kPerBlock;
  flow.bytes.assign(static_cast<std::size_t>(flow.nodes), 1024);
  for (int b = 0; b < kBlocks; ++b) {
    const int block = add("blocks." + std::to_string(b), 0, b * kPerBlock, (b + 1) * kPerBlock);
    for (int n = b * kPerBlock; n < (b + 1) * kPerBlock; ++n) {
      tree.rowOfNode.push_back(add("blocks." + std::to_string(b) + ".op" + std::to_string(n % kPerBlock), block, n, n + 1));
      flow.uses.push_back({ValueId(n), n, n + 1, true});
      if (n % kPerBlock == 0) flow.uses.push_back({ValueId(n), n, std::min(n + 10, flow.nodes), true});
    }
    tree.rows[static_cast<std::size_t>(block)].end = tree.size();
  }
  tree.rows[0].end = tree.size();
  const RowFindings findings;
  GraphView view(tree, findings);
  view.resize(400, 700);
  view.treeChanged(false);
  view.setFlow(flow);
  view.show();
  EXPECT_EQ(view.drawn().boxes.size(), kBlocks + 2U);
  for (int r = 1; r < tree.size(); r = tree.row(r).end) view.setOpen(r, true);
  EXPECT_EQ(view.drawn().boxes.size(), kBlocks * kPerBlock + 2U);
  view.verticalScrollBar()->setValue(view.verticalScrollBar()->maximum());
  EXPECT_FALSE(view.grab().isNull());
}

}  // namespace
}  // namespace pw::gui
