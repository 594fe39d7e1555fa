#include "app/gui/figure/painter.h"

#include <QFontMetricsF>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>

#include "simulator/timeline/figure_looks.h"

namespace pw::gui {
namespace {

constexpr double kUnits = 100;  ///< of a mm in logical coordinates: sizes of fonts are whole numbers of them

QColor colour(std::uint32_t rgb) { return QColor(static_cast<QRgb>(rgb)); }
QRectF rectOf(const FigureBox& box) { return {box.x * kUnits, box.y * kUnits, box.width * kUnits, box.height * kUnits}; }
QPointF pointOf(const FigurePoint& point) { return {point.x * kUnits, point.y * kUnits}; }
QPen penOf(std::uint32_t rgb, double mm) { return {QBrush(colour(rgb)), mm * kUnits, Qt::SolidLine, Qt::FlatCap}; }

class Painting {
 public:
  Painting(QPainter& painter, const Figure& figure) : painter_(painter), figure_(figure), colours_(coloursOf(figure.greyscale)) {}
  void paint();

 private:
  void fill(const FigureBox& box, std::uint32_t rgb) { painter_.fillRect(rectOf(box), colour(rgb)); }
  void frame(const FigureBox& box);
  void hatch(const FigureBox& box, Hatch hatch);
  void block(const FigureBlock& block);
  void curve(const FigureCurve& curve);
  void text(const FigurePoint& at, TextAlign align, double size, bool bold, std::uint32_t rgb, const std::string& words);
  [[nodiscard]] FigureLook look(SpanKind kind) const { return lookOf(kind, figure_.greyscale); }

  QPainter& painter_;
  const Figure& figure_;
  const FigureColours colours_;
};

void Painting::frame(const FigureBox& box) {
  painter_.setPen(penOf(colours_.note, 0.1));
  painter_.setBrush(Qt::NoBrush);
  painter_.drawRect(rectOf(box));
}

void Painting::hatch(const FigureBox& box, Hatch hatch) {
  QVector<QLineF> lines;
  for (const FigureSegment& line : hatchLines(box, hatch)) lines.append({pointOf(line.from), pointOf(line.to)});
  if (lines.isEmpty()) return;
  painter_.setPen(penOf(colours_.hatch, kHatchLine));
  painter_.drawLines(lines);
}

void Painting::block(const FigureBlock& block) {
  const FigureLook look = this->look(block.kind);
  fill(block.box, look.fill);
  hatch(block.box, look.hatch);
  if (block.label.empty()) return;
  if (look.hatch != Hatch::None) fill(plateOf(figure_, block), look.fill);
  text(labelPoint(figure_, block), TextAlign::Middle, labelSize(figure_), false, look.text, block.label);
}

void Painting::curve(const FigureCurve& curve) {
  QPolygonF outline;
  for (const FigurePoint& point : curve.outline) outline.append(pointOf(point));
  painter_.setPen(Qt::NoPen);
  painter_.setBrush(colour(colours_.memory));
  painter_.drawPolygon(outline);
}

void Painting::text(const FigurePoint& at, TextAlign align, double size, bool bold, std::uint32_t rgb, const std::string& words) {
  QFont font(QString::fromStdString(figure_.font));
  font.setStyleHint(figure_.font == "serif" ? QFont::Serif : figure_.font == "monospace" ? QFont::Monospace : QFont::SansSerif);
  font.setHintingPreference(QFont::PreferNoHinting);
  font.setPixelSize(std::max(1, static_cast<int>(std::lround(size * kUnits))));
  if (bold) font.setWeight(QFont::DemiBold);
  const QString line = QString::fromStdString(words);
  const double width = align == TextAlign::Left ? 0 : QFontMetricsF(font, painter_.device()).horizontalAdvance(line);
  painter_.setFont(font);
  painter_.setPen(colour(rgb));
  painter_.drawText(pointOf(at) - QPointF(align == TextAlign::Middle ? width / 2 : width, 0), line);
}

void Painting::paint() {
  painter_.setRenderHints(QPainter::Antialiasing | QPainter::TextAntialiasing);
  fill({0, 0, figure_.width, figure_.height}, colours_.page);
  for (const FigureBox& box : figure_.lanes) fill(box, colours_.lane);
  painter_.setPen(penOf(colours_.line, 0.1));
  for (const FigureSegment& line : figure_.lines) painter_.drawLine(pointOf(line.from), pointOf(line.to));
  for (const FigureCurve& c : figure_.memory) curve(c);
  for (const FigureMerged& merged : figure_.merged) {
    for (const FigureBox& box : merged.boxes) fill(box, look(merged.kind).fill);
  }
  for (const FigureBlock& b : figure_.blocks) block(b);
  if (figure_.greyscale) {
    for (const FigureBox& box : figure_.lanes) frame(box);
  }
  for (const FigureSwatch& swatch : figure_.swatches) {
    fill(swatch.box, swatch.kind ? look(*swatch.kind).fill : colours_.lane);
    if (swatch.kind) hatch(swatch.box, look(*swatch.kind).hatch);
    if (figure_.greyscale) frame(swatch.box);
  }
  for (const FigureText& t : figure_.texts) {
    const bool bold = t.role == TextRole::Title || t.role == TextRole::Heading;
    text(t.at, t.align, textSize(figure_, t.role), bold, t.role == TextRole::Note ? colours_.note : colours_.text, t.text);
  }
}

}  // namespace

void paintFigure(QPainter& painter, const Figure& figure, double scale) {
  painter.save();
  painter.scale(scale / kUnits, scale / kUnits);
  Painting(painter, figure).paint();
  painter.restore();
}

}  // namespace pw::gui
