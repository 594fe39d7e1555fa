#include "app/gui/common/theme.h"

#include <gtest/gtest.h>

#include <QLineEdit>
#include <QTest>

namespace pw::gui {
namespace {

TEST(Theme, AFieldThatCannotBeEditedDoesNotLookAsOneThatCan) {
  for (const bool dark : {false, true}) {
    applyTheme(dark);
    QLineEdit field;
    field.resize(200, 40);
    const auto middle = [&] { return field.grab().toImage().pixel(150, 20); };
    const QRgb enabled = middle();
    field.setEnabled(false);
    EXPECT_NE(middle(), enabled) << (dark ? "dark" : "light");
    EXPECT_EQ(QColor(middle()), field.palette().color(QPalette::Window)) << "as what is around it";
  }
  applyTheme(false);
}

}  // namespace
}  // namespace pw::gui
