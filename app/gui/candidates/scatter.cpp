#include "app/gui/candidates/scatter.h"

#include <QKeyEvent>
#include <QMouseEvent>
#include <algorithm>
#include <cmath>
#include <utility>

namespace pw::gui {

CandidatesScatter::CandidatesScatter(QWidget* parent) : QWidget(parent), timeTitle_(tr("Time per step")) {
  setAccessibleName(tr("Time and memory of the candidates"));
  setFocusPolicy(Qt::StrongFocus);
  setMouseTracking(true);
  setToolTip({});
}

QSize CandidatesScatter::sizeHint() const { return {fontMetrics().averageCharWidth() * 60, fontMetrics().height() * 16}; }

QSize CandidatesScatter::minimumSizeHint() const { return {fontMetrics().averageCharWidth() * 34, fontMetrics().height() * 5}; }

void CandidatesScatter::setPoints(std::vector<ScatterPoint> points) {
  if (points == points_) return;
  points_ = std::move(points);
  const int count = static_cast<int>(points_.size());
  if (hovered_ >= count) hovered_ = -1;
  if (selected_ >= count) selected_ = -1;
  rescale();
}

void CandidatesScatter::setTimeTitle(const QString& title) {
  timeTitle_ = title;
  update();
}

void CandidatesScatter::setLimit(Bytes limit) {
  limit_ = limit;
  rescale();
}

void CandidatesScatter::setCurrentPlan(const std::optional<TimeAndMemory>& plan) {
  if (current_ == plan) return;
  current_ = plan;
  rescale();
}

void CandidatesScatter::rescale() {
  std::vector<double> times, bytes;
  for (const ScatterPoint& p : points_) {
    times.push_back(static_cast<double>(p.time));
    bytes.push_back(static_cast<double>(p.bytes));
  }
  if (current_ && !points_.empty()) {
    times.push_back(static_cast<double>(current_->time));
    bytes.push_back(static_cast<double>(current_->bytes));
  }
  // The limit is included unless it is so far away that it would squeeze all points together.
  const double most = bytes.empty() ? 0 : *std::ranges::max_element(bytes);
  if (limit_ > 0 && static_cast<double>(limit_) < 1.6 * most) bytes.push_back(static_cast<double>(limit_));
  time_ = ScatterAxis::over(times);
  memory_ = ScatterAxis::over(bytes);
  update();
}

void CandidatesScatter::setHovered(int index) {
  if (hovered_ == index) return;
  hovered_ = index;
  update();
}

void CandidatesScatter::setSelected(int index) {
  if (selected_ == index) return;
  selected_ = index;
  setAccessibleDescription(index < 0 ? QString() : wordsOf(index));
  update();
}

void CandidatesScatter::select(int index) {
  if (index == selected_ || index < 0) return;
  setSelected(index);
  emit pointSelected(index);
}

void CandidatesScatter::hover(int index) {
  if (index == hovered_) return;
  setHovered(index);
  emit pointHovered(index);
}

QPointF CandidatesScatter::positionOf(int index) const {
  const ScatterPoint& p = points_[static_cast<std::size_t>(index)];
  return toPlace({p.time, p.bytes});
}

int CandidatesScatter::pointAt(const QPointF& place) const {
  const double reach = std::max(8.0, fontMetrics().height() * 0.7);
  int best = -1;
  double nearest = reach * reach;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (!points_[i].shown) continue;
    const QPointF way = positionOf(static_cast<int>(i)) - place;
    const double distance = QPointF::dotProduct(way, way) * (points_[i].front ? 0.8 : 1.0);  // of two at one place the one on the front
    if (distance >= nearest) continue;
    nearest = distance;
    best = static_cast<int>(i);
  }
  return best;
}

void CandidatesScatter::mouseMoveEvent(QMouseEvent* event) { hover(pointAt(event->position())); }

void CandidatesScatter::leaveEvent(QEvent*) { hover(-1); }

void CandidatesScatter::mousePressEvent(QMouseEvent* event) {
  if (event->button() == Qt::LeftButton) select(pointAt(event->position()));
}

void CandidatesScatter::mouseDoubleClickEvent(QMouseEvent* event) {
  const int index = pointAt(event->position());
  if (event->button() == Qt::LeftButton && index >= 0) emit pointActivated(index);
}

void CandidatesScatter::keyPressEvent(QKeyEvent* event) {
  const bool byTime =
      event->key() == Qt::Key_Left || event->key() == Qt::Key_Right || event->key() == Qt::Key_Home || event->key() == Qt::Key_End;
  std::vector<int> order;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (points_[i].shown) order.push_back(static_cast<int>(i));
  }
  std::ranges::stable_sort(order, {}, [&](int i) {
    const ScatterPoint& p = points_[static_cast<std::size_t>(i)];
    return byTime ? std::pair(p.time.value, p.bytes.value) : std::pair(p.bytes.value, p.time.value);
  });
  if (order.empty()) return QWidget::keyPressEvent(event);
  const auto found = std::ranges::find(order, selected_);
  const auto at = found == order.end() ? -1 : static_cast<int>(found - order.begin());
  const int last = static_cast<int>(order.size()) - 1;
  const auto go = [&](int to) { select(order[static_cast<std::size_t>(to)]); };
  switch (event->key()) {
    case Qt::Key_Left:
    case Qt::Key_Down: return go(at < 0 ? last : std::max(0, at - 1));
    case Qt::Key_Right:
    case Qt::Key_Up: return go(std::min(last, at + 1));
    case Qt::Key_Home: return go(0);
    case Qt::Key_End: return go(last);
    case Qt::Key_Return:
    case Qt::Key_Enter:
      if (selected_ >= 0) emit pointActivated(selected_);
      return;
    default: return QWidget::keyPressEvent(event);
  }
}

void CandidatesScatter::changeEvent(QEvent* event) {
  if (event->type() == QEvent::PaletteChange || event->type() == QEvent::FontChange) update();
  QWidget::changeEvent(event);
}

}  // namespace pw::gui
