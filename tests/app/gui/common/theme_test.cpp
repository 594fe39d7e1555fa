#include "app/gui/common/theme.h"

#include <gtest/gtest.h>

#include <QComboBox>
#include <QLineEdit>
#include <QTest>
#include <algorithm>

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

TEST(Theme, ABoxThatIsTooNarrowForItsTextEndsItInAnEllipsis) {
  applyTheme(false);
  const auto picture = [](const QString& text, int width) {
    QComboBox box;
    box.addItem(text);
    box.resize(width, 30);
    return box.grab().toImage();
  };
  const QString text = QStringLiteral("interleaved-1f1b (as in the trace)");
  QStringList ends;  // of this text, with an ellipsis
  for (int length = 1; length < text.size(); ++length)
    ends << text.left(length).trimmed() + QChar(0x2026) << text.left(length) + QChar(0x2026);
  const auto looksLike = [&](int width) {
    return std::ranges::any_of(ends, [&](const QString& end) { return picture(end, width) == picture(text, width); });
  };
  EXPECT_TRUE(looksLike(150));
  EXPECT_FALSE(looksLike(400)) << "there is room for all of it";
}

}  // namespace
}  // namespace pw::gui
