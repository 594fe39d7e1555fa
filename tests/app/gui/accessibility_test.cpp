// What a screen reader and a keyboard need: every control says what it is, and the keyboard reaches it.

#include <QAbstractButton>
#include <QAbstractItemView>
#include <QAccessible>
#include <QCheckBox>
#include <QComboBox>
#include <QLineEdit>
#include <QPushButton>
#include <QSpinBox>
#include <QStandardItemModel>
#include <QStyleOption>
#include <QVBoxLayout>
#include <cmath>
#include <map>

#include "app/gui/window/exporting.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

bool isControl(const QWidget* w) {
  return qobject_cast<const QAbstractButton*>(w) || qobject_cast<const QComboBox*>(w) || qobject_cast<const QLineEdit*>(w) ||
         qobject_cast<const QAbstractItemView*>(w) || qobject_cast<const TimelineWidget*>(w) || qobject_cast<const SplitHandle*>(w);
}

TEST_F(WindowFixture, NamesEveryControlForScreenReaders) {
  open(sample("gpt_small.pt2"));
  int controls = 0;
  for (QWidget* w : window_->findChildren<QWidget*>()) {
    // Parts of other widgets (a spin box's line edit, a dock's title buttons, scroll buttons of tabs) are named by those.
    if (!isControl(w) || w->inherits("QHeaderView") || w->inherits("QTableCornerButton") || w->inherits("QLineEditIconButton") ||
        w->objectName().startsWith("qt_") || qobject_cast<QComboBox*>(w->parentWidget()) ||
        w->parentWidget()->inherits("QAbstractSpinBox") || w->parentWidget()->inherits("QTabBar") ||
        w->inherits("QDockWidgetTitleButton") || w->inherits("QComboBoxListView") || w->objectName() == "ScrollLeftButton")
      continue;
    ++controls;
    QAccessibleInterface* face = QAccessible::queryAccessibleInterface(w);
    ASSERT_NE(face, nullptr);
    EXPECT_FALSE(face->text(QAccessible::Name).isEmpty())
        << w->metaObject()->className() << " '" << w->objectName().toStdString() << "' in " << w->parentWidget()->metaObject()->className();
  }
  EXPECT_GT(controls, 30);
}

TEST_F(WindowFixture, ReachesPanelsByTheKeyboard) {
  open(sample("gpt_small.pt2"));
  std::set<QString> reached;
  QWidget* at = window_->focusWidget() ? window_->focusWidget() : static_cast<QWidget*>(window_.get());
  for (int i = 0; i < 400; ++i) {
    at = at->nextInFocusChain();
    if ((at->focusPolicy() & Qt::TabFocus) == 0 || !at->isVisible() || !at->isEnabled()) continue;
    for (QWidget* w = at; w != nullptr; w = w->parentWidget()) reached.insert(w->accessibleName());
  }
  for (const char* name : {"Plan", "Schedule"}) EXPECT_TRUE(reached.count(name)) << name;
}

/// Contrast of WCAG 2: (lighter + 0.05) / (darker + 0.05).
double contrast(const QColor& a, const QColor& b) {
  const auto luminance = [](const QColor& c) {
    const auto linear = [](double v) { return v <= 0.03928 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4); };
    return 0.2126 * linear(c.redF()) + 0.7152 * linear(c.greenF()) + 0.0722 * linear(c.blueF());
  };
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

TEST(Theme, KeepsTextReadableInLightAndDark) {
  for (const bool dark : {false, true}) {
    const Theme& t = theme(dark);
    EXPECT_GE(contrast(t.text, t.background), 7);
    EXPECT_GE(contrast(t.faintText, t.background), 4.5);
    EXPECT_GE(contrast(t.error, t.background), 4.5);
    EXPECT_GE(contrast(t.focus, t.background), 3) << "where the focus is";
    for (const SpanKind kind :
         {SpanKind::Forward, SpanKind::Backward, SpanKind::BackwardInput, SpanKind::BackwardWeight, SpanKind::Optimizer}) {
      EXPECT_GE(contrast(kindColour(kind, t), textOn(kindColour(kind, t))), 4.5) << nameOf(kind);
    }
    for (int stage = 0; stage < 64; ++stage) {
      const QColor colour = stageColour(Stage(stage), t);
      EXPECT_GE(contrast(colour, textOn(colour)), 4.5) << stage;
    }
  }
}

