#include "app/gui/model/tree_view.h"
#include "app/gui/model/row_delegate.h"

#include <QApplication>
#include <QClipboard>
#include <QContextMenuEvent>
#include <QHeaderView>
#include <QKeyEvent>
#include <QMenu>
#include <QPainter>
#include <QScrollBar>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

/// Letters that the tree handles itself, so that shortcuts of the window do not take precedence.
bool isOwnKey(const QKeyEvent& key) {
  if (key.matches(QKeySequence::Find)) return true;
  return key.modifiers() == Qt::NoModifier && (key.key() == Qt::Key_S || key.key() == Qt::Key_Slash || key.key() == Qt::Key_Delete);
}

}  // namespace

TreeView::TreeView(TreeModel& model, QWidget* parent) : QTreeView(parent), model_(model), delegate_(new RowDelegate(model, this)) {
  setModel(&model);
  setItemDelegate(delegate_);
  setUniformRowHeights(true);
  setVerticalScrollMode(ScrollPerPixel);
  setHorizontalScrollMode(ScrollPerPixel);
  setAlternatingRowColors(false);
  setAllColumnsShowFocus(true);
  setSelectionBehavior(SelectRows);
  setExpandsOnDoubleClick(true);
  setFrameShape(NoFrame);
  setAccessibleName(tr("Modules of the model"));
  setAccessibleDescription(
      tr("In execution order. S begins a new stage at the current row, Delete removes the split there, / finds a module."));
  setTabKeyNavigation(false);
  header()->setStretchLastSection(false);
  header()->setSectionsMovable(false);
  setIndentation(fontMetrics().height() * 4 / 5);
  connect(this, &QTreeView::expanded, this, &TreeView::rowsMayDiffer);
  connect(this, &QTreeView::collapsed, this, &TreeView::rowsMayDiffer);
  connect(&model, &QAbstractItemModel::modelReset, this, &TreeView::rowsMayDiffer);
}

void TreeView::rowsMayDiffer() {
  isStale_ = true;
  if (std::exchange(willTell_, true)) return;
  QMetaObject::invokeMethod(
      this,
      [this] {
        willTell_ = false;
        emit rowsChanged();
      },
      Qt::QueuedConnection);
}

const VisibleRows& TreeView::visibleRows() const {
  if (!isStale_) return visible_;
  const CallTree& tree = model_.tree();
  std::vector<bool> open(tree.rows.size(), false);
  for (int r = 0; r < tree.size();) {
    const bool isOpen = tree.row(r).end > r + 1 && isExpanded(model_.indexOf(r));
    open[static_cast<std::size_t>(r)] = isOpen;
    r = isOpen ? r + 1 : tree.row(r).end;  // what is inside a closed row is not seen
  }
  visible_ = VisibleRows(tree, open);
  isStale_ = false;
  return visible_;
}

int TreeView::rowHeight() const { return std::max(1, QTreeView::rowHeight(model_.index(0, 0))); }

double TreeView::yOf(NodeId node) const { return visibleRows().boundary(node) * rowHeight() - verticalOffset(); }

double TreeView::rowAt(double y) const { return (y + verticalOffset()) / rowHeight(); }

int TreeView::currentRow() const { return model_.rowOf(currentIndex()); }

void TreeView::openAround(int row) {
  const CallTree& tree = model_.tree();
  if (row < 0 || row >= tree.size()) return;
  for (int around = tree.row(row).parent; around >= 0; around = tree.row(around).parent) {
    if (!isExpanded(model_.indexOf(around))) setExpanded(model_.indexOf(around), true);
  }
}

void TreeView::open(int row) { setExpanded(model_.indexOf(row), true); }

void TreeView::goTo(int row) {
  openAround(row);
  setCurrentIndex(model_.indexOf(row));
  scrollTo(model_.indexOf(row));
}

void TreeView::reveal(NodeId node) {
  const CallTree& tree = model_.tree();
  if (node.index() >= tree.rowOfNode.size()) return;
  int row = tree.rowOfNode[node.index()];
  while (row > 0 && tree.row(tree.row(row).parent).firstNode == node) row = tree.row(row).parent;  // the outermost that begins here
  openAround(row);
  const double y = yOf(node), margin = rowHeight();
  if (y < margin || y > viewport()->height() - margin) scrollTo(model_.indexOf(row), y < margin ? EnsureVisible : PositionAtCenter);
}

void TreeView::fillMenu(QMenu& menu, int row) {
  menu.addAction(tr("Expand all inside"), this, [this, row] { expandRecursively(model_.indexOf(row)); });
  menu.addAction(tr("Collapse to layers"), this, [this] {
    collapseAll();
    for (const int r : openAtFirst(model_.tree())) open(r);
  });
  menu.addAction(tr("Copy name"), this,
                 [this, row] { QApplication::clipboard()->setText(QString::fromStdString(model_.tree().row(row).path)); });
}

