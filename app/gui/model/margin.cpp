#include "app/gui/model/margin.h"

#include <QCoreApplication>
#include <QHelpEvent>
#include <QPainter>
#include <QPainterPath>
#include <QStringList>
#include <QToolTip>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "app/gui/model/parts/split_handle.h"
#include "app/gui/model/tree_view.h"

namespace pw::gui {
namespace {

constexpr int kBar = 5, kLanes = 5, kMostLanes = 12, kLaneStep = 5, kGutterPadding = 7, kTextPadding = 6, kHandleHeight = 11;
constexpr double kNear = 3.5;  // of an arc, to be on it
constexpr std::size_t kMostInTip = 8;

QColor arcColour(ArcKind kind, const Theme& theme) {
  switch (kind) {
    case ArcKind::Sent: return theme.accent;
    case ArcKind::Recomputed: return theme.faintText;
    case ArcKind::Shared: return theme.warning;
  }
  return theme.text;
}

Qt::PenStyle arcStyle(ArcKind kind) {
  switch (kind) {
    case ArcKind::Sent: return Qt::SolidLine;
    case ArcKind::Recomputed: return Qt::DashLine;
    case ArcKind::Shared: return Qt::DotLine;
  }
  return Qt::SolidLine;
}

}  // namespace

Margin::Margin(const TreeView& view, QWidget* parent) : QWidget(parent), view_(view) {
  setMouseTracking(true);
  setAccessibleName(tr("Stages"));
  measure();
}

QSize Margin::sizeHint() const { return {static_cast<int>(bracketWidth_) + kGutterPadding + kLanes * kLaneStep, 100}; }

void Margin::measure() {
  bold_ = font();
  bold_.setBold(true);
  const double title = QFontMetricsF(bold_).horizontalAdvance(tr("Stage 00 · rank 00"));
  const double totals = QFontMetricsF(font()).horizontalAdvance(QStringLiteral("00.0 ms · 00.0 MiB"));
  bracketWidth_ = std::ceil(std::max(title, totals)) + 2 * kTextPadding + kBar;
}

void Margin::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() != QEvent::FontChange && event->type() != QEvent::ApplicationFontChange) return;
  measure();
  updateGeometry();
  update();
}

double Margin::laneX(int lane) const {
  const double step = lanes_ > kLanes ? static_cast<double>(kLanes * kLaneStep) / lanes_ : kLaneStep;
  return width() - kGutterPadding - lane * step;
}

void Margin::setStages(std::vector<StageTotals> stages) {
  if (stages == stages_) return;
  Ns longest = 1;
  for (const StageTotals& stage : stages) longest = std::max(longest, stage.forward + stage.backward);
  const std::vector<StageTotals> before = std::exchange(stages_, std::move(stages));
  if (std::exchange(longest_, longest) != longest || before.size() != stages_.size()) {
    update();
    return;
  }
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    if (before[s] == stages_[s]) continue;
    const auto [top, bottom] = extent(Stage(s));
    const double was = before[s].begin == stages_[s].begin ? top : view_.yOf(before[s].begin);
    updateBetween(std::min(top, was), bottom);
  }
}

void Margin::updateBetween(double top, double bottom) {
  update(0, static_cast<int>(top) - kHandleHeight, width(), static_cast<int>(bottom - top) + 2 * kHandleHeight);
}

void Margin::setArcs(std::vector<Arc> arcs) {
  if (arcs == arcs_) return;
  arcs_ = std::move(arcs);
  placeArcs();
  update();
}

void Margin::setSplits(const std::vector<NodeId>& begins, const std::vector<QString>& names) {
  if (begins.size() != begins_.size()) update();
  begins_ = begins;
  while (handles_.size() > begins.size()) {
    delete handles_.back();
    handles_.pop_back();
  }
  while (handles_.size() < begins.size()) {
    auto* handle = new SplitHandle(static_cast<int>(handles_.size()), this);
    handle->setTip(handleTip_);
    handles_.push_back(handle);
    handle->show();
    emit handleAdded(handle);
  }
  for (std::size_t s = 0; s < handles_.size(); ++s) {
    handles_[s]->setAccessibleName(tr("Split at %1, between stage %2 and stage %3").arg(names[s]).arg(s).arg(s + 1));
  }
  placeHandles();
}

void Margin::setHandleTip(std::function<QString(int)> tip) {
  handleTip_ = std::move(tip);
  for (SplitHandle* handle : handles_) handle->setTip(handleTip_);
}

void Margin::place() {
  placeHandles();
  placeArcs();
  update();
}

void Margin::scroll() {
  placeHandles();
  update();
}

double Margin::yOf(double row) const { return (row - view_.rowAt(0)) * view_.rowHeight(); }

void Margin::placeHandles() {
  const int width = static_cast<int>(bracketWidth_);
  for (std::size_t s = 0; s < handles_.size(); ++s) {
    handles_[s]->setGeometry(0, static_cast<int>(std::round(view_.yOf(begins_[s]))) - kHandleHeight / 2 - 1, width, kHandleHeight);
  }
}

