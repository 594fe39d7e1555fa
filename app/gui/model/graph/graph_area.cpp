#include "app/gui/model/graph/graph_area.h"

#include <QApplication>
#include <QClipboard>
#include <QMenu>
#include <QSplitter>
#include <QVBoxLayout>
#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/model/graph/node_facts.h"
#include "app/gui/model/parts/links.h"
#include "schedules/error.h"

namespace pw::gui {

GraphArea::GraphArea(Document& document, const CallTree& tree, const RowFindings& findings, QWidget* parent)
    : QWidget(parent),
      document_(document),
      tree_(tree),
      findings_(findings),
      view_(new GraphView(tree, findings)),
      details_(new QTextBrowser) {
  details_->setAccessibleName(tr("What the chosen module is"));
  details_->setFrameShape(QFrame::NoFrame);
  details_->setTabChangesFocus(true);
  auto* parts = new QSplitter(Qt::Vertical);
  parts->setChildrenCollapsible(false);
  parts->addWidget(view_);
  parts->addWidget(details_);
  parts->setStretchFactor(0, 3);
  parts->setStretchFactor(1, 1);
  const int line = fontMetrics().height();
  view_->setMinimumHeight(6 * line);
  details_->setMinimumHeight(4 * line);
  parts->setSizes({24 * line, 9 * line});
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(parts);
  connect(view_, &GraphView::currentChanged, this, [this] { describe(); });
}

void GraphArea::treeChanged(bool sameModel) {
  view_->treeChanged(sameModel);
  if (isVisible()) refresh();
}

void GraphArea::setSplits(const std::vector<NodeId>& begins, const std::vector<QString>& names, const std::vector<SplitPoint>& points) {
  begins_ = begins;
  names_ = names;
  std::vector<NodeId> legal;
  for (const SplitPoint& point : points) legal.push_back(point.begin);
  view_->setLegal(std::move(legal));
  if (isVisible()) refresh();
}

/// Everything that was not worked out while the graph was hidden.
void GraphArea::refresh() {
  const auto graph = document_.graph();
  const std::int64_t microbatch = document_.design().request.microbatch;
  if (graph != graph_ || microbatch != microbatch_) {
    graph_ = graph;
    microbatch_ = microbatch;
    bindings_.clear();
    try {
      if (graph) bindings_ = bindBatch(*graph, microbatch);
    } catch (const Error&) {  // a batch that the model does not take, which the plan says; sizes stay unknown
    }
    view_->setFlow(graph ? flowOf(*graph, bindings_) : ModelFlow());
    describe();
  }
  view_->setSplits(begins_, names_);
  follow();
}

void GraphArea::follow() {
  if (!isVisible() || !graph_) return;
  const auto prediction = document_.prediction();
  const bool isKnown = prediction && isOf(prediction->priced.partition, begins_);
  const Wiring wiring = wiringOf(document_);
  std::vector<QString> labels;
  for (std::size_t stage = 0; stage <= begins_.size(); ++stage) {
    QString label = tr("stage %1 · rank %2").arg(stage).arg(wiring.rank(Stage(stage)).value);
    if (stage > 0) {
      Bytes bytes = 0;
      if (isKnown) {
        for (const Crossing& value : crossing(prediction->priced.partition, stage - 1, wiring)) bytes += value.bytes;
      } else {
        bytes = bytesAcross(view_->flow(), begins_, stage - 1);
      }
      if (bytes > 0) label = tr("%1 ↓ %2").arg(sizeText(bytes), label);
    }
    labels.push_back(std::move(label));
  }
  view_->setCutLabels(std::move(labels));
}

void GraphArea::fillMenu(QMenu& menu, int row) {
  const auto& frames = view_->drawn().frames;
  const bool isOpen = std::any_of(frames.begin(), frames.end(), [&](const GraphFrame& frame) { return frame.row == row; });
  QAction* fold = menu.addAction(isOpen ? tr("Fold") : tr("Unfold"), this, [this, row, isOpen] { view_->setOpen(row, !isOpen); });
  fold->setEnabled(row > 0 && tree_.row(row).end > row + 1);
  menu.addAction(tr("Copy name"), this, [this, row] { QApplication::clipboard()->setText(QString::fromStdString(tree_.row(row).path)); });
}

void GraphArea::factsChanged() {
  if (!isVisible()) return;
  view_->viewport()->update();
  describe();
}

void GraphArea::describe() {
  if (!graph_ || !isVisible()) return;
  const int row = view_->current();
  if (row >= 0 && row < tree_.size()) {
    const CallRow& r = tree_.row(row);
    if (r.endNode.index() > graph_->nodes.size()) return;  // of another model, whose flow comes next
    details_->setHtml(nodeText(r, factsOf(*graph_, view_->flow(), bindings_, r.firstNode, r.endNode), findings_.inside(tree_, row)));
  } else if (row == GraphBox::kInputs) {
    details_->setHtml(tensorsText(tr("Inputs of the model"), tensorsOf(*graph_, view_->flow(), bindings_, graph_->inputs)));
  } else {
    details_->setHtml(tensorsText(tr("Outputs of the model"), tensorsOf(*graph_, view_->flow(), bindings_, graph_->outputs)));
  }
}

void GraphArea::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  refresh();
  describe();
}

void GraphArea::hideEvent(QHideEvent* event) {
  QWidget::hideEvent(event);
  view_->dropHandles();  // handles that nobody sees would follow every drag in the tree
}

}  // namespace pw::gui
