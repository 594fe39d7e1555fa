#include <QAction>
#include <QMouseEvent>
#include <QPainter>

#include "app/gui/timeline/drawing/edit_marks.h"
#include "app/gui/timeline/private.h"

namespace pw::gui {
namespace {

std::optional<ActionKind> computeKind(SpanKind kind) {
  for (const ActionKind own : {ActionKind::Forward, ActionKind::Backward, ActionKind::BackwardInput, ActionKind::BackwardWeight}) {
    if (spanKind(own) == kind) return own;
  }
  return std::nullopt;
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
  commands.beginGroup();
  commands.addToggle(
      tr("Edit by hand"), QKeySequence(Qt::Key_E), [this] { return hand->isOn(); }, [this](bool on) { hand->setOn(on); });
  commands.beginGroup();
  const auto add = [&](const QString& text, const QString& about, const QKeySequence& keys, const std::function<void()>& act) {
    QAction* action = commands.add(text, {keys}, act);
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
  commands.updateToggles();
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

void TimelineWidget::Private::paintEditing(QPainter& p, const Theme& theme) {
  if (!hand->isOn() || !scene.predicted) return;
  const Geometry where = geometry();
  p.save();
  p.setClipRect(where.tracks());
  if (const auto before = hand->before(); before && hand->isDragging()) paintGhost(p, where, before->timeline, theme);
  p.setRenderHint(QPainter::Antialiasing);
  if (!hand->selection().empty()) {
    p.setPen(QPen(theme.focus, 2));
    p.setBrush(Qt::NoBrush);
    paintOutlines(p, where, *scene.predicted, [this](const SpanRef& span) {
      const auto action = actionOf(SourcedSpan{Source::Predicted, span});
      return action && hand->selection().contains(*action);
    });
  }
  if (const auto drop = hand->drop()) {
    if (drop->room && !drop->movesStage) paintRoom(p, where, drop->rank, *drop->room, theme);
    if (drop->movesStage)
      paintGoal(p, where, drop->rank, drop->isLegal, theme);
    else
      paintDrop(p, where, drop->rank, drop->at, drop->isLegal, theme);
  }
  if (!hand->isDragging() && emphasis == Emphasis::Cycle) {
    std::vector<QPointF> centres;
    for (const Action& a : hand->cycle()) {
      const auto at = spanOfAction(a);
      const Span span = at ? pw::spanOf(*scene.predicted, at->span) : Span{};
      if (const auto rect = at ? where.rectOf(span.rank, span.start, span.end) : std::nullopt) centres.push_back(rect->center());
    }
    if (centres.size() == hand->cycle().size()) paintCycle(p, centres, theme.error);  // else part of it is out of sight
  }
  p.restore();
}

}  // namespace pw::gui
