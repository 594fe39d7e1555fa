#include "app/gui/common/theme.h"

#include <QApplication>
#include <QPainter>
#include <QProxyStyle>
#include <QStyleOption>
#include <QStyleOptionComboBox>
#include <algorithm>
#include <cmath>

namespace pw::gui {
namespace {

// Okabe and Ito, "Color Universal Design", 2008.
constexpr QRgb kOrange = 0xffe69f00, kSky = 0xff56b4e9, kGreen = 0xff009e73, kYellow = 0xfff0e442, kBlue = 0xff0072b2,
               kVermillion = 0xffd55e00, kPurple = 0xffcc79a7;

Theme makeTheme(bool dark) {
  Theme t;
  t.dark = dark;
  t.background = dark ? QColor(0x1b, 0x1e, 0x23) : QColor(0xff, 0xff, 0xff);
  t.alternate = dark ? QColor(0x22, 0x26, 0x2c) : QColor(0xf5, 0xf6, 0xf8);
  t.text = dark ? QColor(0xe6, 0xe8, 0xeb) : QColor(0x1c, 0x1f, 0x23);
  t.faintText = dark ? QColor(0x9a, 0xa2, 0xad) : QColor(0x5f, 0x67, 0x72);
  t.grid = dark ? QColor(0x36, 0x3b, 0x43) : QColor(0xdd, 0xe0, 0xe5);
  t.accent = dark ? QColor(0x4f, 0xa8, 0xe0) : QColor(0x00, 0x6a, 0xb0);
  t.focus = dark ? QColor(0xff, 0xd1, 0x66) : QColor(0xb3, 0x4a, 0x00);
  t.outline = dark ? QColor(0x7d, 0x86, 0x93) : QColor(0x82, 0x89, 0x93);
  t.bubble = dark ? QColor(0x2a, 0x2e, 0x35) : QColor(0xee, 0xef, 0xf2);
  t.bubbleHatch = dark ? QColor(0x42, 0x48, 0x52) : QColor(0xd0, 0xd4, 0xda);
  t.slower = QColor(kVermillion);
  t.faster = dark ? QColor(kSky) : QColor(kBlue);
  t.warning = dark ? QColor(kOrange) : QColor(0x9a, 0x5b, 0x00);
  t.error = dark ? QColor(0xff, 0x7b, 0x63) : QColor(0xb3, 0x26, 0x1e);
  return t;
}

QPalette paletteOf(const Theme& t) {
  QPalette p;
  const QColor window = t.dark ? QColor(0x25, 0x29, 0x30) : QColor(0xf0, 0xf1, 0xf4);
  const QColor button = t.dark ? QColor(0x31, 0x36, 0x3f) : QColor(0xf7, 0xf8, 0xfa);
  p.setColor(QPalette::Window, window);
  p.setColor(QPalette::WindowText, t.text);
  p.setColor(QPalette::Base, t.background);
  p.setColor(QPalette::AlternateBase, t.alternate);
  p.setColor(QPalette::Text, t.text);
  p.setColor(QPalette::PlaceholderText, t.faintText);
  p.setColor(QPalette::Button, button);
  p.setColor(QPalette::ButtonText, t.text);
  p.setColor(QPalette::BrightText, Qt::white);
  p.setColor(QPalette::ToolTipBase, t.dark ? QColor(0x31, 0x36, 0x3f) : QColor(0xff, 0xff, 0xff));
  p.setColor(QPalette::ToolTipText, t.text);
  p.setColor(QPalette::Highlight, t.accent);
  p.setColor(QPalette::HighlightedText, textOn(t.accent));
  p.setColor(QPalette::Link, t.accent);
  p.setColor(QPalette::Light, window.lighter(t.dark ? 130 : 108));
  p.setColor(QPalette::Midlight, window.lighter(t.dark ? 115 : 104));
  p.setColor(QPalette::Mid, window.darker(t.dark ? 115 : 120));
  p.setColor(QPalette::Dark, window.darker(t.dark ? 135 : 150));
  p.setColor(QPalette::Shadow, QColor(0, 0, 0, 120));
  for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText}) p.setColor(QPalette::Disabled, role, t.faintText);
  p.setColor(QPalette::Disabled, QPalette::Highlight, t.grid);
  p.setColor(QPalette::Disabled, QPalette::Base, window);  // a field that takes no text does not look as one that does
  return p;
}

