#pragma once

#include <QByteArray>
#include <QJsonObject>

namespace pw::gui {

/// The JSON object of a text that a child process, a project or an older app wrote, read through `readJson` and its limits; empty for
/// anything else.
[[nodiscard]] QJsonObject readObject(const QByteArray& text);

}  // namespace pw::gui
