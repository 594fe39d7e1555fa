#include "app/gui/timeline/details_strip.h"

#include <QAbstractTextDocumentLayout>
#include <QEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QScrollBar>
#include <QTextBlock>
#include <QTextDocument>
#include <QTextLayout>
#include <algorithm>
#include <cmath>
#include <utility>

namespace pw::gui {

DetailsStrip::DetailsStrip(QWidget* parent) : QPlainTextEdit(parent) {
  setReadOnly(true);
  setMouseTracking(true);
  viewport()->setMouseTracking(true);
  setTabChangesFocus(true);
  setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  setFrameShape(QFrame::NoFrame);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAsNeeded);
  setAccessibleName(tr("Details"));
  fit();
}

void DetailsStrip::setDetails(const QString& text, const QString& hint) {
  if (placeholderText() != hint) setPlaceholderText(hint);
  if (text == details_) return;
  links_.clear();
  details_ = text;
  setPlainText(text);
  QTextCursor cursor(document()->firstBlock());
  cursor.select(QTextCursor::BlockUnderCursor);
  QTextCharFormat bold;
  bold.setFontWeight(QFont::DemiBold);
  cursor.mergeCharFormat(bold);
  fit();
}

void DetailsStrip::setLinks(const QStringList& parts) {
  if (parts == links_) return;
  links_ = parts;
  qsizetype at = std::max<qsizetype>(0, details_.indexOf(QLatin1Char('\n')));
  for (qsizetype i = 0; i < parts.size(); ++i) {
    const qsizetype found = parts[i].isEmpty() ? -1 : details_.indexOf(parts[i], at);
    if (found < 0) continue;
    at = found + parts[i].size();
    QTextCursor cursor(document());
    cursor.setPosition(static_cast<int>(found));
    cursor.setPosition(static_cast<int>(at), QTextCursor::KeepAnchor);
    QTextCharFormat link;
    link.setAnchor(true);
    link.setAnchorHref(QString::number(i));
    link.setFontUnderline(true);
    link.setForeground(palette().link());
    cursor.mergeCharFormat(link);
  }
}

bool DetailsStrip::choose(const QString& link) {
  bool isNumber = false;
  const int number = link.toInt(&isNumber);
  if (isNumber) emit linkChosen(number);
  return isNumber;
}

void DetailsStrip::mouseMoveEvent(QMouseEvent* event) {
  QPlainTextEdit::mouseMoveEvent(event);
  viewport()->setCursor(anchorAt(event->position().toPoint()).isEmpty() ? Qt::IBeamCursor : Qt::PointingHandCursor);
}

void DetailsStrip::mouseReleaseEvent(QMouseEvent* event) {
  QPlainTextEdit::mouseReleaseEvent(event);
  if (event->button() == Qt::LeftButton && !textCursor().hasSelection()) (void)choose(anchorAt(event->position().toPoint()));
}

void DetailsStrip::keyPressEvent(QKeyEvent* event) {
  const bool isEnter = event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter;
  if (isEnter && choose(textCursor().charFormat().anchorHref())) return event->accept();
  QPlainTextEdit::keyPressEvent(event);
}

void DetailsStrip::changeEvent(QEvent* event) {
  QPlainTextEdit::changeEvent(event);
  if (event->type() == QEvent::FontChange || event->type() == QEvent::StyleChange) fit();
}

void DetailsStrip::resizeEvent(QResizeEvent* event) {
  QPlainTextEdit::resizeEvent(event);
  fit();
}

/// How many lines there are, and how high the first of them are together [pixels]. Bold ones may be higher than others.
std::pair<int, double> DetailsStrip::linesOf(int most) const {
  int lines = 0;
  double height = 0;
  for (QTextBlock block = document()->begin(); block.isValid(); block = block.next()) {
    (void)document()->documentLayout()->blockBoundingRect(block);  // lays it out
    for (int i = 0; i < block.layout()->lineCount(); ++i) {
      if (lines++ < most) height += block.layout()->lineAt(i).height();
    }
  }
  return {lines, height};
}

/// A table keeps its lines and can be scrolled sideways; sentences wrap, and where they take a third line they get it. A scroll bar that
/// comes or goes changes the width, and so the lines: that is looked at once, not again from within.
void DetailsStrip::fit() {
  if (std::exchange(isFitting_, true)) return;
  const bool isTable = details_.contains(QLatin1Char('\t'));
  const auto wrap = isTable ? QPlainTextEdit::NoWrap : QPlainTextEdit::WidgetWidth;
  if (lineWrapMode() != wrap) setLineWrapMode(wrap);
  setTabStopDistance(fontMetrics().horizontalAdvance(QStringLiteral("000.00 ms (00.0 %)  ")));
  const int most = isTable ? 7 : 4;
  setVerticalScrollBarPolicy(linesOf(most).first > most ? Qt::ScrollBarAsNeeded : Qt::ScrollBarAlwaysOff);
  const auto [lines, shown] = linesOf(most);
  const double least = shown + std::max(0, 2 - lines) * QFontMetricsF(font()).lineSpacing();
  const bool isWide = isTable && document()->size().width() > viewport()->width();
  const int bar = isWide ? horizontalScrollBar()->sizeHint().height() : 0;
  const int height = bar + static_cast<int>(std::ceil(least + 2 * document()->documentMargin())) + 2 * frameWidth();
  if (height != minimumHeight() || height != maximumHeight()) setFixedHeight(height);
  isFitting_ = false;
}

}  // namespace pw::gui
