#pragma once

#include <QString>
#include <QStringList>
#include <functional>
#include <string>

namespace pw::gui {

/// Where this process keeps the work it has not saved, so that a crash does not lose it: `<data folder>/autosave/<process id>.pwproj`.
[[nodiscard]] QString autosavePath();
/// What processes that are gone left behind, newest first.
[[nodiscard]] QStringList leftBehind();

}  // namespace pw::gui