/// Fusion's outlines are the window's colour made darker, which on a dark window can hardly be seen.
class OutlinedStyle : public QProxyStyle {
 public:
  OutlinedStyle() : QProxyStyle(QStringLiteral("Fusion")) {}
  void drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter, const QWidget* widget) const override {
    QProxyStyle::drawPrimitive(element, option, painter, widget);
    if (element == PE_FrameLineEdit) drawOutline(*painter, *option, option->rect, 2);
    if (element == PE_IndicatorCheckBox) drawOutline(*painter, *option, option->rect, 0);
  }
  void drawComplexControl(ComplexControl control, const QStyleOptionComplex* option, QPainter* painter,
                          const QWidget* widget) const override {
    QProxyStyle::drawComplexControl(control, option, painter, widget);
    const auto* spin = qstyleoption_cast<const QStyleOptionSpinBox*>(option);
    if (control == CC_SpinBox && spin != nullptr && spin->frame) drawOutline(*painter, *option, option->rect.adjusted(0, 1, 0, -1), 2);
  }
  /// The text of a box that is too narrow for it ends in an ellipsis.
  void drawControl(ControlElement element, const QStyleOption* option, QPainter* painter, const QWidget* widget) const override {
    const auto* box = qstyleoption_cast<const QStyleOptionComboBox*>(option);
    if (element != CE_ComboBoxLabel || box == nullptr) {
      QProxyStyle::drawControl(element, option, painter, widget);
      return;
    }
    constexpr int kMargin = 2;  ///< of Fusion's text, on the right
    QStyleOptionComboBox shown = *box;
    const int icon = box->currentIcon.isNull() ? 0 : box->iconSize.width() + 4;
    const int width = subControlRect(CC_ComboBox, box, SC_ComboBoxEditField, widget).width() - icon - kMargin;
    shown.currentText = box->fontMetrics.elidedText(box->currentText, Qt::ElideRight, width);
    QProxyStyle::drawControl(element, &shown, painter, widget);
  }

 private:
  /// Over Fusion's, whose corners are of this radius; where the keyboard is, Fusion's own says so.
  static void drawOutline(QPainter& painter, const QStyleOption& option, const QRect& rect, int radius) {
    if ((option.state & State_HasFocus) != 0) return;
    const Theme& colours = currentTheme();
    painter.save();
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen((option.state & State_Enabled) != 0 ? colours.outline : colours.grid);
    painter.setBrush(Qt::NoBrush);
    painter.drawRoundedRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius);
    painter.restore();
  }
};

}  // namespace

const Theme& theme(bool dark) {
  static const Theme light = makeTheme(false), night = makeTheme(true);
  return dark ? night : light;
}

const Theme& currentTheme() { return theme(QApplication::palette().color(QPalette::Window).lightness() < 128); }

/// The style stays: widgets that get another one forget what their layout was fitted to.
void applyTheme(bool dark) {
  if (dynamic_cast<const OutlinedStyle*>(QApplication::style()) == nullptr) QApplication::setStyle(new OutlinedStyle);
  QApplication::setPalette(paletteOf(theme(dark)));
}

QColor kindColour(SpanKind kind, const Theme& theme) {
  switch (kind) {
    case SpanKind::Forward: return QColor(kSky);
    case SpanKind::Backward: return theme.dark ? QColor(0x1c, 0x70, 0xb4) : QColor(kBlue);
    case SpanKind::BackwardInput: return QColor(kGreen);
    case SpanKind::BackwardWeight: return QColor(kOrange);
    case SpanKind::SendForward: return QColor(kPurple);
    case SpanKind::SendBackward: return QColor(kPurple).darker(130);
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return theme.bubble;
    case SpanKind::ReduceGrad: return theme.dark ? QColor(0xb0, 0xa8, 0x30) : QColor(kYellow).darker(115);
    case SpanKind::Optimizer: return QColor(kYellow);
    case SpanKind::Load:
    case SpanKind::Store: return theme.faintText;
  }
  return theme.faintText;
}

QColor stageColour(Stage stage, const Theme& theme) {
  // Hue walks by the golden angle, so that neighbours differ; lightness alternates, so that they differ without hue too.
  const int index = std::max(0, stage.value);
  const int hue = (205 + index * 137) % 360;
  const int lightness = (theme.dark ? 135 : 150) + (index % 2 == 0 ? 0 : theme.dark ? 40 : -45);
  return QColor::fromHsl(hue, 150, lightness);
}

QColor microbatchColour(Microbatch microbatch, const Theme& theme) { return stageColour(Stage(microbatch.value + 3), theme); }

Qt::BrushStyle kindPattern(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward:
    case SpanKind::SendForward:
    case SpanKind::Optimizer:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return Qt::SolidPattern;
    case SpanKind::Backward:
    case SpanKind::SendBackward: return Qt::Dense6Pattern;
    case SpanKind::BackwardInput: return Qt::BDiagPattern;
    case SpanKind::BackwardWeight: return Qt::FDiagPattern;
    case SpanKind::ReduceGrad: return Qt::DiagCrossPattern;
    case SpanKind::Load:
    case SpanKind::Store: return Qt::HorPattern;
  }
  return Qt::SolidPattern;
}

QColor textOn(const QColor& fill) {
  // Relative luminance of WCAG 2; black and white are equally readable at 0.179.
  const auto linear = [](double c) { return c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4); };
  const double luminance = 0.2126 * linear(fill.redF()) + 0.7152 * linear(fill.greenF()) + 0.0722 * linear(fill.blueF());
  return luminance > 0.179 ? QColor(Qt::black) : QColor(Qt::white);
}

QColor faded(QColor colour, double alpha) {
  colour.setAlphaF(static_cast<float>(alpha));
  return colour;
}

}  // namespace pw::gui