void Margin::placeArcs() {
  drawn_.clear();
  hovered_ = -1;
  const VisibleRows& visible = view_.visibleRows();
  const auto middle = [&](NodeId node) {
    const auto& rows = visible.rows();
    const int row = visible.showing(node);
    const auto at = std::lower_bound(rows.begin(), rows.end(), row) - rows.begin();
    return static_cast<double>(at) + 0.5;
  };
  for (std::size_t a = 0; a < arcs_.size(); ++a) {
    const double from = middle(arcs_[a].from), to = middle(arcs_[a].to);
    if (from >= to) continue;  // within one row
    const auto same = std::find_if(drawn_.begin(), drawn_.end(),
                                   [&](const DrawnArc& d) { return d.kind == arcs_[a].kind && d.from == from && d.to == to; });
    if (same != drawn_.end()) {
      same->arcs.push_back(a);
    } else {
      drawn_.push_back({arcs_[a].kind, from, to, 0, {a}});
    }
  }
  std::vector<std::pair<double, double>> spans;
  for (const DrawnArc& arc : drawn_) spans.emplace_back(arc.from - 0.1, arc.to + 0.1);  // ends at one row touch
  const std::vector<int> lanes = arcLanes(spans, kMostLanes);
  lanes_ = 0;
  for (std::size_t a = 0; a < drawn_.size(); ++a) {
    drawn_[a].lane = lanes[a];
    lanes_ = std::max(lanes_, lanes[a] + 1);
  }
}

std::pair<double, double> Margin::extent(Stage stage) const {
  const std::size_t s = stage.index();
  const double top = s == 0 ? yOf(0) : view_.yOf(stages_[s].begin);
  const double bottom = s + 1 < stages_.size() ? view_.yOf(stages_[s + 1].begin) : yOf(view_.visibleRows().count());
  return {top, bottom};
}

void Margin::paintEvent(QPaintEvent* event) {
  const Theme& theme = currentTheme();
  const QRect dirty = event->rect();
  QPainter painter(this);
  painter.fillRect(dirty, theme.background);
  for (std::size_t s = 0; s < stages_.size(); ++s) paintStage(painter, Stage(s), dirty);
  QColor border = theme.text;
  border.setAlpha(150);
  for (const NodeId begin : begins_)
    painter.fillRect(QRectF(bracketWidth_, std::round(view_.yOf(begin)) - 1, width() - bracketWidth_, 2), border);
  painter.setPen(theme.grid);
  painter.drawLine(width() - 1, dirty.top(), width() - 1, dirty.bottom());
  if (dirty.right() < bracketWidth_) return;
  painter.setRenderHint(QPainter::Antialiasing);
  for (std::size_t a = 0; a < drawn_.size(); ++a) {
    if (static_cast<int>(a) != hovered_) paintArc(painter, drawn_[a], false);
  }
  if (hovered_ >= 0) paintArc(painter, drawn_[static_cast<std::size_t>(hovered_)], true);
}

void Margin::paintStage(QPainter& painter, Stage stage, const QRect& dirty) const {
  const auto [top, bottom] = extent(stage);
  const double from = std::max(top, 0.0), to = std::min<double>(bottom, height());  // the visible part
  if (to <= from || to < dirty.top() || from > dirty.bottom() + 1) return;
  const Theme& theme = currentTheme();
  const QColor colour = stageColour(stage, theme);
  QColor tint = colour;
  tint.setAlpha(theme.dark ? 50 : 38);
  painter.fillRect(QRectF(0, top + 1, bracketWidth_ - kBar, bottom - top - 2), tint);
  painter.fillRect(QRectF(bracketWidth_ - kBar, top + 1, kBar, bottom - top - 2), colour);
  paintTotals(painter, stage, from, to);
}

