#include <QAction>
#include <QActionGroup>
#include <QApplication>
#include <QContextMenuEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMenu>
#include <QMouseEvent>
#include <QNativeGestureEvent>
#include <QToolTip>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/private.h"

namespace pw::gui {
namespace {

constexpr double kPanStep = 0.1;   ///< of the width, for A and D
constexpr double kTickZoom = 0.8;  ///< of a wheel's tick
constexpr double kTick = 120;      ///< Qt: an eighth of a degree times 15 degrees

QKeySequence key(int code) { return QKeySequence(code); }

}  // namespace

// ---- Actions -------------------------------------------------------------------------------------------------------

void TimelineWidget::Private::addActions() {
  commands.beginGroup();
  commands.add(tr("Zoom in"), {key(Qt::Key_W), key(Qt::Key_Plus)}, [this] { w.zoomIn(); });
  commands.add(tr("Zoom out"), {key(Qt::Key_S), key(Qt::Key_Minus)}, [this] { w.zoomOut(); });
  commands.add(tr("Earlier"), {key(Qt::Key_A)}, [this] { pan(-kPanStep * view.width); });
  commands.add(tr("Later"), {key(Qt::Key_D)}, [this] { pan(kPanStep * view.width); });
  commands.add(tr("Fit selection"), {key(Qt::Key_F), key(Qt::Key_Return), key(Qt::Key_Enter)}, [this] { w.fitSelection(); });
  commands.add(tr("Fit all"), {QKeySequence(Qt::SHIFT | Qt::Key_F), key(Qt::Key_Home)}, [this] { w.fitAll(); });
  commands.add(tr("Previous view"), {QKeySequence(Qt::ALT | Qt::Key_Left)}, [this] { w.viewBack(); });
  commands.add(tr("Next view"), {QKeySequence(Qt::ALT | Qt::Key_Right)}, [this] { w.viewForward(); });
  commands.beginGroup();
  commands.add(tr("Next on the track"), {key(Qt::Key_Period), key(Qt::Key_Right)}, [this] { walk(1); });
  commands.add(tr("Previous on the track"), {key(Qt::Key_Comma), key(Qt::Key_Left)}, [this] { walk(-1); });
  commands.add(tr("Row above"), {key(Qt::Key_Up)}, [this] { walkRows(-1); });
  commands.add(tr("Row below"), {key(Qt::Key_Down)}, [this] { walkRows(1); });
  commands.add(tr("Go to consumer"), {key(Qt::Key_BracketRight)}, [this] { follow(1); });
  commands.add(tr("Go to cause"), {key(Qt::Key_BracketLeft)}, [this] { follow(-1); });
  commands.addToggle(
      tr("Critical path"), key(Qt::Key_X), [this] { return pathOn; }, [this](bool on) { w.showCriticalPath(on); });
  commands.add(tr("Find…"), {QKeySequence(Qt::CTRL | Qt::Key_F), key(Qt::Key_Slash)}, [this] { w.find(); });
  commands.add(tr("Clear selection"), {key(Qt::Key_Escape)}, [this] {
    if (hand->isDragging()) {
      drag = Drag::None;
      canvas->unsetCursor();
      return hand->endDrag(false);
    }
    if (hand->isOn() && (!hand->selection().empty() || hand->isRefused())) hand->clearSelection();
    if (!scene.selected && !gap && !scene.range && pathOn) w.showCriticalPath(false);
    clear();
  });
  commands.beginGroup();
  const auto isRank = [this](bool RankView::*state) {
    const auto rank = currentRank();
    return std::any_of(scene.ranks.begin(), scene.ranks.end(), [&](const RankView& r) { return rank && r.rank == *rank && r.*state; });
  };
  commands.addToggle(
      tr("Pin rank"), key(Qt::Key_P), [isRank] { return isRank(&RankView::pinned); }, [this](bool) { w.togglePin(); });
  commands.addToggle(
      tr("Collapse rank"), key(Qt::Key_C), [isRank] { return isRank(&RankView::collapsed); }, [this](bool) { w.toggleCollapse(); });
  commands.add(tr("Move rank up"), {QKeySequence(Qt::ALT | Qt::Key_Up)}, [this] { w.moveRank(-1); });
  commands.add(tr("Move rank down"), {QKeySequence(Qt::ALT | Qt::Key_Down)}, [this] { w.moveRank(1); });
  commands.add(tr("Scroll up"), {key(Qt::Key_PageUp)}, [this] { scrollTo(scroll - bar->pageStep()); });
  commands.add(tr("Scroll down"), {key(Qt::Key_PageDown)}, [this] { scrollTo(scroll + bar->pageStep()); });
  addLookActions();
  addEditActions();
  commands.updateToggles();
}

/// Colours, arrangement and rows.
void TimelineWidget::Private::addLookActions() {
  commands.beginGroup();
  const auto colour = [this](const QString& text, int code, ColourBy by) {
    commands.addToggle(
        text, key(code), [this, by] { return scene.colourBy == by; }, [this, by](bool) { w.setColourBy(by); });
  };
  colour(tr("Colour by kind"), Qt::Key_1, ColourBy::Kind);
  colour(tr("Colour by stage"), Qt::Key_2, ColourBy::Stage);
  colour(tr("Colour by microbatch"), Qt::Key_3, ColourBy::Microbatch);
  commands.addToggle(
      tr("Measured over predicted"), key(Qt::Key_O), [this] { return scene.arrangement == Arrangement::Over; },
      [this](bool on) { w.setArrangement(on ? Arrangement::Over : Arrangement::Below); });
  commands.addToggle(
      tr("Colour differences"), key(Qt::Key_V), [this] { return scene.differences; }, [this](bool on) { w.setDifferences(on); });
  const auto rows = [this](const QString& text, int code, bool Scene::*shown) {
    commands.addToggle(
        text, key(code), [this, shown] { return scene.*shown; },
        [this, shown](bool on) {
          scene.*shown = on;
          layOut();
          emit w.viewChanged();
          repaint();
        });
  };
  rows(tr("Messages"), Qt::Key_M, &Scene::showsCommunication);
  rows(tr("Memory"), Qt::Key_B, &Scene::showsMemory);
}

bool TimelineWidget::event(QEvent* event) {
  // These keys are handled here while the timeline has the focus, whatever the window does with them.
  if (event->type() == QEvent::ShortcutOverride && !d->findBar->isAncestorOf(focusWidget()) &&
      d->commands.commandOf(*static_cast<QKeyEvent*>(event)) != nullptr) {
    event->accept();
    return true;
  }
  return QWidget::event(event);
}

void TimelineWidget::keyPressEvent(QKeyEvent* event) {
  if (QAction* action = d->commands.commandOf(*event))
    action->trigger();
  else
    QWidget::keyPressEvent(event);
}

void TimelineWidget::contextMenuEvent(QContextMenuEvent* event) {
  if (d->isEmpty()) return;
  const QPoint at = d->canvas->mapFromGlobal(event->globalPos());
  if (event->reason() == QContextMenuEvent::Mouse) {
    if (!d->canvas->rect().contains(at)) return QWidget::contextMenuEvent(event);
    if (d->trackArea().contains(at)) {
      const Hit hit = d->hitAt(at);
      if (hit.span && hit.span != d->scene.selected) d->selectSpan(hit.span);
    } else {
      d->labelRank = d->rankAt(at.y());
    }
  }
  const bool isInside = event->reason() == QContextMenuEvent::Mouse;
  d->commands.openMenu(isInside ? event->globalPos() : d->canvas->mapToGlobal(d->trackArea().center()));
}

// ---- Moving --------------------------------------------------------------------------------------------------------

void TimelineWidget::Private::zoomAt(double x, double factor, Move move) {
  if (!isEmpty()) show(zoomed(view, x, factor, std::max<Ns>(1, end())), move);
}

void TimelineWidget::Private::zoom(double factor) {
  const QRect area = trackArea();
  const bool inside = mouse && mouse->x() >= area.left() && mouse->x() <= area.right();
  zoomAt(inside ? mouse->x() - area.left() : view.width / 2.0, factor, Move::Drift);
}

void TimelineWidget::Private::pan(double pixels) {
  if (!isEmpty()) show(panned(view, pixels, std::max<Ns>(1, end())), Move::Drift);
}

// ---- Mouse ---------------------------------------------------------------------------------------------------------

bool TimelineWidget::Private::handle(QEvent* event) {
  switch (static_cast<int>(event->type())) {
    case QEvent::Paint: paint(); return true;
    case QEvent::Resize: resized(); return false;
    case QEvent::FocusIn:
    case QEvent::FocusOut: repaint(); return false;
    case QEvent::MouseButtonPress: pressed(*static_cast<QMouseEvent*>(event)); return true;
    case QEvent::MouseButtonRelease: released(*static_cast<QMouseEvent*>(event)); return true;
    case QEvent::MouseButtonDblClick: doubleClicked(*static_cast<QMouseEvent*>(event)); return true;
    case QEvent::MouseMove: dragged(*static_cast<QMouseEvent*>(event)); return true;
    case QEvent::Wheel:
      turned(*static_cast<QWheelEvent*>(event));
      event->accept();
      return true;
    case QEvent::Leave: left(); return false;
    case QEvent::ToolTip: showTooltip(*static_cast<QHelpEvent*>(event)); return true;
    case QEvent::NativeGesture: {
      const auto* gesture = static_cast<QNativeGestureEvent*>(event);
      if (gesture->gestureType() != Qt::ZoomNativeGesture) return false;
      zoomAt(gesture->position().x() - trackArea().left(), 1 / std::max(0.1, 1 + gesture->value()), Move::Drift);
      return true;
    }
    default: return false;
  }
}

void TimelineWidget::Private::pressed(const QMouseEvent& event) {
  canvas->setFocus(Qt::MouseFocusReason);
  if (isEmpty() || drag != Drag::None) return;
  pressedAt = lastAt = event.position().toPoint();
  if (pressedWhileEditing(event)) return;
  const QRect area = trackArea();
  if (event.button() == Qt::MiddleButton || (event.button() == Qt::LeftButton && area.contains(pressedAt))) {
    drag = Drag::Press;
  } else if (event.button() == Qt::LeftButton && pressedAt.x() >= area.left() && pressedAt.y() < area.top()) {
    drag = Drag::Range;
  } else if (event.button() == Qt::LeftButton && pressedAt.x() < area.left()) {
    draggedRank = rankAt(pressedAt.y());
    if (draggedRank) drag = Drag::Label;
  }
}

void TimelineWidget::Private::dragged(const QMouseEvent& event) {
  const QPoint at = event.position().toPoint();
  mouse = at;
  const bool isFar = (at - pressedAt).manhattanLength() >= QApplication::startDragDistance();
  switch (drag) {
    case Drag::None: return hover(at);
    case Drag::Press:
      if (!isFar) return;
      drag = Drag::Pan;
      canvas->setCursor(Qt::ClosedHandCursor);
      [[fallthrough]];
    case Drag::Pan:
      pan(lastAt.x() - at.x());
      scrollTo(scroll + lastAt.y() - at.y());
      break;
    case Drag::Range:
      if (isFar) selectTimes(timeAt(pressedAt.x()), timeAt(at.x()));
      break;
    case Drag::Take:
      if (isFar || hand->isDragging()) takenTo(at);
      break;
    case Drag::Label:
      if (!isFar) return;
      canvas->setCursor(Qt::ClosedHandCursor);
      if (const auto over = rankAt(at.y()); over && *over != *draggedRank) {
        // Only as far as the rank would then be under the mouse: else ranks of different heights would swap to and fro.
        const auto before = scene.ranks;
        setRanks(withRankMovedTo(scene.ranks, *draggedRank, *over));
        if (rankAt(at.y()) != draggedRank) setRanks(before);
      }
      break;
  }
  lastAt = at;
  repaintSoon();
}

void TimelineWidget::Private::released(const QMouseEvent& event) {
  const Drag ended = std::exchange(drag, Drag::None);
  canvas->unsetCursor();
  const QPoint at = event.position().toPoint();
  if (ended == Drag::Take) {
    if (hand->isDragging()) return hand->endDrag(true);
    if (taken && hand->selection().size() > 1) hand->select(*taken);  // a click on one of several
  }
  if (ended == Drag::Range && (at - pressedAt).manhattanLength() < QApplication::startDragDistance()) clear();
  if (ended == Drag::Label && labelRank != draggedRank) {
    labelRank = draggedRank;
    if (!scene.selected || scene.selected->span.rank != *labelRank) {
      const auto rank = labelRank;
      clear();
      labelRank = rank;
    }
  }
  draggedRank.reset();
  if ((ended != Drag::Press && ended != Drag::Take) || event.button() != Qt::LeftButton || !trackArea().contains(at)) return;
  const Hit hit = hitAt(at);
  labelRank.reset();
  if (hit.span) return selectSpan(hit.span);
  if (hit.bubble && hit.row && timeline(hit.row->source) != nullptr) {
    if (const auto under = bubbleUnder(*timeline(hit.row->source), hit.row->source, hit.row->rank, hit.time)) return selectGap(*under);
  }
  clear();
  if (hit.row && hit.row->kind == Row::Kind::Memory && scene.predicted) emit w.memoryClicked(hit.row->rank);
}

void TimelineWidget::Private::doubleClicked(const QMouseEvent& event) {
  if (isEmpty() || event.button() != Qt::LeftButton) return;
  const QPoint at = event.position().toPoint();
  const QRect area = trackArea();
  if (area.contains(at)) {
    if (scene.selected || gap) w.fitSelection();  // the first click selected what is here
  } else if (at.y() < area.top()) {
    w.fitAll();
  } else if (const auto rank = rankAt(at.y())) {
    scene.selected.reset();
    gap.reset();
    labelRank = rank;
    w.toggleCollapse();
  }
}

void TimelineWidget::Private::hover(const QPoint& at) {
  const QRect area = trackArea();
  std::optional<SourcedSpan> over;
  if (!isEmpty() && area.contains(at)) over = hitAt(at).span;
  if (over != scene.hovered) {
    scene.hovered = over;
    markAlso();
  }
  const bool onRuler = at.x() >= area.left() && at.y() < area.top();
  canvas->setCursor(isEmpty()                                ? Qt::ArrowCursor
                    : onRuler                                ? Qt::SplitHCursor
                    : at.x() < area.left() && rankAt(at.y()) ? Qt::OpenHandCursor
                                                             : Qt::ArrowCursor);
  repaintSoon();
}

void TimelineWidget::Private::left() {
  mouse.reset();
  if (scene.hovered) {
    scene.hovered.reset();
    markAlso();
  }
  repaintSoon();
}

void TimelineWidget::Private::turned(const QWheelEvent& event) {
  // A touchpad reports pixels, a wheel ticks.
  const QPointF pixels = event.pixelDelta();
  const QPointF ticks = QPointF(event.angleDelta()) / kTick;
  const double line = 3.0 * w.fontMetrics().lineSpacing();
  const double x = pixels.isNull() ? ticks.x() * line : pixels.x();
  const double y = pixels.isNull() ? ticks.y() * line : pixels.y();
  if (event.modifiers() & Qt::ControlModifier)
    return zoomAt(event.position().x() - trackArea().left(), std::pow(kTickZoom, ticks.y()), Move::Drift);
  if (event.modifiers() & Qt::ShiftModifier) return pan(-(x != 0 ? x : y));
  if (x != 0) pan(-x);
  if (y != 0) scrollTo(scroll - static_cast<int>(std::lround(y)));
  if (mouse) hover(*mouse);
}

void TimelineWidget::Private::showTooltip(const QHelpEvent& event) {
  if (isEmpty() || !trackArea().contains(event.pos())) return QToolTip::hideText();
  const Hit hit = hitAt(event.pos());
  QString text;
  if (hit.span) {
    text = tooltipOf(facts(*hit.span, false));
  } else if (hit.bubble && hit.row) {
    const Timeline* t = timeline(hit.row->source);
    if (const auto under = t == nullptr ? std::nullopt : bubbleUnder(*t, hit.row->source, hit.row->rank, hit.time)) {
      const Cause cause = causeOfGap(*under);
      text = QStringLiteral("<p><b>%1</b></p><p>%2</p>").arg(cause.headline.toHtmlEscaped(), cause.chain.toHtmlEscaped());
    }
  }
  if (hit.row && hit.row->kind == Row::Kind::Memory && scene.predicted)
    text = tr("Memory of rank %1; click to see what it is used for at its peak").arg(hit.row->rank.value);
  if (text.isEmpty()) return QToolTip::hideText();
  QToolTip::showText(event.globalPos(), text, canvas, QRect(event.pos() - QPoint(2, 2), QSize(5, 5)));
}

}  // namespace pw::gui
