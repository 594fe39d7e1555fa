#include "app/gui/model/module_finder.h"

#include <QHBoxLayout>
#include <QKeyEvent>
#include <algorithm>

#include "app/gui/model/tree_view.h"

namespace pw::gui {

ModuleFinder::ModuleFinder(const TreeModel& model, TreeView& view, QWidget* parent) : QWidget(parent), model_(model), view_(view) {
  text_.setPlaceholderText(tr("Find a module"));
  text_.setClearButtonEnabled(true);
  text_.setAccessibleName(tr("Find a module"));
  text_.setAccessibleDescription(tr("Enter goes to the next match, Shift+Enter to the previous one."));
  text_.installEventFilter(this);
  place_.setAccessibleName(tr("Modules found"));
  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(&text_, 1);
  layout->addWidget(&place_);
  setFocusProxy(&text_);
  connect(&text_, &QLineEdit::textChanged, this, &ModuleFinder::refresh);
}

void ModuleFinder::edit() {
  text_.setFocus(Qt::ShortcutFocusReason);
  text_.selectAll();
}

void ModuleFinder::refresh() {
  matches_ = findRows(model_.tree(), text_.text().trimmed().toStdString());
  view_.rows().setFound({matches_.begin(), matches_.end()});
  view_.viewport()->update();
  const auto next = std::lower_bound(matches_.begin(), matches_.end(), view_.currentRow());
  match_ = next == matches_.end() ? 0 : static_cast<std::size_t>(next - matches_.begin());
  show(0);
}

void ModuleFinder::show(int direction) {
  place_.setText(text_.text().trimmed().isEmpty() ? QString() : matches_.empty() ? tr("none") : QString());
  if (matches_.empty()) return;
  const auto size = static_cast<int>(matches_.size());
  match_ = static_cast<std::size_t>((static_cast<int>(match_) + direction + size) % size);
  view_.goTo(matches_[match_]);
  place_.setText(tr("%1 of %2").arg(match_ + 1).arg(size));
}

bool ModuleFinder::takeKey(int key, bool shift) {
  if (key == Qt::Key_Return || key == Qt::Key_Enter) {
    show(shift ? -1 : 1);
  } else if (key == Qt::Key_Escape) {
    text_.clear();
    view_.setFocus();
  } else if (key == Qt::Key_Down) {
    view_.setFocus();
  } else {
    return false;
  }
  return true;
}

bool ModuleFinder::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::KeyPress && watched == &text_) {
    const auto& key = static_cast<const QKeyEvent&>(*event);
    if (takeKey(key.key(), key.modifiers().testFlag(Qt::ShiftModifier))) return true;
  }
  return QWidget::eventFilter(watched, event);
}

}  // namespace pw::gui
