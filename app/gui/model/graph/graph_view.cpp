#include "app/gui/model/graph/graph_view.h"

#include <QAccessible>
#include <QContextMenuEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QPainter>
#include <QScrollBar>
#include <QToolTip>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "app/gui/model/parts/split_handle.h"

namespace pw::gui {
namespace {

constexpr int kNowhere = -3;  // no row, and neither inputs nor outputs
constexpr int kHandleHeight = 11;
constexpr std::size_t kMostInTip = 10;
constexpr double kLeastZoom = 0.4, kMostZoom = 3, kZoomStep = 1.2;  // a notch of the wheel, or a key

/// By how much a key zooms, 0: to what it was at first; nothing: it does not.
std::optional<double> zoomOf(const QKeyEvent& key) {
  if (key.matches(QKeySequence::ZoomIn) || (key.modifiers() == Qt::ControlModifier && key.key() == Qt::Key_Equal)) return kZoomStep;
  if (key.matches(QKeySequence::ZoomOut)) return 1 / kZoomStep;
  if (key.modifiers() == Qt::ControlModifier && key.key() == Qt::Key_0) return 0;
  return std::nullopt;
}

/// Letters that the graph handles itself, so that shortcuts of the window do not take precedence.
bool isOwnKey(const QKeyEvent& key) {
  if (key.matches(QKeySequence::Find) || zoomOf(key)) return true;
  return key.modifiers() == Qt::NoModifier && (key.key() == Qt::Key_S || key.key() == Qt::Key_Slash || key.key() == Qt::Key_Delete ||
                                               key.key() == Qt::Key_Space || key.key() == Qt::Key_Left || key.key() == Qt::Key_Right);
}

}  // namespace

GraphView::GraphView(const CallTree& tree, const RowFindings& findings, QWidget* parent)
    : QAbstractScrollArea(parent), tree_(tree), findings_(findings) {
  setFrameShape(NoFrame);
  setFocusPolicy(Qt::StrongFocus);
  viewport()->setMouseTracking(true);
  setAccessibleName(tr("Graph of the model"));
  setAccessibleDescription(
      tr("Modules in execution order. Up and Down choose, Right unfolds, Left folds, S begins a new stage, Delete "
         "removes the split there, / finds a module, Ctrl+Plus and Ctrl+Minus zoom."));
  measure();
}

void GraphView::measure() {
  const int line = QFontMetrics(drawnFont()).height();
  metrics_.box = 2 * line + 10;
  metrics_.title = line + 6;
  metrics_.gap = 2 * line + 2;
  verticalScrollBar()->setSingleStep(line * 2);
  relayout();
}

QFont GraphView::drawnFont() const {
  QFont zoomed = font();
  zoomed.setPointSizeF(std::max(1.0, zoomed.pointSizeF() * zoom_));
  return zoomed;
}

void GraphView::zoomTo(double factor, double y) {
  factor = std::clamp(factor, kLeastZoom, kMostZoom);
  if (factor == zoom_) return;
  const double at = (y + verticalScrollBar()->value()) / std::max(1.0, drawn().height);
  zoom_ = factor;
  measure();
  verticalScrollBar()->setValue(static_cast<int>(std::round(at * drawn().height - y)));
  if (isVisible()) place();
}

const GraphLayout& GraphView::drawn() const {
  if (!isStale_) return layout_;
  std::vector<bool> open(tree_.rows.size(), false);
  for (int r = 0; r < tree_.size(); ++r) open[static_cast<std::size_t>(r)] = tree_.row(r).isModule && open_.contains(keyOf(tree_.row(r)));
  layout_ = layOut(tree_, flow_, open, metrics_);
  isStale_ = false;
  return layout_;
}

void GraphView::relayout() {
  isStale_ = true;
  hovered_ = -1;
  if (isVisible()) place();
}

void GraphView::treeChanged(bool sameModel) {
  if (!sameModel) {
    open_.clear();
    for (const int r : openAtFirst(tree_)) open_.insert(keyOf(tree_.row(r)));
    current_ = 0;
    verticalScrollBar()->setValue(0);
  }
  if (current_ >= tree_.size()) current_ = 0;
  relayout();
}

void GraphView::setFlow(ModelFlow flow) {
  flow_ = std::move(flow);
  relayout();
}

void GraphView::place() {
  const GraphLayout& shown = drawn();
  columns_ = columnsFor(viewport()->width(), shown.lanes, QFontMetrics(drawnFont()).horizontalAdvance(QStringLiteral("000.0 MiB")) + 8);
  verticalScrollBar()->setPageStep(viewport()->height());
  verticalScrollBar()->setRange(0, std::max(0, static_cast<int>(std::ceil(shown.height)) - viewport()->height()));
  horizontalScrollBar()->setPageStep(viewport()->width());
  horizontalScrollBar()->setRange(0, std::max(0, static_cast<int>(columns_.width) - viewport()->width()));
  const GraphScene painted = scene();
  for (std::size_t s = 0; s < handles_.size(); ++s) {
    const QRectF label = cutLabel(painted, s + 1);  // beside it, across all the rest
    const bool atRight = label.left() > columns_.left;
    const int x = atRight ? 4 : static_cast<int>(label.right()) + 2;
    const int end = atRight ? static_cast<int>(label.left()) - horizontalScrollBar()->value() - 2 : viewport()->width() - 2;
    handles_[s]->setGeometry(x, static_cast<int>(std::round(yOf(begins_[s]))) - kHandleHeight / 2 - 1, std::max(40, end - x),
                             kHandleHeight);
  }
  viewport()->update();
}

void GraphView::setSplits(const std::vector<NodeId>& begins, const std::vector<QString>& names) {
  const std::vector<NodeId> before = std::exchange(begins_, begins);
  // A cut that comes into a folded box unfolds it, but not under a drag; what is folded by hand afterwards stays so.
  for (const NodeId node : begins) {
    if (!mark_ && !std::binary_search(before.begin(), before.end(), node)) openAround(node);
  }
  while (handles_.size() > begins.size()) {
    delete handles_.back();
    handles_.pop_back();
  }
  while (handles_.size() < begins.size()) {
    auto* handle = new SplitHandle(static_cast<int>(handles_.size()), viewport());
    handle->setTip(tip_);
    handles_.push_back(handle);
    handle->show();
    emit handleAdded(handle);
  }
  for (std::size_t s = 0; s < handles_.size(); ++s)
    handles_[s]->setAccessibleName(tr("Cut at %1, between stage %2 and stage %3").arg(names[s]).arg(s).arg(s + 1));
  if (isVisible()) place();
}

void GraphView::dropHandles() {
  for (SplitHandle* handle : handles_) delete handle;
  handles_.clear();
}

void GraphView::setCutLabels(std::vector<QString> labels) {
  if (labels == cuts_) return;
  cuts_ = std::move(labels);
  if (isVisible()) place();
}

void GraphView::setHandleTip(std::function<QString(int)> tip) {
  tip_ = std::move(tip);
  for (SplitHandle* handle : handles_) handle->setTip(tip_);
}

void GraphView::openAround(NodeId node) {
  if (node.index() >= tree_.rowOfNode.size()) return;
  bool isNew = false;
  for (int row = tree_.rowOfNode[node.index()]; row > 0; row = tree_.row(row).parent) {
    if (tree_.row(row).firstNode != node) isNew = open_.insert(keyOf(tree_.row(row))).second || isNew;
  }
  if (isNew) relayout();
}

double GraphView::yOf(NodeId node) const { return drawn().yOf(node) - verticalScrollBar()->value(); }

SplitSurface GraphView::surface() {
  return {this,
          [this] { return static_cast<int>(metrics_.gap); },
          [this](double y) { return drawn().nearest(y + verticalScrollBar()->value()); },
          [this](double y) {
            const double at = y + verticalScrollBar()->value();
            const int index = drawn().boxAt(at);
            if (index < 0 || !drawn().box(index).canOpen) return -1;
            return std::abs(at - drawn().box(index).middle()) < metrics_.box / 4 ? drawn().box(index).row : -1;
          },
          [this](int row) { setOpen(row, true); },
          [this](const std::optional<DropMark>& mark) {
            if (mark == mark_) return;
            mark_ = mark;
            viewport()->update();
          }};
}

int GraphView::currentBox() const {
  if (current_ == GraphBox::kInputs) return 0;
  if (current_ == GraphBox::kOutputs) return static_cast<int>(drawn().boxes.size()) - 1;
  return drawn().showing(tree_, current_);
}

void GraphView::makeCurrent(int row) {
  if (row == current_) return;
  current_ = row;
  if (row >= 0) currentKey_ = keyOf(tree_.row(row));
  viewport()->update();
  QAccessibleEvent told(this, QAccessible::DescriptionChanged);
  setAccessibleDescription(boxName(row));
  QAccessible::updateAccessibility(&told);
  emit currentChanged(row);
}

QString GraphView::boxName(int row) const {
  if (row == GraphBox::kInputs) return tr("Inputs of the model");
  if (row == GraphBox::kOutputs) return tr("Outputs of the model");
  if (row < 0 || row >= tree_.size()) return {};
  const CallRow& r = tree_.row(row);
  return QString::fromStdString(r.isModule && !r.path.empty() ? r.path : r.label);
}

void GraphView::choose(int row) {
  if (row >= tree_.size() || row == kNowhere) return;
  for (int around = row > 0 ? tree_.row(row).parent : -1; around > 0; around = tree_.row(around).parent)
    open_.insert(keyOf(tree_.row(around)));
  relayout();
  makeCurrent(row);
  const auto [top, bottom] = extentOf(row);
  scrollTo(top, bottom);
}

void GraphView::setOpen(int row, bool open) {
  if (row <= 0 || row >= tree_.size() || tree_.row(row).end == row + 1) return;
  const double before = extentOf(row).first - verticalScrollBar()->value();
  if (open ? !open_.insert(keyOf(tree_.row(row))).second : open_.erase(keyOf(tree_.row(row))) == 0) return;
  if (!open && current_ > row && current_ < tree_.row(row).end) makeCurrent(row);  // what was chosen is folded away
  relayout();
  verticalScrollBar()->setValue(static_cast<int>(extentOf(row).first - before));  // the row stays where it is
  if (isVisible()) place();
}

std::pair<double, double> GraphView::extentOf(int row) const {
  const GraphLayout& shown = drawn();
  for (const GraphFrame& frame : shown.frames) {
    if (frame.row == row) return {frame.top, frame.top + metrics_.title};
  }
  const int index = row == current_ ? currentBox() : shown.showing(tree_, row);
  return index < 0 ? std::pair(0.0, 0.0) : std::pair(shown.box(index).top, shown.box(index).bottom());
}

void GraphView::scrollTo(double top, double bottom) {
  const int from = verticalScrollBar()->value(), margin = static_cast<int>(metrics_.gap);
  if (top - margin < from) {
    verticalScrollBar()->setValue(static_cast<int>(top) - margin);
  } else if (bottom + margin > from + viewport()->height()) {
    verticalScrollBar()->setValue(static_cast<int>(bottom) + margin - viewport()->height());
  }
}

void GraphView::reveal(NodeId node) {
  const double y = drawn().yOf(node);
  scrollTo(y, y);
}

void GraphView::step(int boxes) {
  const GraphLayout& shown = drawn();
  if (shown.boxes.empty()) return;
  const bool onFrame =
      current_ == 0 || std::any_of(shown.frames.begin(), shown.frames.end(), [&](const GraphFrame& f) { return f.row == current_; });
  const int last = static_cast<int>(shown.boxes.size()) - 1;
  const int to = std::clamp(currentBox() + (onFrame && boxes == 1 ? 0 : boxes), 0, last);
  makeCurrent(shown.box(to).row);
  scrollTo(shown.box(to).top, shown.box(to).bottom());
}

int GraphView::rowAt(const QPointF& point) const {
  const QPointF at = point + QPointF(horizontalScrollBar()->value(), verticalScrollBar()->value());
  const GraphLayout& shown = drawn();
  if (const int index = shown.boxAt(at.y()); index >= 0 && columns_.around(shown.box(index)).contains(at)) return shown.box(index).row;
  const int frame = shown.titleAt(at.y(), metrics_);
  if (frame >= 0 && columns_.around(shown.frames[static_cast<std::size_t>(frame)]).contains(at))
    return shown.frames[static_cast<std::size_t>(frame)].row;
  return kNowhere;
}

GraphScene GraphView::scene() const {
  return {tree_, findings_, drawn(), metrics_, columns_, begins_, cuts_, legal_, mark_, current_, hovered_, hasFocus(), drawnFont()};
}

// ---- Events ----

bool GraphView::event(QEvent* event) {
  if (event->type() == QEvent::ShortcutOverride && isOwnKey(static_cast<QKeyEvent&>(*event))) {
    event->accept();
    return true;
  }
  if (event->type() == QEvent::Show) place();
  return QAbstractScrollArea::event(event);
}

QString GraphView::branchText(const GraphBranch& branch) const {
  QString text = QStringLiteral("<table cellspacing='0' cellpadding='2'>");
  for (std::size_t e = 0; e < branch.edges.size() && e < kMostInTip; ++e) {
    const FlowEdge& edge = drawn().edges[branch.edges[e]];
    text += QStringLiteral("<tr><td>%1 → %2</td><td align='right'>%3</td></tr>")
                .arg(boxName(drawn().box(edge.from).row).toHtmlEscaped(), boxName(drawn().box(edge.to).row).toHtmlEscaped(),
                     edge.bytes > 0 ? sizeText(edge.bytes) : QString());
  }
  text += QStringLiteral("</table>");
  if (branch.edges.size() > kMostInTip) text += tr("… and %1 more").arg(branch.edges.size() - kMostInTip) + QStringLiteral("<br>");
  return text + (drawn().edges[branch.edges.front()].sent ? tr("per microbatch")
                                                          : tr("per microbatch; given or computed again in each stage, not sent"));
}

bool GraphView::viewportEvent(QEvent* event) {
  if (event->type() == QEvent::ToolTip && hovered_ >= 0 && !mark_) {
    QToolTip::showText(static_cast<QHelpEvent*>(event)->globalPos(), branchText(drawn().branches[static_cast<std::size_t>(hovered_)]),
                       this);
    return true;
  }
  return QAbstractScrollArea::viewportEvent(event);
}

void GraphView::paintEvent(QPaintEvent* event) {
  QPainter painter(viewport());
  painter.fillRect(event->rect(), currentTheme().background);
  const double x = horizontalScrollBar()->value(), y = verticalScrollBar()->value();
  painter.translate(-x, -y);
  paintGraph(painter, scene(), y + event->rect().top(), y + event->rect().bottom() + 1);
}

void GraphView::resizeEvent(QResizeEvent*) { place(); }

void GraphView::scrollContentsBy(int, int) { place(); }

void GraphView::keyPressEvent(QKeyEvent* event) {
  const int page = std::max(1, static_cast<int>(viewport()->height() / (metrics_.box + metrics_.gap)) - 1);
  const int all = static_cast<int>(drawn().boxes.size());
  if (event->matches(QKeySequence::Find)) return emit findRequested();
  if (const std::optional<double> by = zoomOf(*event)) return zoomTo(*by > 0 ? zoom_ * *by : 1, viewport()->height() / 2.0);
  switch (event->key()) {
    case Qt::Key_Up: return step(-1);
    case Qt::Key_Down: return step(1);
    case Qt::Key_PageUp: return step(-page);
    case Qt::Key_PageDown: return step(page);
    case Qt::Key_Home: return step(-all);
    case Qt::Key_End: return step(all);
    case Qt::Key_Right: return setOpen(current_, true);
    case Qt::Key_Left: {
      if (current_ <= 0) return;
      const int row =
          open_.contains(keyOf(tree_.row(current_))) && tree_.row(current_).end > current_ + 1 ? current_ : tree_.row(current_).parent;
      if (row > 0) setOpen(row, false);
      return;
    }
    case Qt::Key_Space:
    case Qt::Key_Return:
    case Qt::Key_Enter: return current_ > 0 ? setOpen(current_, !open_.contains(keyOf(tree_.row(current_)))) : void();
    case Qt::Key_Slash: return emit findRequested();
    case Qt::Key_S: return emit splitRequested(std::max(current_, -1));
    case Qt::Key_Delete: return emit removeRequested(std::max(current_, -1));
    default: QAbstractScrollArea::keyPressEvent(event);
  }
}

void GraphView::wheelEvent(QWheelEvent* event) {
  if (!event->modifiers().testFlag(Qt::ControlModifier)) return QAbstractScrollArea::wheelEvent(event);
  const double notches = event->angleDelta().y() / 120.0;
  zoomTo(zoom_ * std::pow(kZoomStep, notches), event->position().y());
  event->accept();
}

void GraphView::mousePressEvent(QMouseEvent* event) {
  const int row = rowAt(event->position());
  if (row == kNowhere) return;
  makeCurrent(row);
  const double x = event->position().x() + horizontalScrollBar()->value() - columns_.left;  // the triangle is at the left end
  const double inset = row > 0 ? 8.0 * std::min(tree_.row(row).depth - 1, 8) : 0;
  if (event->button() == Qt::LeftButton && row > 0 && x - inset < QFontMetrics(drawnFont()).height() * 1.4)
    setOpen(row, !open_.contains(keyOf(tree_.row(row))));
}

void GraphView::mouseDoubleClickEvent(QMouseEvent* event) {
  const int row = rowAt(event->position());
  if (row > 0) setOpen(row, !open_.contains(keyOf(tree_.row(row))));
}

void GraphView::mouseMoveEvent(QMouseEvent* event) {
  const QPointF at = event->position() + QPointF(horizontalScrollBar()->value(), verticalScrollBar()->value());
  const int hovered = branchAt(drawn(), columns_, at);
  if (hovered == hovered_) return;
  hovered_ = hovered;
  viewport()->update();
}

void GraphView::contextMenuEvent(QContextMenuEvent* event) {
  const bool byKey = event->reason() == QContextMenuEvent::Keyboard;
  const int row = byKey ? current_ : rowAt(viewport()->mapFromGlobal(event->globalPos()));
  if (row < 0) return;
  makeCurrent(row);
  const double y = extentOf(row).second - verticalScrollBar()->value();
  emit menuRequested(row, byKey ? viewport()->mapToGlobal(QPoint(20, static_cast<int>(y))) : event->globalPos());
}

void GraphView::focusInEvent(QFocusEvent* event) {
  QAbstractScrollArea::focusInEvent(event);
  viewport()->update();
}

void GraphView::focusOutEvent(QFocusEvent* event) {
  QAbstractScrollArea::focusOutEvent(event);
  viewport()->update();
}

void GraphView::changeEvent(QEvent* event) {
  QAbstractScrollArea::changeEvent(event);
  if (event->type() == QEvent::FontChange || event->type() == QEvent::StyleChange) measure();
}

}  // namespace pw::gui
