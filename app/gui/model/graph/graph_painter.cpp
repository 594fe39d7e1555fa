#include "app/gui/model/graph/graph_painter.h"

#include <QFontMetricsF>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "app/gui/model/graph/node_facts.h"
#include "app/gui/model/parts/finding_mark.h"
#include "app/gui/model/parts/row_geometry.h"

namespace pw::gui {
namespace {

constexpr double kInset = 8, kPadding = 8, kArrow = 4, kNear = 4, kTap = 7;
constexpr int kMostInsets = 8;
constexpr double kNarrowest = 150, kWidest = 380;

class Painting {
 public:
  Painting(QPainter& painter, const GraphScene& scene, double top, double bottom)
      : p_(painter), s_(scene), top_(top), bottom_(bottom), metrics_(scene.font) {}

  void paint() {
    p_.setFont(s_.font);
    paintStages();
    for (const GraphFrame& frame : s_.layout.frames) {
      if (frame.bottom >= top_ && frame.top <= bottom_) paintFrame(frame);
    }
    for (std::size_t b = 0; b < s_.layout.branches.size(); ++b) {
      if (static_cast<int>(b) != s_.hovered) paintBranch(s_.layout.branches[b], false);
    }
    if (s_.hovered >= 0) paintBranch(s_.layout.branches[static_cast<std::size_t>(s_.hovered)], true);
    const auto first = std::partition_point(s_.layout.boxes.begin(), s_.layout.boxes.end(),
                                            [&](const GraphBox& b) { return b.bottom() + s_.metrics.gap * 2 < top_; });
    for (auto box = first; box != s_.layout.boxes.end() && box->top <= bottom_; ++box) {
      paintNext(static_cast<int>(box - s_.layout.boxes.begin()));
      paintBox(*box);
    }
    paintCuts();
    if (s_.mark) paintMark();
  }

 private:
  void paintStages() {
    for (std::size_t stage = 0; stage <= s_.begins.size(); ++stage) {
      const double from = stage == 0 ? 0 : s_.layout.yOf(s_.begins[stage - 1]);
      const double to = stage < s_.begins.size() ? s_.layout.yOf(s_.begins[stage]) : s_.layout.height;
      if (to < top_ || from > bottom_) continue;
      QColor tint = stageColour(Stage(stage), currentTheme());
      p_.fillRect(QRectF(0, from, 4, to - from), tint);
      tint.setAlpha(currentTheme().dark ? 26 : 20);
      p_.fillRect(QRectF(4, from, s_.columns.width, to - from), tint);
    }
  }

  [[nodiscard]] double mark(const QRectF& area, double x, int row, bool inside) {
    const auto effect = markOf(inside ? s_.findings.inside(s_.tree, row) : s_.findings.of(row));
    if (!effect) return x;
    const double side = metrics_.height() * 0.7;
    p_.setRenderHint(QPainter::Antialiasing);
    paintFindingMark(p_, QRectF(x - side, area.top() + (metrics_.height() - side) / 2, side, side), *effect);
    return x - side - kPadding;
  }

  /// `▸ name  Class`, elided at the right.
  void paintTitle(const QRectF& area, int row, bool isOpen, bool canOpen, bool inside) {
    const Theme& theme = currentTheme();
    double x = area.left(), end = mark(area, area.right(), row, inside);
    if (canOpen || isOpen) {
      const double side = metrics_.height() * 0.3, y = area.top() + metrics_.height() / 2;
      QPainterPath triangle;
      isOpen ? triangle.addPolygon(QPolygonF{{{x, y - side / 2}, {x + 2 * side, y - side / 2}, {x + side, y + side * 0.7}}})
             : triangle.addPolygon(QPolygonF{{{x, y - side}, {x + side * 1.2, y}, {x, y + side}}});
      p_.fillPath(triangle, theme.faintText);
      x += 2 * side + 6;
    }
    const CallRow& r = s_.tree.row(row);
    const QString name = metrics_.elidedText(QString::fromStdString(r.label), Qt::ElideMiddle, std::max(10.0, end - x));
    p_.setPen(theme.text);
    p_.drawText(QRectF(x, area.top(), end - x, area.height()), Qt::AlignLeft | Qt::AlignTop, name);
    x += metrics_.horizontalAdvance(name) + kPadding;
    const QString className = QString::fromStdString(r.className.substr(r.className.rfind('.') + 1));
    if (end - x < metrics_.averageCharWidth() * 5) return;
    p_.setPen(theme.faintText);
    p_.drawText(QRectF(x, area.top(), end - x, area.height()), Qt::AlignLeft | Qt::AlignTop,
                metrics_.elidedText(className, Qt::ElideRight, end - x));
  }

