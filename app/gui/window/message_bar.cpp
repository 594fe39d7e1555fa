#include "app/gui/window/message_bar.h"

#include <QAction>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QMessageBox>
#include <QPushButton>
#include <QResizeEvent>
#include <QTextLayout>
#include <QVBoxLayout>
#include <algorithm>

namespace pw::gui {
namespace {

/// As much of the text as so many lines of this width have room for, with an ellipsis where that is not all.
QString cutTo(const QString& text, int lines, int width, const QFont& font) {
  QTextLayout layout(QString(text).replace(QLatin1Char('\n'), QChar::LineSeparator), font);
  layout.beginLayout();
  int begin = 0;
  QString rest;
  for (int i = 0; i < lines; ++i) {
    QTextLine line = layout.createLine();
    if (!line.isValid()) break;
    line.setLineWidth(width);
    if (i + 1 == lines && line.textStart() + line.textLength() < text.size()) {
      begin = line.textStart();
      rest = QFontMetrics(font).elidedText(text.mid(begin).replace(QLatin1Char('\n'), QLatin1Char(' ')), Qt::ElideRight, width);
    }
  }
  layout.endLayout();
  return rest.isEmpty() ? text : text.left(begin) + rest;
}

}  // namespace

MessageBar::MessageBar(QWidget* parent)
    : QFrame(parent),
      icon_(new QLabel),
      text_(new QLabel),
      offer_(new QPushButton(tr("&Instead"))),
      more_(new QPushButton(tr("Full te&xt…"))),
      buttons_(new QVBoxLayout) {
  setObjectName(QStringLiteral("message"));
  setFrameShape(QFrame::StyledPanel);
  setAutoFillBackground(true);
  setVisible(false);
  auto* row = new QHBoxLayout(this);
  row->setContentsMargins(12, 6, 6, 6);
  text_->setWordWrap(true);
  text_->setTextFormat(Qt::PlainText);
  text_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  text_->setAccessibleName(tr("Message"));
  auto* dismiss = new QPushButton(tr("&Dismiss"));
  connect(dismiss, &QAbstractButton::clicked, this, &QWidget::hide);
  connect(more_, &QAbstractButton::clicked, this, [this] { showAll(); });
  offer_->hide();
  row->addWidget(icon_);
  row->addWidget(text_, 1);
  buttons_->addWidget(offer_);
  buttons_->addWidget(dismiss);
  buttons_->addWidget(more_);
  row->addLayout(buttons_);
}

void MessageBar::show(const QString& sentence, QStyle::StandardPixmap icon) {
  if (sentence.isEmpty()) return;
  icon_->setPixmap(style()->standardIcon(icon).pixmap(20, 20));
  static const QString ends = QStringLiteral(".!?…");
  all_ = ends.contains(sentence.back()) ? sentence : sentence + QLatin1Char('.');
  text_->setAccessibleDescription(all_);
  kind_ = icon;
  if (QMenu* const earlier = offer_->menu()) earlier->deleteLater();  // this may be what its choice leads to
  offer_->setMenu(nullptr);
  offer_->hide();
  fit();
  setVisible(true);
}

void MessageBar::offer(const QString& text, const QList<QAction*>& choices) {
  auto* menu = new QMenu(offer_);
  for (QAction* choice : choices) {
    choice->setParent(menu);
    menu->addAction(choice);
  }
  connect(menu, &QMenu::triggered, this, &QWidget::hide);
  offer_->setText(text);
  offer_->setMenu(menu);
  offer_->show();
  fit();
}

/// As many lines as the two buttons are high; the width of the text does not depend on whether both are there.
void MessageBar::fit() {
  const QMargins margins = layout()->contentsMargins();
  int buttons = 0;
  for (int i = 0; i < buttons_->count(); ++i) buttons = std::max(buttons, buttons_->itemAt(i)->widget()->sizeHint().width());
  const int used = margins.left() + margins.right() + 2 * frameWidth() + icon_->sizeHint().width() + buttons + 2 * layout()->spacing();
  const QString cut = cutTo(all_, kLines, std::max(1, width() - used), text_->font());
  more_->setVisible(cut != all_);
  text_->setText(cut);
}

void MessageBar::showAll() {
  auto* box = new QMessageBox(QMessageBox::NoIcon, tr("Message"), all_, QMessageBox::Close, window());
  box->setAttribute(Qt::WA_DeleteOnClose);
  box->setIconPixmap(style()->standardIcon(kind_).pixmap(32, 32));
  box->setTextFormat(Qt::PlainText);
  box->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  box->open();
}

void MessageBar::resizeEvent(QResizeEvent* event) {
  QFrame::resizeEvent(event);
  if (event->size().width() != event->oldSize().width()) fit();
}

void MessageBar::changeEvent(QEvent* event) {
  QFrame::changeEvent(event);
  if (event->type() == QEvent::FontChange) fit();
}

}  // namespace pw::gui
