#pragma once

#include <QString>

namespace pw::gui {

/// Uses this theme, `light`, `dark` or `system`, now and in later starts. False for `system`, which is used from the next start only.
bool chooseTheme(const QString& name);

/// Makes the font of all windows so many times as large, within 6 to 32 points, now and in later starts.
void scaleFont(double factor);

}  // namespace pw::gui
