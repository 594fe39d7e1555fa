#include "app/gui/window/appearance.h"

#include <QApplication>
#include <QFont>
#include <QSettings>
#include <algorithm>

#include "app/gui/common/theme.h"

namespace pw::gui {

bool chooseTheme(const QString& name) {
  QSettings().setValue(QStringLiteral("theme"), name);
  if (name == QStringLiteral("system")) return false;
  applyTheme(name == QStringLiteral("dark"));
  return true;
}

void scaleFont(double factor) {
  QFont font = QApplication::font();
  font.setPointSizeF(std::clamp(font.pointSizeF() * factor, 6.0, 32.0));
  QApplication::setFont(font);
  QSettings().setValue(QStringLiteral("font size"), font.pointSizeF());
}

}  // namespace pw::gui