TEST(Theme, ShowsWhereFieldsAndBoxesToTickAre) {
  for (const bool dark : {false, true}) {
    applyTheme(dark);
    QWidget window;
    QVBoxLayout layout(&window);
    QCheckBox box;
    QLineEdit line;
    QSpinBox spin;
    for (QWidget* widget : std::initializer_list<QWidget*>{&box, &line, &spin}) layout.addWidget(widget);
    window.resize(200, 120);
    const QImage image = window.grab().toImage();
    QStyleOptionButton option;
    option.initFrom(&box);
    const QRect indicator = box.style()->subElementRect(QStyle::SE_CheckBoxIndicator, &option, &box);
    const QColor beside = image.pixelColor(2, 2);
    const auto edgeAt = [&](const QWidget& widget, const QPoint& at) { return image.pixelColor(widget.mapTo(&window, at)); };
    EXPECT_GE(contrast(edgeAt(box, {indicator.left(), indicator.center().y()}), beside), 3) << dark;
    EXPECT_GE(contrast(edgeAt(line, {0, line.height() / 2}), beside), 3) << dark;
    EXPECT_GE(contrast(edgeAt(spin, {0, spin.height() / 2}), beside), 3) << dark;
  }
  applyTheme(false);
}

// Of another theme only colours differ, also where the plan is scrolled.
TEST_F(WindowFixture, AThemeLeavesEveryWidgetWhereItIs) {
  window_->resize(1300, 760);
  open(sample("gpt_small.pt2"));
  const auto places = [this] {
    QApplication::processEvents();
    std::map<const QWidget*, QRect> all;
    for (const QWidget* widget : window_->findChildren<QWidget*>()) {
      if (widget->isVisible()) all[widget] = QRect(widget->mapTo(window_.get(), QPoint(0, 0)), widget->size());
    }
    return all;
  };
  const auto light = places();
  applyTheme(true);
  EXPECT_EQ(places(), light);
  applyTheme(false);
}

TEST_F(WindowFixture, ButtonsThatShowWhileThereIsWorkOrALongMessageHaveALetterForTheKeyboard) {
  open(sample("gpt_small.pt2"));
  std::map<QString, int> seen;
  for (const auto* button : window_->findChildren<QPushButton*>()) {
    const QString plain = button->text().remove(QLatin1Char('&'));
    if (plain != QLatin1String("Cancel") && plain != QStringLiteral("Full text…")) continue;
    EXPECT_FALSE(QKeySequence::mnemonic(button->text()).isEmpty()) << plain.toStdString() << ' ' << button->accessibleName().toStdString();
    ++seen[plain];
  }
  EXPECT_GE(seen[QStringLiteral("Cancel")], 3) << "of the status bar, Runs and Explain";
  EXPECT_EQ(seen[QStringLiteral("Full text…")], 1);
}

TEST(Tables, AreExportedAsCsv) {
  QStandardItemModel model(2, 2);
  model.setHorizontalHeaderLabels({"a", "b, c"});
  model.setItem(0, 0, new QStandardItem("x"));
  model.setItem(0, 1, new QStandardItem("say \"y\""));
  model.item(0, 0)->appendRow({new QStandardItem("child"), new QStandardItem("1")});
  model.setItem(1, 0, new QStandardItem("z"));
  EXPECT_EQ(tableCsv(model), "a,\"b, c\"\r\nx,\"say \"\"y\"\"\"\r\nchild,1\r\nz,\r\n");
}

}  // namespace
}  // namespace pw::gui
