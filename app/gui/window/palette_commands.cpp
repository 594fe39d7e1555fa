#include "app/gui/window/palette_commands.h"

#include <QAction>
#include <string_view>

#include "app/gui/common/format.h"
#include "app/gui/document/document.h"
#include "app/gui/plan/schedule_box.h"
#include "schedules/generate.h"
#include "simulator/order/find.h"
#include "simulator/plan/planner.h"

namespace pw::gui {
namespace {

Command commandOf(QAction* action, const QString& text) {
  return {text, action->shortcut().toString(QKeySequence::NativeText), [action] { action->trigger(); }};
}

Command scheduleCommand(std::string_view name, Document& document) {
  return {translated("Schedule: %1").arg(textOf(name)), {}, [name, &document] { chooseSchedule(document, name); }};
}

}  // namespace

std::vector<Command> paletteCommands(const std::vector<QAction*>& menus, const QList<QAction*>& timeline, Document& document) {
  std::vector<Command> all;
  for (QAction* action : menus) {
    if (action->isEnabled()) all.push_back(commandOf(action, action->text().remove(QLatin1Char('&')).remove(QStringLiteral("…"))));
  }
  for (QAction* action : timeline) {
    if (!action->isEnabled() || action->text().isEmpty()) continue;
    all.push_back(commandOf(action, translated("Timeline: %1").arg(action->text().remove(QLatin1Char('&')))));
  }
  if (!document.graph()) return all;
  for (const MadeSchedule& made : kMadeSchedules) all.push_back(scheduleCommand(made.name, document));
  for (const Generator& family : generators()) all.push_back(scheduleCommand(family.name, document));
  return all;
}

}  // namespace pw::gui
