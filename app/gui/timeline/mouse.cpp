#include "app/gui/timeline/mouse.h"

#include <QApplication>
#include <QHelpEvent>
#include <QMouseEvent>
#include <QNativeGestureEvent>
#include <QToolTip>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <utility>

namespace pw::gui {
namespace {

constexpr double kTickZoom = 0.8;  ///< of a wheel's tick
constexpr double kTick = 120;      ///< Qt: an eighth of a degree times 15 degrees

using Move = Place::Move;

}  // namespace

Mouse::Mouse(TimelineCanvas& canvas, const Scene& scene, Knowledge& knowledge, Place& place, Selection& selection, Editing& editing)
    : canvas_(canvas), scene_(scene), knowledge_(knowledge), place_(place), selection_(selection), editing_(editing) {}

bool Mouse::handle(QEvent* event) {
  switch (static_cast<int>(event->type())) {
    case QEvent::MouseButtonPress: pressed(*static_cast<QMouseEvent*>(event)); return true;
    case QEvent::MouseButtonRelease: released(*static_cast<QMouseEvent*>(event)); return true;
    case QEvent::MouseButtonDblClick: doubleClicked(*static_cast<QMouseEvent*>(event)); return true;
    case QEvent::MouseMove: moved(*static_cast<QMouseEvent*>(event)); return true;
    case QEvent::Wheel:
      turned(*static_cast<QWheelEvent*>(event));
      event->accept();
      return true;
    case QEvent::Leave: left(); return false;
    case QEvent::ToolTip: showTooltip(*static_cast<QHelpEvent*>(event)); return true;
    case QEvent::NativeGesture: {
      const auto* gesture = static_cast<QNativeGestureEvent*>(event);
      if (gesture->gestureType() != Qt::ZoomNativeGesture) return false;
      const double x = gesture->position().x() - place_.geometry().tracks().left();
      place_.zoomAt(x, 1 / std::max(0.1, 1 + gesture->value()), Move::Drift);
      return true;
    }
    default: return false;
  }
}

void Mouse::openedMenu(const QPoint& at) {
  const Geometry where = place_.geometry();
  if (!where.tracks().contains(at)) return selection_.pointAt(where.rankAt(at.y()));
  const Hit hit = where.hitAt(at);
  if (hit.span && hit.span != scene_.selected) selection_.selectSpan(hit.span);
}

bool Mouse::cancelDrag() {
  if (!editing_.isDragging()) return false;
  drag_ = Drag::None;
  canvas_.unsetCursor();
  editing_.cancelDrag();
  return true;
}

void Mouse::zoom(double factor) {
  const QRect area = place_.geometry().tracks();
  const bool isInside = mouse_ && mouse_->x() >= area.left() && mouse_->x() <= area.right();
  place_.zoomAt(isInside ? mouse_->x() - area.left() : place_.view().width / 2.0, factor, Move::Drift);
}

void Mouse::zoomRows(double factor) {
  const QRect area = place_.geometry().tracks();
  const bool isInside = mouse_ && mouse_->y() >= area.top() && mouse_->y() <= area.bottom();
  place_.zoomRows(isInside ? mouse_->y() - area.top() : area.height() / 2, factor);
}

std::optional<Rank> Mouse::currentRank() const {
  if (const auto rank = selection_.rank()) return rank;
  return mouse_ ? place_.geometry().rankAt(mouse_->y()) : std::nullopt;
}

// ---- Buttons -------------------------------------------------------------------------------------------------------

void Mouse::pressed(const QMouseEvent& event) {
  canvas_.setFocus(Qt::MouseFocusReason);
  if (isEmpty(scene_) || drag_ != Drag::None) return;
  pressedAt_ = lastAt_ = event.position().toPoint();
  const Geometry where = place_.geometry();
  switch (editing_.press(event, where)) {
    case Editing::Pressed::Elsewhere: break;
    case Editing::Pressed::OnBlock: return;
    case Editing::Pressed::Takes: drag_ = Drag::Take; return;
  }
  const QRect area = where.tracks();
  if (event.button() == Qt::MiddleButton || (event.button() == Qt::LeftButton && area.contains(pressedAt_))) {
    drag_ = Drag::Press;
  } else if (event.button() == Qt::LeftButton && pressedAt_.x() >= area.left() && pressedAt_.y() < area.top()) {
    drag_ = Drag::Range;
  } else if (event.button() == Qt::LeftButton && pressedAt_.x() < area.left()) {
    draggedRank_ = where.rankAt(pressedAt_.y());
    if (draggedRank_) drag_ = Drag::Label;
  }
}

void Mouse::moved(const QMouseEvent& event) {
  const QPoint at = event.position().toPoint();
  mouse_ = at;
  const bool isFar = (at - pressedAt_).manhattanLength() >= QApplication::startDragDistance();
  switch (drag_) {
    case Drag::None: return hover(at);
    case Drag::Press:
      if (!isFar) return;
      drag_ = Drag::Pan;
      canvas_.setCursor(Qt::ClosedHandCursor);
      [[fallthrough]];
    case Drag::Pan:
      place_.pan(lastAt_.x() - at.x());
      place_.scrollTo(place_.scroll() + lastAt_.y() - at.y());
      break;
    case Drag::Range:
      if (isFar) selection_.selectTimes(place_.geometry().timeAt(pressedAt_.x()), place_.geometry().timeAt(at.x()));
      break;
    case Drag::Take:
      if (!isFar && !editing_.isDragging()) break;
      if (editing_.dragTo(at, place_.geometry()))
        canvas_.setCursor(Qt::ClosedHandCursor);
      else
        drag_ = Drag::None;
      break;
    case Drag::Label:
      if (!isFar) return;
      orderRanks(at);
      break;
  }
  lastAt_ = at;
  canvas_.updateSoon();
}

void Mouse::orderRanks(const QPoint& at) {
  canvas_.setCursor(Qt::ClosedHandCursor);
  const auto over = place_.geometry().rankAt(at.y());
  if (!over || *over == *draggedRank_) return;
  // Only as far as the rank would then be under the mouse: else ranks of different heights would swap to and fro.
  const auto before = scene_.ranks;
  place_.setRanks(withRankMovedTo(scene_.ranks, *draggedRank_, *over));
  if (place_.geometry().rankAt(at.y()) != draggedRank_) place_.setRanks(before);
}

void Mouse::released(const QMouseEvent& event) {
  const Drag ended = std::exchange(drag_, Drag::None);
  canvas_.unsetCursor();
  const QPoint at = event.position().toPoint();
  if (ended == Drag::Take && editing_.release()) return;
  if (ended == Drag::Range && (at - pressedAt_).manhattanLength() < QApplication::startDragDistance()) selection_.clear();
  if (ended == Drag::Label) selection_.selectRank(*draggedRank_);
  draggedRank_.reset();
  if ((ended == Drag::Press || ended == Drag::Take) && event.button() == Qt::LeftButton && place_.geometry().tracks().contains(at))
    clicked(at, event.modifiers());
}

void Mouse::clicked(const QPoint& at, Qt::KeyboardModifiers modifiers) {
  const Hit hit = place_.geometry().hitAt(at);
  selection_.pointAt(std::nullopt);
  if (hit.span && (modifiers & Qt::ControlModifier)) return selection_.choose(*hit.span);
  if (hit.span && (modifiers & Qt::ShiftModifier)) return selection_.chooseUpTo(*hit.span);
  if (hit.span) return selection_.selectSpan(hit.span);
  editing_.clearSelection();
  if (const auto gap = gapAt(hit)) return selection_.selectGap(*gap);
  selection_.clear();
  if (hit.row && hit.row->kind == Row::Kind::Memory && scene_.predicted) emit memoryClicked(hit.row->rank);
}

void Mouse::doubleClicked(const QMouseEvent& event) {
  if (isEmpty(scene_) || event.button() != Qt::LeftButton) return;
  const QPoint at = event.position().toPoint();
  const QRect area = place_.geometry().tracks();
  if (area.contains(at)) {
    if (scene_.selected || selection_.gap()) selection_.fit();  // the first click selected what is here
  } else if (at.y() < area.top()) {
    place_.fitAll();
  } else if (const auto rank = place_.geometry().rankAt(at.y())) {
    selection_.turnTo(*rank);
    if (at.x() < groupWidth(scene_)) return place_.toggleGroup(*rank);
    place_.changeRank(rank, [](RankView& view) { view.collapsed = !view.collapsed; });
  }
}

// ---- Moves ---------------------------------------------------------------------------------------------------------

void Mouse::hover(const QPoint& at) {
  const Geometry where = place_.geometry();
  const QRect area = where.tracks();
  std::optional<SourcedSpan> over;
  if (!isEmpty(scene_) && area.contains(at)) over = where.hitAt(at).span;
  selection_.hover(over);
  const bool onRuler = at.x() >= area.left() && at.y() < area.top();
  canvas_.setCursor(isEmpty(scene_)                                ? Qt::ArrowCursor
                    : onRuler                                      ? Qt::SplitHCursor
                    : at.x() < area.left() && where.rankAt(at.y()) ? Qt::OpenHandCursor
                                                                   : Qt::ArrowCursor);
  canvas_.updateSoon();
}

void Mouse::left() {
  mouse_.reset();
  selection_.hover(std::nullopt);
  canvas_.updateSoon();
}

void Mouse::turned(const QWheelEvent& event) {
  // A touchpad reports pixels, a wheel ticks.
  const QPointF pixels = event.pixelDelta();
  const QPointF ticks = QPointF(event.angleDelta()) / kTick;
  const double line = 3.0 * canvas_.fontMetrics().lineSpacing();
  const double x = pixels.isNull() ? ticks.x() * line : pixels.x();
  const double y = pixels.isNull() ? ticks.y() * line : pixels.y();
  if ((event.modifiers() & Qt::ControlModifier) && (event.modifiers() & Qt::ShiftModifier)) {
    const double turns = ticks.y() != 0 ? ticks.y() : ticks.x();  // some systems swap the axes with Shift
    return place_.zoomRows(static_cast<int>(event.position().y()) - place_.geometry().tracks().top(), std::pow(kTickZoom, -turns));
  }
  if (event.modifiers() & Qt::ControlModifier)
    return place_.zoomAt(event.position().x() - place_.geometry().tracks().left(), std::pow(kTickZoom, ticks.y()), Move::Drift);
  if (event.modifiers() & Qt::ShiftModifier) return place_.pan(-(x != 0 ? x : y));
  if (x != 0) place_.pan(-x);
  if (y != 0) place_.scrollTo(place_.scroll() - static_cast<int>(std::lround(y)));
  if (mouse_) hover(*mouse_);
}

// ---- Words ---------------------------------------------------------------------------------------------------------

std::optional<BubbleRef> Mouse::gapAt(const Hit& hit) const {
  const Timeline* t = hit.bubble && hit.row ? timelineFrom(scene_, hit.row->source) : nullptr;
  return t == nullptr ? std::nullopt : bubbleUnder(*t, hit.row->source, hit.row->rank, hit.time);
}

QString Mouse::tooltipAt(const Hit& hit) {
  if (hit.row && hit.row->kind == Row::Kind::Memory && scene_.predicted)
    return tr("Memory of rank %1; click to see what it is used for at its peak").arg(hit.row->rank.value);
  if (hit.span) return tooltipOf(knowledge_.factsOf(*hit.span, false));
  const auto gap = gapAt(hit);
  if (!gap) return {};
  const Cause cause = knowledge_.causeOf(*gap);
  return QStringLiteral("<p><b>%1</b></p><p>%2</p>").arg(cause.headline.toHtmlEscaped(), cause.chain.toHtmlEscaped());
}

void Mouse::showTooltip(const QHelpEvent& event) {
  const Geometry where = place_.geometry();
  if (isEmpty(scene_) || !where.tracks().contains(event.pos())) return QToolTip::hideText();
  const QString text = tooltipAt(where.hitAt(event.pos()));
  if (text.isEmpty()) return QToolTip::hideText();
  QToolTip::showText(event.globalPos(), text, &canvas_, QRect(event.pos() - QPoint(2, 2), QSize(5, 5)));
}

}  // namespace pw::gui
