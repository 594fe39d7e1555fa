#include "app/gui/window/command_palette.h"

#include <QKeyEvent>
#include <QLineEdit>
#include <QListWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>
#include <vector>

namespace pw::gui {

int fit(const QString& typed, const QString& text) {
  constexpr int kNone = -1;
  const auto size = static_cast<std::size_t>(text.size());
  std::vector<int> best;  // by place of the last character so far; none at first
  for (const QChar c : typed) {
    if (c.isSpace()) continue;
    const bool isFirst = best.empty();
    std::vector<int> next(size, kNone);
    int before = isFirst ? 0 : kNone;  // the best of all places further to the left
    for (std::size_t i = 0; i < size; ++i) {
      const auto at = static_cast<qsizetype>(i);
      const int adjoining = isFirst || i == 0 || best[i - 1] == kNone ? kNone : best[i - 1] + 3;
      if (const int from = std::max(before, adjoining); from != kNone && text[at].toCaseFolded() == c.toCaseFolded())
        next[i] = from + 1 + (at == 0 || !text[at - 1].isLetterOrNumber() ? 2 : 0);
      if (!isFirst) before = std::max(before, best[i]);
    }
    best = std::move(next);
    if (std::ranges::all_of(best, [](int score) { return score == kNone; })) return -1;
  }
  return best.empty() ? 0 : std::ranges::max(best);
}

CommandPalette::CommandPalette(std::vector<Command> commands, QWidget* parent)
    : QDialog(parent, Qt::Dialog | Qt::FramelessWindowHint), commands_(std::move(commands)) {
  setAccessibleName(tr("Command palette"));
  typed_ = new QLineEdit;
  typed_->setPlaceholderText(tr("Type a command or a schedule"));
  typed_->setAccessibleName(tr("Command"));
  typed_->installEventFilter(this);
  list_ = new QListWidget;
  list_->setAccessibleName(tr("Commands"));
  list_->setFocusPolicy(Qt::NoFocus);
  list_->setUniformItemSizes(true);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(8, 8, 8, 8);
  column->addWidget(typed_);
  column->addWidget(list_);
  connect(typed_, &QLineEdit::textChanged, this, &CommandPalette::filter);
  connect(list_, &QListWidget::itemClicked, this, &CommandPalette::choose);
  filter({});
  const QSize size(std::min(560, parent->width() - 40), std::min(24 * fontMetrics().height(), parent->height() - 80));
  resize(size);
  move(parent->mapToGlobal(QPoint((parent->width() - size.width()) / 2, 60)));
}

/// Without a window manager nobody gives the focus back.
void CommandPalette::done(int result) {
  const bool hadFocus = isActiveWindow();
  QDialog::done(result);
  if (hadFocus) parentWidget()->activateWindow();
}

void CommandPalette::showEvent(QShowEvent* event) {
  QDialog::showEvent(event);
  activateWindow();
  typed_->setFocus();
}

/// A click elsewhere closes it.
void CommandPalette::changeEvent(QEvent* event) {
  QDialog::changeEvent(event);
  if (event->type() == QEvent::ActivationChange && wasActive_ && !isActiveWindow()) reject();
  wasActive_ = wasActive_ || isActiveWindow();
}

void CommandPalette::filter(const QString& typed) {
  std::vector<std::pair<int, std::size_t>> order;
  for (std::size_t i = 0; i < commands_.size(); ++i) {
    const int score = fit(typed, commands_[i].text);
    if (score >= 0) order.push_back({-score, i});
  }
  std::ranges::sort(order);
  list_->clear();
  for (const auto& [score, i] : order) {
    auto* item =
        new QListWidgetItem(commands_[i].key.isEmpty() ? commands_[i].text : commands_[i].text + QStringLiteral("    ") + commands_[i].key);
    item->setData(Qt::UserRole, static_cast<int>(i));
    list_->addItem(item);
  }
  if (order.empty()) {
    auto* none = new QListWidgetItem(tr("No matching command."));
    none->setFlags(Qt::NoItemFlags);
    list_->addItem(none);
  }
  list_->setCurrentRow(0);
}

void CommandPalette::choose() {
  const QListWidgetItem* item = list_->currentItem();
  if (item == nullptr || !item->data(Qt::UserRole).isValid()) return;
  const auto run = commands_[static_cast<std::size_t>(item->data(Qt::UserRole).toInt())].run;
  accept();
  run();
}

bool CommandPalette::eventFilter(QObject* object, QEvent* event) {
  if (event->type() == QEvent::KeyPress) {
    const int key = static_cast<QKeyEvent*>(event)->key();
    const int step = key == Qt::Key_Down ? 1 : key == Qt::Key_Up ? -1 : key == Qt::Key_PageDown ? 10 : key == Qt::Key_PageUp ? -10 : 0;
    if (step != 0) {
      list_->setCurrentRow(std::clamp(list_->currentRow() + step, 0, list_->count() - 1));
      return true;
    }
    if (key == Qt::Key_Return || key == Qt::Key_Enter) {
      choose();
      return true;
    }
  }
  return QDialog::eventFilter(object, event);
}

}  // namespace pw::gui
