#include "app/gui/common/command_list.h"

#include <QAction>
#include <QKeyEvent>
#include <QMenu>
#include <QWidget>

namespace pw::gui {

void CommandList::beginGroup(const QString& name) { groups_.push_back({name, {}}); }

QList<QAction*> CommandList::group(const QString& name) const {
  for (const Group& group : groups_) {
    if (group.name == name) return group.actions;
  }
  return {};
}

QAction* CommandList::add(const QString& text, const QList<QKeySequence>& keys, const std::function<void()>& act) {
  auto* action = new QAction(text, &owner_);
  action->setShortcuts(keys);
  action->setShortcutContext(Qt::WidgetShortcut);  // shown in menus; the widget triggers, so that fields within it keep their own keys
  QObject::connect(action, &QAction::triggered, &owner_, act);
  owner_.addAction(action);
  groups_.back().actions.push_back(action);
  return action;
}

QAction* CommandList::addToggle(const QString& text, const QKeySequence& key, const std::function<bool()>& isOn,
                                const std::function<void(bool)>& act) {
  QAction* action = add(text, {key}, [this, isOn, act] {
    act(!isOn());
    updateToggles();
  });
  action->setCheckable(true);
  toggles_.emplace_back(action, isOn);
  return action;
}

void CommandList::updateToggles() {
  for (const auto& [action, isOn] : toggles_) action->setChecked(isOn());
}

QAction* CommandList::commandOf(const QKeyEvent& event) const {
  const auto modifiers = event.modifiers() & ~(Qt::KeypadModifier | Qt::GroupSwitchModifier);
  const QKeySequence pressed(QKeyCombination(modifiers, static_cast<Qt::Key>(event.key())));
  QKeySequence sign;
  if (const QString text = event.text(); text.size() == 1 && QStringLiteral("[]/.,+-").contains(text))
    sign = QKeySequence(text[0].unicode());
  for (const Group& group : groups_) {
    for (QAction* action : group.actions) {
      const auto keys = action->shortcuts();
      if (keys.contains(pressed) || (!sign.isEmpty() && keys.contains(sign))) return action;
    }
  }
  return nullptr;
}

void CommandList::openMenu(const QPoint& global) {
  updateToggles();
  auto* menu = new QMenu(&owner_);
  menu->setAttribute(Qt::WA_DeleteOnClose);
  for (const Group& group : groups_) {
    menu->addActions(group.actions);
    menu->addSeparator();
  }
  menu->popup(global);
}

}  // namespace pw::gui
