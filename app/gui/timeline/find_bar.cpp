#include "app/gui/timeline/find_bar.h"

#include <QEvent>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QStyle>
#include <QToolButton>

#include "app/gui/common/theme.h"

namespace pw::gui {

FindBar::FindBar(QWidget* parent) : QWidget(parent), edit_(new QLineEdit(this)), count_(new QLabel(this)) {
  auto* line = new QHBoxLayout(this);
  line->setContentsMargins(6, 4, 6, 4);
  edit_->setPlaceholderText(tr("Find: 2F5, B3, rank 3, stage 1, mb 4, bubble > 2ms"));
  edit_->setAccessibleName(tr("Find in the timeline"));
  edit_->setClearButtonEnabled(true);
  edit_->installEventFilter(this);
  count_->setMinimumWidth(count_->fontMetrics().horizontalAdvance(QStringLiteral("00000 of 00000")));
  count_->setAccessibleName(tr("Matches"));
  line->addWidget(edit_, 1);
  line->addWidget(count_);
  const auto button = [&](Qt::ArrowType arrow, const QString& name, int direction) {
    auto* b = new QToolButton(this);
    b->setArrowType(arrow);
    b->setAutoRaise(true);
    b->setToolTip(name);
    b->setAccessibleName(name);
    connect(b, &QToolButton::clicked, this, [this, direction] { emit stepped(direction); });
    line->addWidget(b);
  };
  button(Qt::UpArrow, tr("Previous match (Shift+Enter)"), -1);
  button(Qt::DownArrow, tr("Next match (Enter)"), 1);
  auto* close = new QToolButton(this);
  close->setIcon(style()->standardIcon(QStyle::SP_DockWidgetCloseButton));
  close->setAutoRaise(true);
  close->setToolTip(tr("Close (Escape)"));
  close->setAccessibleName(tr("Close find bar"));
  line->addWidget(close);
  connect(close, &QToolButton::clicked, this, &FindBar::closed);
  connect(edit_, &QLineEdit::textChanged, this, &FindBar::searched);
}

void FindBar::open() {
  show();
  edit_->setFocus(Qt::ShortcutFocusReason);
  edit_->selectAll();
}

void FindBar::setText(const QString& text) {
  const QSignalBlocker quiet(edit_);
  if (edit_->text() != text) edit_->setText(text);
}

QString FindBar::text() const { return edit_->text(); }

void FindBar::setCount(const QString& text, bool good) {
  count_->setText(text);
  QPalette colours = palette();
  if (!good) colours.setColor(QPalette::WindowText, currentTheme().error);
  count_->setPalette(colours);
}

bool FindBar::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::KeyPress) {
    const auto* key = static_cast<QKeyEvent*>(event);
    if (key->key() == Qt::Key_Return || key->key() == Qt::Key_Enter)
      return emit stepped(key->modifiers() & Qt::ShiftModifier ? -1 : 1), true;
    if (key->key() == Qt::Key_Down || key->key() == Qt::Key_Up) return emit stepped(key->key() == Qt::Key_Up ? -1 : 1), true;
    if (key->key() == Qt::Key_Escape) return emit closed(), true;
  }
  return QWidget::eventFilter(watched, event);
}

}  // namespace pw::gui
