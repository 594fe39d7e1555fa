#pragma once

#include <QList>
#include <vector>

#include "app/gui/window/command_palette.h"

class QAction;

namespace pw::gui {

class Document;

/// What the command palette offers: the enabled commands of the menus and of the timeline, and, for a model, each schedule by its name.
/// They refer to the actions and the document.
[[nodiscard]] std::vector<Command> paletteCommands(const std::vector<QAction*>& menus, const QList<QAction*>& timeline, Document& document);

}  // namespace pw::gui
