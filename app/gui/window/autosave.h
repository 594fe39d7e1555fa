#pragma once

#include <QString>
#include <QStringList>
#include <functional>
#include <string>

class QWidget;

namespace pw::gui {

/// Where this process keeps the work it has not saved, so that a crash does not lose it: a project in `<data folder>/autosave` with a name
/// of its own, and beside it a file that this process holds locked as long as it lives.
[[nodiscard]] QString autosavePath();
/// Files that processes which no longer run left behind, newest first: those whose lock nobody holds.
[[nodiscard]] QStringList leftBehind();
/// Removes such a file and its lock.
void forget(const QString& path);
/// Describes such a file for the user: `unsaved plan of gpt_small (18:13)`, the model or schedule and when it was last changed.
[[nodiscard]] QString unsavedPlan(const QString& path);
/// Asks whether such a file is to be restored; false: it may be removed.
[[nodiscard]] bool isToBeRestored(const QString& path, QWidget& window);

}  // namespace pw::gui
