#include "app/gui/timeline/drawing/flow_arrows.h"

#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace pw::gui {
namespace {

constexpr double kHead = 7;     ///< pixels
constexpr double kBeyond = 24;  ///< how far beyond the sides an arrow goes on [pixels]
constexpr int kInset = 3;       ///< of a name from the sides

/// The middle of a block's row at a time; nothing where its rank has no row.
std::optional<QPointF> pointOf(const Geometry& where, const SourcedSpan& span, Ns time) {
  const auto at = rowOf(where.layout, span);
  if (!at) return std::nullopt;
  const Row& row = where.layout.rows[*at];
  const double x = std::clamp(where.view.xOf(time), -kBeyond, where.view.width + kBeyond);
  return QPointF(where.tracks().left() + x, where.topOf(row) + row.height / 2.0);
}

/// Leaves to the right and arrives from the left, also where both are at the same time.
QPainterPath curveOf(QPointF from, QPointF to) {
  const double bend = std::clamp(std::abs(to.x() - from.x()) / 2, 14.0, 80.0);
  QPainterPath path(from);
  path.cubicTo(from + QPointF(bend, 0), to - QPointF(bend + kHead, 0), to - QPointF(kHead, 0));
  return path;
}

QPainterPath headAt(QPointF tip) {
  QPainterPath head(tip);
  head.lineTo(tip + QPointF(-kHead - 1, -kHead * 0.55));
  head.lineTo(tip + QPointF(-kHead - 1, kHead * 0.55));
  head.closeSubpath();
  return head;
}

/// A name at the side beyond which a point lies, beside the arrow where the selected block is not.
void paintName(QPainter& p, const QRect& area, QPointF at, bool isIncoming, const QString& name, const Theme& theme) {
  constexpr int kGap = 6;
  const QFontMetrics metrics(p.font());
  const int width = metrics.horizontalAdvance(name) + 10, height = metrics.height() + 2;
  const int x = static_cast<int>(at.x()), y = static_cast<int>(at.y());
  const int left = std::clamp(isIncoming ? x - width - kGap : x + kGap, area.left() + kInset,
                              std::max(area.left() + kInset, area.right() - width - kInset));
  const int top = std::clamp(y - height / 2, area.top() + kInset, std::max(area.top() + kInset, area.bottom() - height - kInset));
  const QRect box(left, top, width, height);
  p.setPen(QPen(theme.text, 1));
  p.setBrush(theme.background);
  p.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 3, 3);
  p.drawText(box, Qt::AlignCenter, name);
}

}  // namespace

void paintFlows(QPainter& p, const Geometry& where, const std::vector<FlowArrow>& arrows, const Theme& theme) {
  const QRect area = where.tracks().adjusted(0, where.layout.pinnedHeight, 0, 0);
  p.save();
  p.setClipRect(where.tracks());
  p.setRenderHint(QPainter::Antialiasing);
  QColor halo = theme.background;
  halo.setAlpha(225);
  std::vector<std::pair<QPointF, const FlowArrow*>> names;
  QPainterPath lines, heads;
  for (const FlowArrow& arrow : arrows) {
    const auto from = pointOf(where, arrow.from, arrow.left), to = pointOf(where, arrow.to, arrow.arrives);
    if (!from || !to) continue;
    lines.addPath(curveOf(*from, *to));
    heads.addPath(headAt(*to));
    const QPointF end = arrow.isIncoming ? *from : *to;
    if (!QRectF(where.tracks()).adjusted(-1, -1, 1, 1).contains(end)) names.emplace_back(end, &arrow);
  }
  p.setBrush(Qt::NoBrush);
  p.setPen(QPen(halo, 4.5, Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin));
  p.drawPath(lines);
  p.drawPath(heads);
  p.setPen(QPen(theme.text, 1.75, Qt::SolidLine, Qt::RoundCap));
  p.drawPath(lines);
  p.setPen(Qt::NoPen);
  p.setBrush(theme.text);
  p.drawPath(heads);
  for (const auto& [at, arrow] : names) paintName(p, area, at, arrow->isIncoming, arrow->otherEnd, theme);
  p.restore();
}

}  // namespace pw::gui
