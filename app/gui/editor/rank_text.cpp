#include "app/gui/editor/rank_text.h"

#include <QKeyEvent>
#include <QPainter>
#include <QTextBlock>
#include <algorithm>

#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

constexpr int kPadding = 6;  // pixels on either side of a label

}  // namespace

RankText::RankText(QWidget* parent) : QPlainTextEdit(parent), margin_(new QWidget(this)) {
  margin_->installEventFilter(this);
  connect(this, &QPlainTextEdit::blockCountChanged, this, [this] { fit(); });
  connect(this, &QPlainTextEdit::updateRequest, this, [this](const QRect& part, int scrolled) {
    if (scrolled != 0)
      margin_->scroll(0, scrolled);
    else
      margin_->update(0, part.y(), margin_->width(), part.height());
  });
  fit();
}

QString RankText::labelOf(int row) const { return tr("rank %1").arg(row); }

/// As wide as the last row's label; nothing where there is no text.
void RankText::fit() {
  const bool isAny = !document()->isEmpty();
  const int width = isAny ? margin_->fontMetrics().horizontalAdvance(labelOf(std::max(9, blockCount() - 1))) + 2 * kPadding : 0;
  setViewportMargins(width, 0, 0, 0);
  const QRect inside = contentsRect();
  margin_->setGeometry(inside.left(), inside.top(), width, viewport()->height());
  margin_->setVisible(isAny);
}

void RankText::resizeEvent(QResizeEvent* event) {
  QPlainTextEdit::resizeEvent(event);
  fit();
}

void RankText::changeEvent(QEvent* event) {
  QPlainTextEdit::changeEvent(event);
  if (event->type() == QEvent::FontChange || event->type() == QEvent::StyleChange) fit();
}

void RankText::keyPressEvent(QKeyEvent* event) {
  if (!event->matches(QKeySequence::Undo) || !revert_) return QPlainTextEdit::keyPressEvent(event);
  const auto revert = std::exchange(revert_, {});
  revert();
}

bool RankText::eventFilter(QObject* object, QEvent* event) {
  if (object != margin_ || event->type() != QEvent::Paint) return QPlainTextEdit::eventFilter(object, event);
  paintMargin();
  return true;
}

void RankText::paintMargin() {
  const Theme& theme = currentTheme();
  QPainter painter(margin_);
  painter.fillRect(margin_->rect(), theme.alternate);
  painter.setPen(theme.faintText);
  QRectF line = blockBoundingGeometry(firstVisibleBlock()).translated(contentOffset());
  for (QTextBlock row = firstVisibleBlock(); row.isValid() && line.top() <= margin_->height(); row = row.next()) {
    const QRectF where(0, line.top(), margin_->width() - kPadding, fontMetrics().lineSpacing());  // the last row is higher
    painter.drawText(where, Qt::AlignRight | Qt::AlignVCenter, labelOf(row.blockNumber()));
    line.moveTop(line.bottom());
    line.setHeight(blockBoundingRect(row.next()).height());
  }
}

}  // namespace pw::gui