  void paintShape(const QRectF& area, int row, const QColor& fill, const QColor& line, double radius) {
    const bool current = s_.current == row;
    p_.setRenderHint(QPainter::Antialiasing);
    const QColor edge = current ? (s_.hasFocus ? currentTheme().focus : currentTheme().accent) : line;
    p_.setPen(QPen(edge, current ? 2 : 1));
    p_.setBrush(fill);
    p_.drawRoundedRect(area, radius, radius);
    p_.setRenderHint(QPainter::Antialiasing, false);
  }

  void paintFrame(const GraphFrame& frame) {
    const QRectF area = s_.columns.around(frame);
    QColor fill = currentTheme().text;
    fill.setAlpha(10);
    paintShape(area, frame.row, fill, currentTheme().grid.darker(currentTheme().dark ? 80 : 120), 6);
    const double until = std::min(area.right() - kPadding, s_.columns.spine - kPadding);
    paintTitle({area.left() + kPadding, area.top() + 3, until - area.left() - kPadding, metrics_.height()}, frame.row, true, true, false);
  }

  void paintBox(const GraphBox& box) {
    const Theme& theme = currentTheme();
    const QRectF area = s_.columns.around(box);
    if (box.row < 0) {
      paintShape(area, box.row, theme.alternate, theme.grid.darker(theme.dark ? 80 : 120), area.height() / 2);
      p_.setPen(theme.faintText);
      p_.drawText(area, Qt::AlignCenter,
                  box.row == GraphBox::kInputs ? translated("Inputs of the model") : translated("Outputs of the model"));
      return;
    }
    const CallRow& row = s_.tree.row(box.row);
    paintShape(area, box.row, theme.background, theme.faintText, 4);
    const QColor stage = stageColour(stageOf(s_.begins, row.firstNode), theme);
    p_.fillRect(QRectF(area.left() + 1.5, area.top() + 3, 4, area.height() - 6), stage);
    const QRectF inside = area.adjusted(kPadding + 5, (area.height() - 2 * metrics_.height()) / 2, -kPadding, 0);
    paintTitle({inside.left(), inside.top(), inside.width(), metrics_.height()}, box.row, false, box.canOpen, true);
    p_.setPen(theme.faintText);
    p_.drawText(QRectF(inside.left(), inside.top() + metrics_.height(), inside.width(), metrics_.height()), Qt::AlignLeft | Qt::AlignTop,
                metrics_.elidedText(boxText(row), Qt::ElideRight, inside.width()));
  }

  [[nodiscard]] QPen penOf(bool sent, bool strong) const {
    QColor colour = sent ? currentTheme().accent : currentTheme().faintText;
    if (!strong && s_.hovered >= 0) colour.setAlpha(130);
    return {colour, strong ? 2.2 : 1.3, sent ? Qt::SolidLine : Qt::DashLine};
  }

  void arrowHead(const QPointF& tip, bool down) {
    QPainterPath head(tip);
    down ? (head.lineTo(tip + QPointF(-kArrow, -1.6 * kArrow)), head.lineTo(tip + QPointF(kArrow, -1.6 * kArrow)))
         : (head.lineTo(tip + QPointF(1.6 * kArrow, -kArrow)), head.lineTo(tip + QPointF(1.6 * kArrow, kArrow)));
    head.closeSubpath();
    p_.fillPath(head, p_.pen().color());
  }

  void paintNext(int index) {
    const int edge = s_.layout.next[static_cast<std::size_t>(index)];
    if (edge < 0) return;
    const FlowEdge& flow = s_.layout.edges[static_cast<std::size_t>(edge)];
    const double from = s_.layout.box(index).bottom(), to = s_.layout.box(index + 1).top, x = s_.columns.spine;
    p_.setRenderHint(QPainter::Antialiasing);
    p_.setPen(penOf(flow.sent, false));
    p_.drawLine(QPointF(x, from), QPointF(x, to - 2));
    arrowHead({x, to - 1}, true);
    p_.setRenderHint(QPainter::Antialiasing, false);
    const bool isCut = std::any_of(s_.begins.begin(), s_.begins.end(), [&](NodeId n) {
      const double y = s_.layout.yOf(n);
      return y > from && y < to;
    });
    if (isCut || flow.bytes == 0) return;  // the cut says how much
    p_.setPen(currentTheme().faintText);
    p_.drawText(QPointF(x + 8, from + (s_.metrics.gap + metrics_.ascent() - metrics_.descent()) / 2), sizeText(flow.bytes));
  }

