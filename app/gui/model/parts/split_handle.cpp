#include "app/gui/model/parts/split_handle.h"

#include <QContextMenuEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QPainter>
#include <QToolTip>

#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

constexpr int kDragDistance = 3;  // less than the platform's: rows are low, and a handle can do nothing else with the mouse

}  // namespace

SplitHandle::SplitHandle(int split, QWidget* parent) : QWidget(parent), split_(split) {
  setFocusPolicy(Qt::StrongFocus);
  setCursor(Qt::SplitVCursor);
  setAttribute(Qt::WA_Hover);
  setAccessibleDescription(tr("Up and Down move the split to the next place where a stage may begin, Delete removes it."));
}

void SplitHandle::setRefused(bool refused) {
  if (refused == refused_) return;
  refused_ = refused;
  setCursor(refused ? Qt::ForbiddenCursor : Qt::SplitVCursor);
  update();
}

void SplitHandle::dropDrag() {
  isPressed_ = dragged_ = false;
  setRefused(false);
}

void SplitHandle::finish(bool keep) {
  const bool was = dragged_;
  dropDrag();
  update();
  if (was) emit dragEnded(split_, keep);
}

bool SplitHandle::event(QEvent* event) {
  if (event->type() == QEvent::ToolTip && tip_ && !dragged_) {
    QToolTip::showText(static_cast<QHelpEvent*>(event)->globalPos(), tip_(split_), this);
    return true;
  }
  if (event->type() == QEvent::ShortcutOverride) {
    const int key = static_cast<QKeyEvent*>(event)->key();
    if (key == Qt::Key_Up || key == Qt::Key_Down || key == Qt::Key_Delete || (key == Qt::Key_Escape && dragged_)) {
      event->accept();
      return true;
    }
  }
  return QWidget::event(event);
}

void SplitHandle::mousePressEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton) return;
  isPressed_ = true;
  pressed_ = event->globalPosition().toPoint();
  setFocus(Qt::MouseFocusReason);
}

void SplitHandle::mouseMoveEvent(QMouseEvent* event) {
  if (!isPressed_) return;
  const QPoint global = event->globalPosition().toPoint();
  if (!dragged_ && (global - pressed_).manhattanLength() < kDragDistance) return;
  if (!dragged_) {
    dragged_ = true;
    QToolTip::hideText();
    emit dragStarted(split_);
  }
  emit dragged(split_, global);
}

void SplitHandle::mouseReleaseEvent(QMouseEvent* event) {
  if (event->button() == Qt::LeftButton) finish(true);
}

void SplitHandle::keyPressEvent(QKeyEvent* event) {
  if (event->key() == Qt::Key_Escape && dragged_) {
    finish(false);
  } else if (dragged_) {
    event->accept();  // one thing at a time
  } else if (event->key() == Qt::Key_Up || event->key() == Qt::Key_Down) {
    emit stepped(split_, event->key() == Qt::Key_Up ? -1 : 1);
  } else if (event->key() == Qt::Key_Delete) {
    emit removed(split_);
  } else {
    QWidget::keyPressEvent(event);
  }
}

void SplitHandle::focusInEvent(QFocusEvent* event) {
  QWidget::focusInEvent(event);
  if (event->reason() != Qt::MouseFocusReason) emit focused(split_);
}

void SplitHandle::focusOutEvent(QFocusEvent* event) {
  QWidget::focusOutEvent(event);
  if (event->reason() != Qt::PopupFocusReason) finish(false);  // a drag that nobody can end any more
}

void SplitHandle::contextMenuEvent(QContextMenuEvent* event) {
  emit menuRequested(split_, event->reason() == QContextMenuEvent::Keyboard ? mapToGlobal(rect().bottomLeft()) : event->globalPos());
}

void SplitHandle::paintEvent(QPaintEvent*) {
  const Theme& theme = currentTheme();
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  const double middle = height() / 2.0;
  const bool active = underMouse() || dragged_;
  const QColor colour = refused_ ? theme.error : active ? theme.accent : theme.text;
  painter.fillRect(QRectF(0, middle - 1, width(), 2), colour);
  const double grip = gripWidth(height());
  const QRectF pill(width() - grip - 2, 0.75, grip, height() - 1.5);  // at the right, where a low stage has no text
  painter.setPen(QPen(hasFocus() ? theme.focus : colour, hasFocus() ? 2 : 1));
  painter.setBrush(active ? colour : palette().color(QPalette::Button));
  painter.drawRoundedRect(pill, 3, 3);
  painter.setPen(QPen(active ? textOn(colour) : theme.text, 1));
  for (const double y : {middle - 1.5, middle + 1.5})
    painter.drawLine(QPointF(pill.center().x() - grip / 5, y), QPointF(pill.center().x() + grip / 5, y));
}

}  // namespace pw::gui
