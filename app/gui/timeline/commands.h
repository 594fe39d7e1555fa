#pragma once

#include "app/gui/common/command_list.h"
#include "app/gui/timeline/mouse.h"
#include "app/gui/timeline/widget.h"

namespace pw::gui {

/// The parts of a timeline that its commands act on.
struct CommandTargets {
  TimelineWidget& widget;
  const Scene& scene;
  Place& place;
  Selection& selection;
  Editing& editing;
  Mouse& mouse;
};

/// Groups of the commands that a window has in its menus too.
inline const QString kRowCommands = QStringLiteral("rows"), kOverviewCommands = QStringLiteral("overview");

/// Everything that keys and the context menu of a timeline do. The parts outlive the last use of a command.
void addCommands(CommandList& commands, const CommandTargets& of);

}  // namespace pw::gui
