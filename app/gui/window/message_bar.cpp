#include "app/gui/window/message_bar.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>

namespace pw::gui {

MessageBar::MessageBar(QWidget* parent) : QFrame(parent), icon_(new QLabel), text_(new QLabel) {
  setObjectName(QStringLiteral("message"));
  setFrameShape(QFrame::StyledPanel);
  setAutoFillBackground(true);
  setVisible(false);
  auto* row = new QHBoxLayout(this);
  row->setContentsMargins(12, 6, 6, 6);
  text_->setWordWrap(true);
  text_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  text_->setAccessibleName(tr("Message"));
  auto* dismiss = new QPushButton(tr("Dismiss"));
  connect(dismiss, &QAbstractButton::clicked, this, &QWidget::hide);
  row->addWidget(icon_);
  row->addWidget(text_, 1);
  row->addWidget(dismiss);
}

void MessageBar::show(const QString& sentence, QStyle::StandardPixmap icon) {
  if (sentence.isEmpty()) return;
  icon_->setPixmap(style()->standardIcon(icon).pixmap(20, 20));
  static const QString ends = QStringLiteral(".!?…");
  const QString text = ends.contains(sentence.back()) ? sentence : sentence + QLatin1Char('.');
  text_->setText(text);
  text_->setAccessibleDescription(text);
  setVisible(true);
}

QString MessageBar::text() const { return text_->text(); }

}  // namespace pw::gui
