#include "app/gui/timeline/edit_bar.h"

#include <QAction>
#include <QEvent>
#include <QLabel>
#include <QToolBar>
#include <QVBoxLayout>

#include "app/gui/common/theme.h"

namespace pw::gui {

EditBar::EditBar(const QList<QAction*>& actions, QWidget* parent) : QWidget(parent) {
  setAccessibleName(tr("Edit the schedule by hand"));
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(6, 4, 6, 4);
  column->setSpacing(4);
  auto* row = new QToolBar;  // what has no place in it is behind its last button
  row->setToolButtonStyle(Qt::ToolButtonTextOnly);
  row->addActions(actions);
  for (QAction* action : actions) {
    QWidget* button = row->widgetForAction(action);
    button->setFocusPolicy(Qt::TabFocus);
    button->setAccessibleName(action->text());
    const QString key = action->shortcut().toString(QKeySequence::NativeText);
    button->setToolTip(key.isEmpty() ? action->statusTip() : QStringLiteral("%1 (%2)").arg(action->statusTip(), key));
  }
  column->addWidget(row);
  message_ = new QLabel;
  message_->setWordWrap(true);
  message_->setAlignment(Qt::AlignLeft | Qt::AlignTop);
  message_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  message_->setAccessibleName(tr("What the edit changed"));
  column->addWidget(message_);
  reserveLines();
  setMessage({}, false);
}

/// Rows must not move under a block that is dragged, whose messages are of one line or two.
void EditBar::reserveLines() {
  constexpr int kLines = 2;
  message_->setMinimumHeight(kLines * message_->fontMetrics().lineSpacing());
}

void EditBar::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() == QEvent::FontChange || event->type() == QEvent::ApplicationFontChange) reserveLines();
}

void EditBar::setMessage(const QString& text, bool isRefusal) {
  const QString shown =
      text.isEmpty() ? tr("Drag a block along its row, or to another rank; Ctrl and Shift select several. Undo takes an edit back.") : text;
  message_->setText(shown);
  QPalette colours = palette();
  if (isRefusal) colours.setColor(QPalette::WindowText, currentTheme().error);
  message_->setPalette(colours);
}

}  // namespace pw::gui
