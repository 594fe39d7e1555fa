#pragma once

#include <QString>
#include <QStringList>
#include <cstdint>
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
/// Describes such a file for the user: `unsaved plan of gpt_small (18:13)`, the model or schedule and when it was last changed, with
/// the date unless it was today.
[[nodiscard]] QString unsavedPlan(const QString& path);
/// Asks what to do with such a file. To close the question is to decide later: only who says so discards work.
enum class Recovery : std::uint8_t { Restore, Discard, Later };
[[nodiscard]] Recovery askRecovery(const QString& path, QWidget& window);

}  // namespace pw::gui