  void paintBranch(const GraphBranch& branch, bool strong) {
    const double from = s_.layout.box(branch.from).middle() + kTap, to = s_.layout.box(branch.last).middle() - kTap;
    if (to < top_ - 20 || from > bottom_ + 20) return;
    const auto& edges = s_.layout.edges;
    const auto sentTo = [&](std::size_t e) { return edges[e].sent; };
    const bool sent = std::any_of(branch.edges.begin(), branch.edges.end(), sentTo);
    const double x = s_.columns.laneX(branch.lane);
    p_.setRenderHint(QPainter::Antialiasing);
    p_.setBrush(Qt::NoBrush);
    p_.setPen(penOf(sent, strong));
    const QRectF source = s_.columns.around(s_.layout.box(branch.from));
    p_.drawPolyline(QPolygonF{{QPointF(source.right(), from), QPointF(x, from), QPointF(x, to)}});
    const Bytes bytes = edges[branch.edges.front()].bytes;
    label(from, bytes, x);
    const auto seen = std::partition_point(branch.edges.begin(), branch.edges.end(),
                                           [&](std::size_t e) { return s_.layout.box(edges[e].to).bottom() < top_ - 20; });
    for (auto e = seen; e != branch.edges.end(); ++e) {
      const GraphBox& target = s_.layout.box(edges[*e].to);
      if (target.top > bottom_ + 20) break;
      const double y = target.middle() - kTap, end = s_.columns.around(target).right();
      p_.setPen(penOf(edges[*e].sent, strong));
      p_.drawLine(QPointF(x, y), QPointF(end + 2, y));
      arrowHead({end + 1, y}, false);
      if (edges[*e].bytes != bytes) label(y, edges[*e].bytes, x);
    }
    p_.setRenderHint(QPainter::Antialiasing, false);
  }

  /// A size right of the lanes, with a dotted line to the lane that it is of.
  void label(double y, Bytes bytes, double laneX) {
    if (bytes == 0 || y < top_ - 20 || y > bottom_ + 20) return;
    const QPen pen = p_.pen();
    p_.setPen(QPen(pen.color(), 1, Qt::DotLine));
    if (s_.columns.labels - laneX > s_.columns.laneStep) p_.drawLine(QPointF(laneX + 2, y), QPointF(s_.columns.labels - 2, y));
    p_.setPen(currentTheme().faintText);
    p_.drawText(QPointF(s_.columns.labels, y + (metrics_.ascent() - metrics_.descent()) / 2), sizeText(bytes));
    p_.setPen(pen);
  }

  void paintCuts() {
    p_.setRenderHint(QPainter::Antialiasing);
    for (std::size_t stage = 0; stage < s_.cuts.size() && stage <= s_.begins.size(); ++stage) {
      const QRectF area = cutLabel(s_, stage);
      if (area.bottom() < top_ || area.top() > bottom_) continue;
      const QColor colour = stageColour(Stage(stage), currentTheme());
      p_.setPen(Qt::NoPen);
      p_.setBrush(colour);
      p_.drawRoundedRect(area, 3, 3);
      p_.setPen(textOn(colour));
      p_.drawText(area, Qt::AlignCenter, metrics_.elidedText(s_.cuts[stage], Qt::ElideRight, area.width() - kPadding));
    }
    p_.setRenderHint(QPainter::Antialiasing, false);
  }

