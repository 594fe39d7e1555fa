#pragma once

#include <QString>

namespace pw::gui {

/// Keeps this choice, `light`, `dark` or `system`, for later starts, and uses it. False: that of the system is used from the next start
/// only.
bool chooseTheme(const QString& name);

/// So many times as large a font in all windows, from 6 to 32 points, now and in later starts.
void scaleFont(double factor);

}  // namespace pw::gui
