#include "app/gui/common/elided_label.h"

#include <QHelpEvent>
#include <QPainter>
#include <QToolTip>

namespace pw::gui {

QSize ElidedLabel::minimumSizeHint() const {
  return {fontMetrics().horizontalAdvance(QStringLiteral("estimated …")), QLabel::minimumSizeHint().height()};
}

bool ElidedLabel::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip || !toolTip().isEmpty()) return QLabel::event(event);
  const bool isCut = fontMetrics().horizontalAdvance(text()) > contentsRect().width();
  isCut ? QToolTip::showText(static_cast<QHelpEvent*>(event)->globalPos(), text(), this) : QToolTip::hideText();
  return true;
}

void ElidedLabel::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  painter.setPen(palette().color(isEnabled() ? QPalette::Active : QPalette::Disabled, foregroundRole()));
  painter.drawText(contentsRect(), static_cast<int>(alignment()) | Qt::TextSingleLine,
                   fontMetrics().elidedText(text(), Qt::ElideRight, contentsRect().width()));
}

}  // namespace pw::gui