  /// Where the cut may go, and why not to where the mouse is.
  void paintMark() {
    const Theme& theme = currentTheme();
    p_.setPen(QPen(theme.accent, 1, Qt::DotLine));
    const auto inSight = [&](NodeId n) { return std::binary_search(s_.legal.begin(), s_.legal.end(), n); };
    for (const GraphLayout::Place& place : s_.layout.places) {
      if (place.y < top_ || place.y > bottom_ || !inSight(place.node)) continue;
      p_.drawLine(QPointF(s_.columns.left, place.y), QPointF(s_.columns.width - 8, place.y));
    }
    if (s_.mark->refusal.isEmpty()) return;
    const double y = s_.layout.yOf(s_.mark->node);
    p_.fillRect(QRectF(0, y - 1, s_.columns.width, 2), theme.error);
    const double width = s_.columns.width - 2 * s_.columns.left;
    const QRectF text =
        metrics_.boundingRect(QRectF(0, 0, width - 2 * kPadding, 1000), Qt::TextWordWrap, s_.mark->refusal).adjusted(0, 0, 1, 1);
    double at = y + 6;
    if (at + text.height() + kPadding > bottom_) at = y - 6 - text.height() - kPadding;
    const QRectF area(s_.columns.left, at, text.width() + 2 * kPadding, text.height() + kPadding);
    p_.setPen(theme.error);
    p_.setBrush(theme.background);
    p_.drawRect(area);
    p_.drawText(area.adjusted(kPadding, kPadding / 2, -kPadding, 0), Qt::TextWordWrap, s_.mark->refusal);
  }

  QPainter& p_;
  const GraphScene& s_;
  double top_, bottom_;
  QFontMetricsF metrics_;
};

}  // namespace

QRectF GraphColumns::around(const GraphBox& box) const {
  const double inset = std::min(box.depth, kMostInsets) * kInset;
  return {left + inset, box.top, right - left - 2 * inset, box.height};
}

QRectF GraphColumns::around(const GraphFrame& frame) const {
  const double inset = std::min(frame.depth, kMostInsets) * kInset;
  return {left + inset, frame.top, right - left - 2 * inset, frame.bottom - frame.top};
}

GraphColumns columnsFor(double viewWidth, int lanes, double labelWidth) {
  GraphColumns c;
  constexpr double kLeastStep = 4, kUsualRoom = 160;
  if (lanes > 0) c.laneStep = std::clamp(kUsualRoom / lanes, kLeastStep, c.laneStep);
  const double beside = lanes > 0 ? 16 + lanes * c.laneStep + labelWidth : 12;
  c.right = c.left + std::clamp(viewWidth - c.left - beside, kNarrowest, kWidest);
  c.spine = c.right - std::max(labelWidth + 20, (c.right - c.left) * 0.3);
  c.lanes = c.right + 16;
  c.labels = c.laneX(lanes) + 2;
  c.width = std::max(viewWidth, c.right + beside);
  return c;
}

void paintGraph(QPainter& painter, const GraphScene& scene, double top, double bottom) {
  if (!scene.layout.boxes.empty()) Painting(painter, scene, top, bottom).paint();
}

QRectF cutLabel(const GraphScene& scene, std::size_t stage) {
  const QFontMetricsF metrics(scene.font);
  const double height = metrics.height() + 4;
  const double width = stage < scene.cuts.size() ? metrics.horizontalAdvance(scene.cuts[stage]) + 2 * kPadding : 0;
  const double y = stage == 0 ? scene.metrics.gap / 2 : scene.layout.yOf(scene.begins[stage - 1]);
  const double shown = std::min(width, scene.columns.right - scene.columns.left);
  const bool isInside = stage > 0 && scene.layout.boxAt(y) >= 0;  // of a folded box, whose words are at the left
  return {isInside ? scene.columns.width - shown - 4 : 4, y - height / 2, shown, height};
}

int branchAt(const GraphLayout& layout, const GraphColumns& columns, const QPointF& point) {
  int nearest = -1;
  double best = kNear;
  const auto consider = [&](std::size_t branch, double distance) {
    if (distance >= best) return;
    best = distance;
    nearest = static_cast<int>(branch);
  };
  for (std::size_t b = 0; b < layout.branches.size(); ++b) {
    const GraphBranch& branch = layout.branches[b];
    const double from = layout.box(branch.from).middle() + kTap, to = layout.box(branch.last).middle() - kTap;
    if (point.y() < from - kNear || point.y() > to + kNear || point.x() < columns.right) continue;
    const double x = columns.laneX(branch.lane);
    consider(b, std::abs(point.x() - x));
    if (point.x() > x) continue;
    consider(b, std::abs(point.y() - from));
    for (const std::size_t e : branch.edges) consider(b, std::abs(point.y() - layout.box(layout.edges[e].to).middle() + kTap));
  }
  return nearest;
}

}  // namespace pw::gui