/// As much as fits: one line, two, and a bar of the stage's time relative to the longest.
void Margin::paintTotals(QPainter& painter, Stage stage, double from, double to) const {
  const Theme& theme = currentTheme();
  const StageTotals& totals = stages_[stage.index()];
  const double line = QFontMetricsF(font()).lineSpacing(), room = to - from - 2;
  if (room < line * 0.9) return;
  const Ns time = totals.forward + totals.backward;
  const bool two = room >= 2 * line + kHandleHeight - 2, bar = two && room >= 2 * line + kHandleHeight + 6;
  const auto draw = [&](const QFont& used, const QRectF& where, const QString& text) {
    constexpr int kFitting = 18;  // what the width of two lines is made for; measuring costs as much as drawing
    painter.setFont(used);
    painter.drawText(where, Qt::AlignLeft | Qt::AlignVCenter | Qt::TextSingleLine,
                     two && text.size() <= kFitting ? text : QFontMetricsF(used).elidedText(text, Qt::ElideRight, where.width()));
  };
  QRectF text(kTextPadding, (from + to - (two ? 2 : 1) * line - (bar ? 7 : 0)) / 2, bracketWidth_ - kBar - 2 * kTextPadding, line);
  painter.setPen(theme.text);
  const QString number = two ? shortStageTitle(totals, stage) : QString::number(stage.value);
  draw(bold_, text, number);
  if (two) {
    text.translate(0, line);
  } else {
    text.setLeft(text.left() + QFontMetricsF(bold_).horizontalAdvance(number) + kTextPadding);
    if (room < line + kHandleHeight) text.setRight(bracketWidth_ - SplitHandle::gripWidth(kHandleHeight) - 4);  // grips lie over it
  }
  QString figures = stageFigures(totals);
  if (!two && time > 0 && QFontMetricsF(font()).horizontalAdvance(figures) > text.width()) figures = durationText(time);
  if (!figures.isEmpty()) draw(font(), text, figures);
  if (!bar) return;
  const QRectF track(text.left(), text.bottom() + 3, text.width(), 4);
  painter.fillRect(track, theme.grid);
  painter.fillRect(
      QRectF(track.left(), track.top(), track.width() * static_cast<double>(time) / static_cast<double>(longest_), track.height()),
      stageColour(stage, theme));
}

void Margin::paintArc(QPainter& painter, const DrawnArc& arc, bool strong) const {
  const QColor colour = arcColour(arc.kind, currentTheme());
  const double top = yOf(arc.from), bottom = yOf(arc.to);
  if (bottom < 0 || top > height()) return;
  const double right = width() - 2, x = laneX(arc.lane), bend = std::min(right - x, (bottom - top) / 2);
  QPainterPath path(QPointF(right, top));
  path.quadTo(x, top, x, top + bend);
  path.lineTo(x, bottom - bend);
  path.quadTo(x, bottom, right, bottom);
  painter.setBrush(Qt::NoBrush);
  painter.setPen(QPen(colour, strong ? 3 : 1.5, arcStyle(arc.kind)));
  painter.drawPath(path);
  painter.setPen(Qt::NoPen);
  painter.setBrush(colour);
  if (arc.kind == ArcKind::Shared) {
    for (const double y : {top, bottom}) painter.drawEllipse(QPointF(right - 2, y), 2.5, 2.5);
  } else {
    painter.drawPolygon(QPolygonF({QPointF(right + 1, bottom), QPointF(right - 5, bottom - 3.5), QPointF(right - 5, bottom + 3.5)}));
  }
}

const Margin::DrawnArc* Margin::drawnAt(const QPointF& point) const {
  const DrawnArc* best = nullptr;
  double distance = kNear;
  for (const DrawnArc& arc : drawn_) {
    const double beside = std::abs(point.x() - laneX(arc.lane));
    const double top = yOf(arc.from), bottom = yOf(arc.to);
    const bool along = point.y() >= top && point.y() <= bottom && beside < distance;
    const bool atEnd = point.x() >= laneX(arc.lane) && std::min(std::abs(point.y() - top), std::abs(point.y() - bottom)) < kNear;
    if (!along && (!atEnd || best != nullptr)) continue;
    best = &arc;
    distance = along ? beside : distance;
  }
  return best;
}

std::vector<std::size_t> Margin::arcsAt(const QPointF& point) const {
  const DrawnArc* arc = drawnAt(point);
  return arc == nullptr ? std::vector<std::size_t>() : arc->arcs;
}

bool Margin::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  QString text;
  const std::vector<std::size_t> arcs = arcsAt(help->pos());
  for (std::size_t a = 0; a < arcs.size() && a < kMostInTip; ++a)
    text += (a == 0 ? "<p>" : "</p><p>") + arcs_[arcs[a]].text.toHtmlEscaped();
  if (arcs.size() > kMostInTip) text += "</p><p>" + tr("… and %1 more").arg(arcs.size() - kMostInTip);
  for (std::size_t s = 0; s < stages_.size() && text.isEmpty(); ++s) {
    const auto [top, bottom] = extent(Stage(s));
    if (help->pos().y() >= top && help->pos().y() < bottom && help->pos().x() < bracketWidth_) text = stageText(stages_[s], Stage(s));
  }
  QToolTip::showText(help->globalPos(), text, this);
  return true;
}

void Margin::mouseMoveEvent(QMouseEvent* event) {
  const DrawnArc* arc = drawnAt(event->position());
  const int hovered = arc == nullptr ? -1 : static_cast<int>(arc - drawn_.data());
  if (hovered == hovered_) return;
  hovered_ = hovered;
  update();
}

void Margin::leaveEvent(QEvent*) {
  hovered_ = -1;
  update();
}

void Margin::resizeEvent(QResizeEvent*) { place(); }

void Margin::wheelEvent(QWheelEvent* event) {  // as over the rows
  QCoreApplication::sendEvent(view_.viewport(), event);
}

}  // namespace pw::gui
