#include "app/gui/timeline/editing.h"

#include <QAction>
#include <QMouseEvent>
#include <QPainter>
#include <utility>
#include <vector>

#include "app/gui/timeline/drawing/edit_marks.h"
#include "app/gui/timeline/facts/actions.h"

namespace pw::gui {
namespace {

using Emphasis = Selection::Emphasis;

constexpr int kMovingActions = 4;  ///< the first ones: what a drag does; they have keys and a place in the menu, no buttons

}  // namespace

Editing::Editing(HandEdit& hand, const Scene& scene, const ShownTimelines& shown, Selection& selection)
    : hand_(hand), scene_(scene), shown_(shown), selection_(selection) {
  connect(&selection, &Selection::changed, this, [this] { followSelection(); });
}

/// An edit is of the block that is selected now, however it was: by a key, a search, or in the text of the schedule.
void Editing::followSelection() {
  hand_.forgetRefusal();
  if (scene_.selected == std::exchange(followed_, scene_.selected)) return;
  if (!hand_.isOn() || hand_.isDragging() || !scene_.selected) return;
  const auto action = actionOf(*scene_.selected);
  if (action && !hand_.selection().contains(*action)) hand_.select(*action);
}

// ---- Commands ------------------------------------------------------------------------------------------------------

void Editing::addCommands(CommandList& commands) {
  commands.beginGroup(kHandToggle);
  commands.addToggle(
      tr("Edit by hand"), QKeySequence(Qt::Key_E), [this] { return hand_.isOn(); },
      [this](bool on) {
        hand_.setOn(on);
        if (on && hand_.isOn()) takeSelection();
      });
  commands.beginGroup(kHandCommands);
  addMovingCommands(commands);
  addRowCommands(commands);
}

/// What was selected before is what the first edit is of.
void Editing::takeSelection() {
  std::vector<SourcedSpan> spans = selection_.emphasis() == Emphasis::Chosen ? selection_.emphasized() : std::vector<SourcedSpan>();
  if (spans.empty() && scene_.selected) spans.push_back(*scene_.selected);
  for (const SourcedSpan& span : spans) {
    if (const auto action = actionOf(span)) hand_.select(*action, HandEdit::Extends::One);
  }
}

/// With Shift and a key.
void Editing::add(CommandList& commands, const QString& text, const QString& about, int key, const std::function<void()>& act) {
  QAction* action = commands.add(text, {QKeySequence(static_cast<int>(Qt::SHIFT) | key)}, act);
  action->setStatusTip(about);
  actions_.push_back(action);
}

void Editing::addMovingCommands(CommandList& commands) {
  add(commands, tr("Move earlier"), tr("Each selected action goes one place earlier in its row"), Qt::Key_Left,
      [this] { hand_.shift(-1); });
  add(commands, tr("Move later"), tr("Each selected action goes one place later in its row"), Qt::Key_Right, [this] { hand_.shift(1); });
  add(commands, tr("Stage up"), tr("The whole stage of the selected action moves to the rank before"), Qt::Key_Up,
      [this] { hand_.moveStages(-1); });
  add(commands, tr("Stage down"), tr("The whole stage of the selected action moves to the next rank"), Qt::Key_Down,
      [this] { hand_.moveStages(1); });
}

void Editing::addRowCommands(CommandList& commands) {
  add(commands, tr("Split or merge B"), tr("Each selected B becomes I and W; where no B is selected, I and W become B"), Qt::Key_S,
      [this] { hand_.splitOrMerge(); });
  add(commands, tr("Overlap"), tr("An F and a B of one rank become an overlapped pair, or a pair becomes two actions"), Qt::Key_O,
      [this] { hand_.pairOrUnpair(); });
  add(commands, tr("Swap"), tr("The two selected actions of a rank change places"), Qt::Key_X, [this] { hand_.swapTwo(); });
  add(commands, tr("Repeat"), tr("The order of the selected actions is repeated for the microbatches that follow"), Qt::Key_R,
      [this] { hand_.repeat(); });
  add(commands, tr("Why not earlier?"), tr("What keeps the selected action from an earlier place"), Qt::Key_W, [this] {
    const QString why = hand_.whyNotEarlier();
    bar_->setMessage(why.isEmpty() ? tr("Select one action to see what keeps it from an earlier place.") : why, false);
  });
  add(commands, tr("Improve"), tr("Search for a faster order from here; again stops it and keeps what it has"), Qt::Key_I,
      [this] { hand_.isImproving() ? hand_.stopImproving() : hand_.improve(); });
  add(commands, tr("Pause"), tr("An empty cell goes before the selected action; it shows a pause and has no effect on a run"), Qt::Key_P,
      [this] { hand_.addPause(); });
  add(commands, tr("No pause"), tr("The empty cells right before the selected actions go"), Qt::Key_Backspace,
      [this] { hand_.removePauses(); });
}

EditBar* Editing::makeBar(QWidget* parent) {
  bar_ = new EditBar(actions_.mid(kMovingActions), parent);
  return bar_;
}

void Editing::show() {
  const bool on = hand_.isOn();
  bar_->setVisible(on);
  for (QAction* action : std::as_const(actions_)) action->setEnabled(on);
  bar_->setMessage(hand_.message(), hand_.isRefused());
  if (!hand_.isRefused() && selection_.emphasis() == Emphasis::Cycle) selection_.emphasize(Emphasis::None, {});
  if (!hand_.isRefused() || hand_.cycle().empty() || hand_.isDragging()) return;
  std::vector<SourcedSpan> cycle;  // on the timeline as it is
  for (const Action& a : hand_.cycle()) {
    if (const auto span = spanOf(a)) cycle.push_back(*span);
  }
  selection_.emphasize(Emphasis::Cycle, std::move(cycle));
}

// ---- Blocks and actions --------------------------------------------------------------------------------------------

std::optional<Action> Editing::actionOf(const SourcedSpan& span) const {
  if (span.source != Source::Predicted || !scene_.predicted) return std::nullopt;
  return pw::gui::actionOf(*scene_.predicted, span.span);
}

std::optional<SourcedSpan> Editing::spanOf(const Action& action) const {
  if (!scene_.predicted || !shown_.prediction()) return std::nullopt;
  const auto span = blockOf(*scene_.predicted, shown_.prediction()->rows->placement, action);
  return span ? std::optional(SourcedSpan{Source::Predicted, *span}) : std::nullopt;
}

// ---- Mouse ---------------------------------------------------------------------------------------------------------

Editing::Pressed Editing::press(const QMouseEvent& event, const Geometry& where) {
  const QPoint at = event.position().toPoint();
  hand_.forgetRefusal();
  if (!hand_.isOn() || event.button() != Qt::LeftButton || !where.tracks().contains(at)) return Pressed::Elsewhere;
  const Hit hit = where.hitAt(at);
  const auto action = hit.span ? actionOf(*hit.span) : std::nullopt;
  if (!action) return Pressed::Elsewhere;
  const auto modifiers = event.modifiers();
  if (modifiers & (Qt::ControlModifier | Qt::ShiftModifier)) {
    hand_.select(*action, modifiers & Qt::ControlModifier ? HandEdit::Extends::One : HandEdit::Extends::Range);
    return Pressed::OnBlock;
  }
  if (!hand_.selection().contains(*action)) hand_.select(*action);
  taken_ = action;
  return Pressed::Takes;
}

bool Editing::dragTo(const QPoint& at, const Geometry& where) {
  if (!hand_.isDragging()) {
    if (!hand_.beginDrag(*taken_)) return false;
    if (const auto span = spanOf(*taken_)) selection_.selectInPlace(*span);
  }
  if (const auto rank = where.rankAt(at.y())) hand_.dragTo(*rank, where.timeAt(at.x()));
  return true;
}

bool Editing::release() {
  if (hand_.isDragging()) {
    hand_.endDrag(true);
    return true;
  }
  if (taken_ && hand_.selection().size() > 1) hand_.select(*taken_);  // a click on one of several
  return false;
}

void Editing::clearSelection() {
  if (hand_.isOn() && (!hand_.selection().empty() || hand_.isRefused())) hand_.clearSelection();
}

// ---- Painting ------------------------------------------------------------------------------------------------------

void Editing::paint(QPainter& p, const Geometry& where, const Theme& theme) const {
  if (!hand_.isOn() || !scene_.predicted) return;
  p.save();
  p.setClipRect(where.tracks());
  p.setRenderHint(QPainter::Antialiasing);
  if (!hand_.selection().empty()) {
    p.setPen(QPen(theme.focus, 2));
    p.setBrush(Qt::NoBrush);
    paintOutlines(p, where, *scene_.predicted, [this](const SpanRef& span) {
      const auto action = actionOf(SourcedSpan{Source::Predicted, span});
      return action && hand_.selection().contains(*action);
    });
  }
  if (const auto drop = hand_.drop()) {
    if (drop->room && !drop->movesStage) paintRoom(p, where, drop->rank, *drop->room, theme);
    if (drop->movesStage)
      paintGoal(p, where, drop->rank, drop->isLegal, theme);
    else
      paintDrop(p, where, drop->rank, drop->at, drop->isLegal, theme);
  }
  if (!hand_.isDragging() && selection_.emphasis() == Emphasis::Cycle) {
    std::vector<QPointF> centres;
    for (const Action& a : hand_.cycle()) {
      const auto at = spanOf(a);
      const Span span = at ? pw::spanOf(*scene_.predicted, at->span) : Span{};
      if (const auto rect = at ? where.rectOf(span.rank, span.start, span.end) : std::nullopt) centres.push_back(rect->center());
    }
    if (centres.size() == hand_.cycle().size()) paintCycle(p, centres, theme.error);  // else part of it is out of sight
  }
  p.restore();
}

}  // namespace pw::gui
