#include <QAction>
#include <QMouseEvent>
#include <QPainter>
#include <QPainterPath>
#include <QtMath>
#include <algorithm>
#include <cmath>

#include "app/gui/timeline/private.h"

namespace pw::gui {
namespace {

constexpr int kMostOutlines = 4000;  ///< of a frame; more of them are narrower than what they would show
constexpr double kNarrowest = 3;     ///< block that has an outline [pixels]

std::optional<ActionKind> computeKind(SpanKind kind) {
  for (const ActionKind own : {ActionKind::Forward, ActionKind::Backward, ActionKind::BackwardInput, ActionKind::BackwardWeight}) {
    if (spanKind(own) == kind) return own;
  }
  return std::nullopt;
}

/// An arrow between two points, with its head at the end.
void paintArrow(QPainter& p, QPointF from, QPointF to, const QColor& colour) {
  const QPointF line = to - from;
  const double length = std::hypot(line.x(), line.y());
  if (length < 4) return;
  constexpr double kHead = 8;
  const QPointF along = line / length, across(-along.y(), along.x());
  p.setPen(QPen(colour, 2));
  p.drawLine(from, to - along * kHead);
  QPainterPath head(to);
  head.lineTo(to - along * kHead + across * (kHead / 2));
  head.lineTo(to - along * kHead - across * (kHead / 2));
  head.closeSubpath();
  p.fillPath(head, colour);
}

/// Each arrow leads from what waits to what it waits for.
void paintCycle(QPainter& p, const std::vector<QPointF>& centres, const QColor& colour) {
  for (std::size_t i = 0; i < centres.size(); ++i) {
    QPointF from = centres[i], to = centres[(i + 1) % centres.size()];
    if (centres.size() == 2) {  // there and back, side by side
      const QPointF line = to - from;
      const double length = std::max(1.0, std::hypot(line.x(), line.y()));
      const QPointF aside(-line.y() / length * 5, line.x() / length * 5);
      from += aside;
      to += aside;
    }
    paintArrow(p, from, to, colour);
  }
}

}  // namespace

std::optional<Action> TimelineWidget::Private::actionOf(const SourcedSpan& span) const {
  const Timeline* t = timeline(span.source);
  if (span.source != Source::Predicted || t == nullptr || span.span.track != TrackKind::Compute) return std::nullopt;
  const SpanTrack& track = trackOf(*t, span.span);
  const auto at = static_cast<std::size_t>(span.span.index);
  if (at >= track.size()) return std::nullopt;
  const auto kind = computeKind(track.tags[at].kind);
  if (!kind) return std::nullopt;
  return Action{track.tags[at].stage, *kind, track.tags[at].microbatch};
}

void TimelineWidget::Private::addEditActions() {
  groups.emplace_back();
  addToggle(
      tr("Edit by hand"), QKeySequence(Qt::Key_E), [this] { return hand->isOn(); }, [this](bool on) { hand->setOn(on); });
  groups.emplace_back();
  const auto add = [&](const QString& text, const QString& about, const QKeySequence& keys, const std::function<void()>& act) {
    QAction* action = addAction(text, {keys}, act);
    action->setStatusTip(about);
    editActions.push_back(action);
  };
  add(tr("Move earlier"), tr("Each selected action goes one place earlier in its row"), QKeySequence(Qt::SHIFT | Qt::Key_Left),
      [this] { hand->shift(-1); });
  add(tr("Move later"), tr("Each selected action goes one place later in its row"), QKeySequence(Qt::SHIFT | Qt::Key_Right),
      [this] { hand->shift(1); });
  add(tr("Stage up"), tr("The whole stage of the selected action moves to the rank before"), QKeySequence(Qt::SHIFT | Qt::Key_Up),
      [this] { hand->moveStages(-1); });
  add(tr("Stage down"), tr("The whole stage of the selected action moves to the next rank"), QKeySequence(Qt::SHIFT | Qt::Key_Down),
      [this] { hand->moveStages(1); });
  add(tr("Split or merge B"), tr("Each selected B becomes I and W; where no B is selected, I and W become B"),
      QKeySequence(Qt::SHIFT | Qt::Key_S), [this] { hand->splitOrMerge(); });
  add(tr("Overlap"), tr("An F and a B of one rank become an overlapped pair, or a pair becomes two actions"),
      QKeySequence(Qt::SHIFT | Qt::Key_O), [this] { hand->pairOrUnpair(); });
  add(tr("Swap"), tr("The two selected actions of a rank change places"), QKeySequence(Qt::SHIFT | Qt::Key_X), [this] { hand->swapTwo(); });
  add(tr("Repeat"), tr("The order of the selected actions is repeated for the microbatches that follow"),
      QKeySequence(Qt::SHIFT | Qt::Key_R), [this] { hand->repeat(); });
  add(tr("Pause"), tr("An empty cell goes before the selected action; it shows a pause and has no effect on a run"),
      QKeySequence(Qt::SHIFT | Qt::Key_P), [this] { hand->addPause(); });
  add(tr("No pause"), tr("The empty cells right before the selected actions go"), QKeySequence(Qt::SHIFT | Qt::Key_Backspace),
      [this] { hand->removePauses(); });
  add(tr("Improve"), tr("Search for a faster order from here; again stops it and keeps what it has"), QKeySequence(Qt::SHIFT | Qt::Key_I),
      [this] { hand->isImproving() ? hand->stopImproving() : hand->improve(); });
  add(tr("Why not earlier?"), tr("What keeps the selected action from an earlier place"), QKeySequence(Qt::SHIFT | Qt::Key_W), [this] {
    const QString why = hand->whyNotEarlier();
    editBar->setMessage(why.isEmpty() ? tr("Select one action to see what keeps it from an earlier place.") : why, false);
  });
}

void TimelineWidget::Private::showEditing() {
  const bool on = hand->isOn();
  editBar->setVisible(on);
  for (QAction* action : editActions) action->setEnabled(on);
  updateActions();
  editBar->setMessage(hand->message(), hand->isRefused());
  if (!hand->isRefused() && emphasis == Emphasis::Cycle) emphasize(Emphasis::None, {});
  if (hand->isRefused() && !hand->cycle().empty() && !hand->isDragging()) {
    std::vector<SourcedSpan> cycle;  // on the timeline as it is
    for (const Action& a : hand->cycle()) {
      if (const auto span = spanOfAction(a)) cycle.push_back(*span);
    }
    emphasize(Emphasis::Cycle, std::move(cycle));
  }
  repaintSoon();
  emit w.editingChanged(on);
}

std::optional<SourcedSpan> TimelineWidget::Private::spanOfAction(const Action& action) const {
  if (!scene.predicted || !prediction) return std::nullopt;
  const Placement& placement = prediction->rows->placement;
  if (action.stage.value < 0 || action.stage.index() >= placement.stages()) return std::nullopt;
  const Rank rank = placement.rankOf(action.stage, action.microbatch);
  const auto kind = spanKind(action.kind);
  if (!kind) return std::nullopt;
  const auto span = findAction(*scene.predicted, rank, *kind, action.stage, action.microbatch);
  return span ? std::optional(SourcedSpan{Source::Predicted, *span}) : std::nullopt;
}

// ---- Mouse ---------------------------------------------------------------------------------------------------------

/// While editing, a press on a predicted block takes the block, elsewhere the timeline.
bool TimelineWidget::Private::pressedWhileEditing(const QMouseEvent& event) {
  if (!hand->isOn() || event.button() != Qt::LeftButton || !trackArea().contains(pressedAt)) return false;
  const Hit hit = hitAt(pressedAt);
  const auto action = hit.span ? actionOf(*hit.span) : std::nullopt;
  if (!action) return false;
  const auto modifiers = event.modifiers();
  if (modifiers & (Qt::ControlModifier | Qt::ShiftModifier)) {
    hand->select(*action, modifiers & Qt::ControlModifier ? HandEdit::Extends::One : HandEdit::Extends::Range);
    return true;
  }
  if (!hand->selection().contains(*action)) hand->select(*action);
  taken = action;
  drag = Drag::Take;
  return true;
}

void TimelineWidget::Private::takenTo(const QPoint& at) {
  if (!hand->isDragging() && !hand->beginDrag(*taken)) {
    drag = Drag::None;  // the prediction is not of this schedule yet
    return;
  }
  canvas->setCursor(Qt::ClosedHandCursor);
  const auto rank = rankAt(at.y());
  if (rank) hand->dragTo(*rank, timeAt(at.x()));
}

// ---- Painting ------------------------------------------------------------------------------------------------------

/// The rectangle of a time on a rank's predicted compute row; nothing where it is not in sight.
std::optional<QRectF> TimelineWidget::Private::rectOf(Rank rank, Ns from, Ns to) const {
  const auto at = rowOf(layout, {Source::Predicted, {rank, TrackKind::Compute, 0}});
  if (!at) return std::nullopt;
  const Row& row = layout.rows[*at];
  const QRect area = trackArea();
  const double top = area.top() + (row.pinned ? row.top : row.top - scroll);
  const double left = std::clamp(view.xOf(from), -8.0, view.width + 8.0), right = std::clamp(view.xOf(to), -8.0, view.width + 8.0);
  if (right < 0 || left > view.width || top + row.height < area.top() || top > area.bottom()) return std::nullopt;
  return QRectF(area.left() + left, top, std::max(1.0, right - left), row.height);
}

void TimelineWidget::Private::paintEditing(QPainter& p, const Theme& theme) {
  if (!hand->isOn() || !scene.predicted) return;
  p.save();
  p.setClipRect(trackArea());
  if (hand->isDragging()) paintGhost(p, theme);
  p.setRenderHint(QPainter::Antialiasing);
  if (!hand->selection().empty()) {
    p.setPen(QPen(theme.focus, 2));
    p.setBrush(Qt::NoBrush);
    outline(p, *scene.predicted, [this](const SpanRef& span) {
      const auto action = actionOf(SourcedSpan{Source::Predicted, span});
      return action && hand->selection().contains(*action);
    });
  }
  if (const auto drop = hand->drop()) paintDrop(p, *drop, theme);
  if (!hand->isDragging() && emphasis == Emphasis::Cycle) {
    std::vector<QPointF> centres;
    for (const Action& a : hand->cycle()) {
      const auto at = spanOfAction(a);
      const Span span = at ? pw::spanOf(*scene.predicted, at->span) : Span{};
      if (const auto rect = at ? rectOf(span.rank, span.start, span.end) : std::nullopt) centres.push_back(rect->center());
    }
    if (centres.size() == hand->cycle().size()) paintCycle(p, centres, theme.error);  // else part of it is out of sight
  }
  p.restore();
}

/// A rectangle around each block in sight, of those that `draws` picks, that is wide enough for one.
void TimelineWidget::Private::outline(QPainter& p, const Timeline& of, const std::function<bool(const SpanRef&)>& draws) const {
  int painted = 0;
  const double left = trackArea().left();
  for (std::size_t r = 0; r < of.ranks.size(); ++r) {
    const auto row = rectOf(Rank{r}, static_cast<Ns>(view.start), static_cast<Ns>(view.end()));
    if (!row) continue;
    const SpanTrack& track = of.ranks[r].compute;
    const auto [first, last] = visible(track, static_cast<Ns>(view.start), static_cast<Ns>(view.end()));
    for (std::size_t i = first; i < last && painted < kMostOutlines; ++i) {
      const double width = static_cast<double>(track.end[i] - track.start[i]) / view.nsPerPixel;
      if (width < kNarrowest || !draws({Rank{r}, TrackKind::Compute, static_cast<std::int32_t>(i)})) continue;
      p.drawRect(QRectF(left + view.xOf(track.start[i]), row->top() + 1, width - 1, row->height() - 3));
      ++painted;
    }
  }
}

/// The blocks as they were when the drag began, and where the step ended.
void TimelineWidget::Private::paintGhost(QPainter& p, const Theme& theme) {
  const auto before = hand->before();
  if (!before) return;
  QColor line = theme.text;
  line.setAlpha(110);
  p.setPen(QPen(line, 1, Qt::DotLine));
  p.setBrush(Qt::NoBrush);
  outline(p, before->timeline, [](const SpanRef&) { return true; });
  const double end = view.xOf(before->timeline.end);
  const QRect area = trackArea();
  if (end >= 0 && end <= view.width) p.drawLine(QPointF(area.left() + end, area.top()), QPointF(area.left() + end, area.bottom()));
}

/// Where the dragged would go: a mark between two blocks, and the part of its row within which all places are legal.
void TimelineWidget::Private::paintDrop(QPainter& p, const HandEdit::Drop& drop, const Theme& theme) {
  const QColor colour = drop.isLegal ? theme.accent : theme.error;
  if (drop.room && !drop.movesStage) {
    if (const auto room = rectOf(drop.rank, drop.room->first, drop.room->second)) {
      QColor fill = theme.accent;
      fill.setAlpha(40);
      p.fillRect(room->adjusted(0, -2, 0, 2), fill);
    }
  }
  if (drop.movesStage) {
    if (const auto row = rectOf(drop.rank, static_cast<Ns>(view.start), static_cast<Ns>(view.end()))) {
      p.setPen(QPen(colour, 2, drop.isLegal ? Qt::SolidLine : Qt::DashLine));
      p.setBrush(Qt::NoBrush);
      p.drawRect(row->adjusted(1, 1, -1, -1));
    }
    return;
  }
  if (const auto rect = rectOf(drop.rank, drop.at, drop.at)) {
    p.setPen(QPen(colour, 3, drop.isLegal ? Qt::SolidLine : Qt::DashLine));
    p.drawLine(QPointF(rect->left(), rect->top() - 3), QPointF(rect->left(), rect->bottom() + 3));
  }
}

}  // namespace pw::gui
