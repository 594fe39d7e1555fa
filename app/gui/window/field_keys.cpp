#include "app/gui/window/field_keys.h"

#include <QAction>
#include <QApplication>
#include <QComboBox>
#include <QKeyEvent>
#include <QLineEdit>
#include <QMainWindow>
#include <QSpinBox>
#include <algorithm>
#include <array>

#include "app/gui/editor/rank_text.h"

namespace pw::gui {
namespace {

/// The text that a widget edits; null: none.
QLineEdit* fieldOf(QObject* object) {
  if (auto* field = qobject_cast<QLineEdit*>(object)) return field;
  if (auto* box = qobject_cast<QComboBox*>(object)) return box->lineEdit();
  return qobject_cast<QAbstractSpinBox*>(object) != nullptr ? object->findChild<QLineEdit*>() : nullptr;
}

/// Something is typed in it that is not taken yet, or was taken back there: a second Ctrl+Z is not meant for the plan, out of sight.
bool isModified(const QLineEdit& field) { return field.isModified() || field.isRedoAvailable(); }

/// Whether a field has its own use for a key that is a shortcut of the window.
bool keeps(bool isModified, const QKeyEvent& key) {
  constexpr std::array kClipboard{QKeySequence::Copy, QKeySequence::Cut, QKeySequence::Paste, QKeySequence::SelectAll};
  if (std::ranges::any_of(kClipboard, [&](QKeySequence::StandardKey standard) { return key.matches(standard); })) return true;
  return isModified && (key.matches(QKeySequence::Undo) || key.matches(QKeySequence::Redo));
}

}  // namespace

FieldKeys::FieldKeys(QMainWindow& window) : QObject(&window), window_(window) { qApp->installEventFilter(this); }

bool FieldKeys::eventFilter(QObject* object, QEvent* event) {
  if (event->type() != QEvent::ShortcutOverride) return false;
  const auto* widget = qobject_cast<QWidget*>(object);
  if (widget == nullptr || widget->window() != &window_) return false;
  const QLineEdit* field = fieldOf(object);
  const auto* text = qobject_cast<RankText*>(object);
  auto& key = static_cast<QKeyEvent&>(*event);
  if ((field == nullptr && text == nullptr) || keeps(text != nullptr ? text->canRevert() : isModified(*field), key)) return false;
  const QKeySequence pressed(key.keyCombination());
  const auto actions = window_.findChildren<QAction*>();
  const bool isShortcut = std::ranges::any_of(actions, [&](const QAction* action) {
    return action->isEnabled() && action->shortcutContext() != Qt::WidgetShortcut && action->shortcuts().contains(pressed);
  });
  const bool types = key.modifiers() == Qt::NoModifier || key.modifiers() == Qt::ShiftModifier;
  if (!isShortcut || types) return false;
  event->ignore();  // not the field's: it is a shortcut
  return true;
}

}  // namespace pw::gui
