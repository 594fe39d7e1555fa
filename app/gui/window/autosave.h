#pragma once

#include <QString>
#include <QStringList>
#include <functional>
#include <string>

namespace pw::gui {

/// Where this process keeps the work it has not saved, so that a crash does not lose it: `<data folder>/autosave/<process id>.pwproj`.
[[nodiscard]] QString autosavePath();
/// Files that processes which no longer run left behind, newest first.
[[nodiscard]] QStringList leftBehind();
/// Describes such a file for the user: `of gpt_small (18:13)`, the model or schedule and when it was last changed.
[[nodiscard]] QString unsavedPlan(const QString& path);

}  // namespace pw::gui