SplitSurface TreeView::surface() {
  return {this,
          [this] { return rowHeight(); },
          [this](double y) { return visibleRows().nearest(rowAt(y)); },
          [this](double y) { return visibleRows().closedUnder(rowAt(y)); },
          [this](int row) { open(row); },
          [this](const std::optional<DropMark>& mark) { setDropMark(mark); }};
}

void TreeView::setDropMark(const std::optional<DropMark>& mark) {
  if (mark == mark_) return;
  for (const auto& shown : {mark_, mark}) {
    if (!shown) continue;
    viewport()->update(0, static_cast<int>(yOf(shown->node)) - 3, viewport()->width(), 6);
    if (!shown->refusal.isEmpty()) viewport()->update(sentenceArea(*shown).adjusted(-2, -2, 2, 2));
  }
  mark_ = mark;
}

void TreeView::updateSplits(const std::vector<NodeId>& before, const std::vector<NodeId>& after) {
  if (before.size() != after.size()) {
    viewport()->update();
    return;
  }
  for (std::size_t s = 0; s < before.size(); ++s) {
    if (before[s] == after[s]) continue;
    const auto [top, bottom] = std::minmax({yOf(before[s]), yOf(after[s])});
    viewport()->update(0, static_cast<int>(top) - rowHeight(), viewport()->width(), static_cast<int>(bottom - top) + 2 * rowHeight() + 1);
  }
}

bool TreeView::event(QEvent* event) {
  if (event->type() == QEvent::ShortcutOverride && isOwnKey(static_cast<QKeyEvent&>(*event))) {
    event->accept();
    return true;
  }
  return QTreeView::event(event);
}

void TreeView::keyPressEvent(QKeyEvent* event) {
  if (!isOwnKey(*event)) {
    QTreeView::keyPressEvent(event);
  } else if (event->key() == Qt::Key_S) {
    emit splitRequested(currentRow());
  } else if (event->key() == Qt::Key_Delete) {
    emit removeRequested(currentRow());
  } else {
    emit findRequested();
  }
}

void TreeView::contextMenuEvent(QContextMenuEvent* event) {
  const bool byKey = event->reason() == QContextMenuEvent::Keyboard;
  const QModelIndex index = byKey ? currentIndex() : indexAt(event->pos());
  const QPoint global = byKey ? viewport()->mapToGlobal(visualRect(index).bottomLeft()) : event->globalPos();
  emit menuRequested(model_.rowOf(index), global);
}

void TreeView::scrollContentsBy(int dx, int dy) {
  QTreeView::scrollContentsBy(dx, dy);
  if (dy != 0) emit scrolled();
}

void TreeView::updateGeometries() {
  QTreeView::updateGeometries();
  rowsMayDiffer();  // all were opened or closed at once, which has no signal
}

void TreeView::paintEvent(QPaintEvent* event) {
  QTreeView::paintEvent(event);
  QPainter painter(viewport());
  const Theme& theme = currentTheme();
  const int width = viewport()->width();
  QColor line = theme.text;
  line.setAlpha(150);
  for (const NodeId begin : model_.begins()) {
    const double y = std::round(yOf(begin));
    if (y < -2 || y > viewport()->height() + 2) continue;
    const bool between = visibleRows().isBetweenRows(begin);  // else inside a closed row, whose text is not struck out
    painter.fillRect(QRectF(0, y - 1, between ? width : indentation(), 2), line);
  }
  if (mark_) paintMark(painter);
}

QRect TreeView::sentenceArea(const DropMark& mark) const {
  const int padding = fontMetrics().height() / 3, y = static_cast<int>(yOf(mark.node));
  const QRect most(0, 0, viewport()->width() - 6 * padding, 10000);
  QRect area = fontMetrics().boundingRect(most, Qt::TextWordWrap, mark.refusal).adjusted(-padding, -padding, padding, padding);
  const bool below = y + area.height() + 2 * padding < viewport()->height();
  area.moveTopLeft({padding, below ? y + padding : y - padding - area.height()});
  return area;
}

void TreeView::paintMark(QPainter& painter) const {
  const Theme& theme = currentTheme();
  const double y = std::round(yOf(mark_->node));
  const bool refused = !mark_->refusal.isEmpty();
  painter.setPen(QPen(refused ? theme.error : theme.accent, 3, refused ? Qt::DashLine : Qt::SolidLine));
  painter.drawLine(QPointF(0, y), QPointF(viewport()->width(), y));
  if (!refused) return;
  const int padding = fontMetrics().height() / 3;
  const QRect area = sentenceArea(*mark_);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(QPen(theme.error, 1));
  painter.setBrush(palette().color(QPalette::ToolTipBase));
  painter.drawRoundedRect(QRectF(area).adjusted(0.5, 0.5, -0.5, -0.5), 3, 3);
  painter.drawText(area.adjusted(padding, padding, -padding, -padding), Qt::TextWordWrap, mark_->refusal);
}

}  // namespace pw::gui
