#include "app/gui/timeline/hand_edit.h"

#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/document/drawn.h"
#include "app/gui/timeline/cell_times.h"
#include "schedules/check.h"
#include "schedules/error.h"
#include "simulator/timeline/timeline.h"

namespace pw::gui {
namespace {

QString namedAll(const std::set<Action>& actions) {
  return actions.size() == 1 ? actionText(*actions.begin()) : HandEdit::tr("%n actions", nullptr, static_cast<int>(actions.size()));
}

/// With a capital, and one full stop where it has no end yet.
QString sentenceOf(const std::string& reason) {
  QString text = QString::fromStdString(reason);
  if (text.isEmpty()) return text;
  text[0] = text[0].toUpper();
  return text.endsWith(QLatin1Char('.')) || text.endsWith(QLatin1Char('?')) ? text : text + QLatin1Char('.');
}

Action plain(Action a) {
  a.overlapsNext = false;
  return a;
}

}  // namespace

/// A drag in progress. Everything is as it was when the drag began.
struct HandEdit::Dragged {
  Schedule schedule;
  std::vector<std::vector<std::pair<Ns, Ns>>> times;  ///< by rank and cell
  Action action;
  std::set<Action> actions;  ///< that go with it
  Cell cell;
  LegalPlaces legal;
  bool isSound = false;  ///< the schedule has no problems, so that the legal places are
  Drop drop;
  std::optional<std::pair<Rank, std::int32_t>> tried;  ///< last
  std::optional<Refusal> refusal;                      ///< of the drop
  bool changes = false;                                ///< the document shows another schedule

  /// Whether the action may go to that place of its row, so that the schedule after it need not be checked at each step of the mouse.
  /// Within a pair, where it goes before the pair, that place is legal too: the first legal one is never within a pair.
  [[nodiscard]] bool isKnownLegal(std::int32_t place) const { return isSound && place >= legal.first && place <= legal.last; }
};

HandEdit::HandEdit(Document& document, QObject* parent) : QObject(parent), document_(document) {
  connect(&document, &Document::modelChanged, this, [this] {
    if (on_ && !document_.graph() && !document_.design().customCosts) setOn(false);
  });
  connect(&document, &Document::designChanged, this, [this] {
    if (!on_ || drag_) return;
    forgetRefusal();
    keepSelection();
  });
  connect(&document, &Document::predictionChanged, this, [this] {
    if (on_) emit changed();
  });
  connect(&improving_, &Job::progressed, this, [this](qint64 done, qint64 all, const QString&) {
    progress_ = tr("Improving the order: %1 %; press again to stop and keep what it has.").arg(all > 0 ? 100 * done / all : 0);
    emit changed();
  });
  connect(&improving_, &Job::failed, this, [this](const QString& sentence) { refuse({sentence.toStdString(), {}}); });
  connect(&improving_, &Job::finished, this, [this] {
    progress_.clear();
    emit changed();
  });
}

HandEdit::~HandEdit() = default;

void HandEdit::setOn(bool on) {
  if (on == on_) return;
  if (on) {
    const auto schedule = editableSchedule(document_);
    if (const auto* refusal = std::get_if<std::string>(&schedule)) {
      emit refused(QString::fromStdString(*refusal));
      return;
    }
  }
  if (drag_) endDrag(false);
  improving_.cancel();
  on_ = on;
  selection_.clear();
  forgetReasons();
  earlier_ = document_.before();
  emit changed();
}

// ---- What is selected ----

void HandEdit::select(const Action& action, Extends extends) {
  forgetReasons();
  if (extends == Extends::No) selection_.clear();
  if (extends == Extends::One && selection_.contains(action)) {
    selection_.erase(action);
  } else if (extends == Extends::Range && last_) {
    selectFrom(*last_, action);
    selection_.insert(action);
  } else {
    selection_.insert(action);
  }
  last_ = action;
  emit changed();
}

/// All of a row between two of its actions.
void HandEdit::selectFrom(const Action& one, const Action& other) {
  const auto shown = editableSchedule(document_);
  const auto* schedule = std::get_if<Schedule>(&shown);
  if (schedule == nullptr) return;  // the timeline still shows a schedule that the plan cannot have any more
  const auto cells = cellsOf(*schedule, {one, other});
  if (cells.size() != 2 || cells.front().rank != cells.back().rank) return;
  const auto& row = schedule->rows[cells.front().rank.index()];
  for (auto i = static_cast<std::size_t>(cells.front().position); i <= static_cast<std::size_t>(cells.back().position); ++i) {
    if (row[i].kind != ActionKind::Idle) selection_.insert(plain(row[i]));
  }
}

void HandEdit::clearSelection() {
  selection_.clear();
  last_.reset();
  forgetReasons();
  emit changed();
}

/// Actions that are no more are no longer selected: a B that was split, microbatches that went.
void HandEdit::keepSelection() {
  if (selection_.empty()) return;
  std::set<Action> present;
  const auto shown = editableSchedule(document_);
  if (const auto* schedule = std::get_if<Schedule>(&shown)) {  // else it does not go on to these ranks or microbatches
    for (const auto& row : schedule->rows) {
      for (const Action& a : row) {
        if (selection_.contains(plain(a))) present.insert(plain(a));
      }
    }
  }
  selection_ = std::move(present);
  emit changed();
}

std::vector<Cell> HandEdit::cellsOf(const Schedule& schedule, const std::set<Action>& actions) const {
  std::vector<Cell> cells;
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    for (std::size_t i = 0; i < schedule.rows[r].size(); ++i) {
      if (actions.contains(plain(schedule.rows[r][i]))) cells.push_back({Rank{r}, static_cast<std::int32_t>(i)});
    }
  }
  return cells;
}

void HandEdit::forgetReasons() {
  refusal_.clear();
  remark_.clear();
  cycle_.clear();
}

void HandEdit::forgetRefusal() {
  if (refusal_.isEmpty() && remark_.isEmpty()) return;
  forgetReasons();
  emit changed();
}

// ---- Edits ----

void HandEdit::refuse(const Refusal& refusal) {
  remark_.clear();
  refusal_ = sentenceOf(refusal.reason);
  cycle_ = refusal.cycle;
  emit changed();
  emit refused(refusal_);
}

/// Says why, where it is.
bool HandEdit::isBlocked() {
  const QString why = obstacle_ ? obstacle_() : QString();
  if (!why.isEmpty()) refuse({why.toStdString(), {}});
  return !why.isEmpty();
}

void HandEdit::say(const QString& sentence) {
  forgetReasons();
  remark_ = sentence;
  emit changed();
}

void HandEdit::accept(const QString& what, Schedule schedule) {
  forgetReasons();
  try {
    setDrawn(document_, what, std::move(schedule));
  } catch (const Error& e) {
    refuse({e.what(), {}});
  }
}

void HandEdit::change(const QString& what, const std::function<Edit(const Schedule&)>& make) {
  if (!on_ || drag_ || isBlocked()) return;
  if (selection_.empty()) return say(tr("Select an action first; Ctrl and Shift select several."));
  try {
    const auto shown = editableSchedule(document_);
    if (const auto* refusal = std::get_if<std::string>(&shown)) return refuse({*refusal, {}});
    const auto& schedule = std::get<Schedule>(shown);
    auto result = edited(schedule, make(schedule));
    if (const auto* refusal = std::get_if<Refusal>(&result)) return refuse(*refusal);
    accept(what, std::get<Schedule>(std::move(result)));
  } catch (const Error& e) {
    refuse({e.what(), {}});
  }
}

void HandEdit::shift(int places) {
  change(tr("Move %1").arg(namedAll(selection_)), [&](const Schedule& s) { return ShiftCells{cellsOf(s, selection_), places}; });
}

void HandEdit::moveStages(int ranks) {
  if (!on_ || drag_ || isBlocked()) return;  // first, as it may take what is typed, and change what is selected
  if (selection_.empty()) return say(tr("Select an action of the stage first."));
  const Stage stage = selection_.begin()->stage;
  change(tr("Move stage %1").arg(stage.value), [&](const Schedule& s) {
    const int count = static_cast<int>(s.rows.size());
    const int to = std::clamp(s.placement.rankOfStage[stage.index()].value + ranks, 0, count - 1);
    return MoveStage{stage, Rank{to}};
  });
}

void HandEdit::splitOrMerge() {
  if (!on_ || drag_ || isBlocked()) return;
  const bool splits = std::ranges::any_of(selection_, [](const Action& a) { return a.kind == ActionKind::Backward; });
  const std::set<Action> chosen = selection_;
  change(splits ? tr("Split %1 into I and W").arg(namedAll(chosen)) : tr("Merge I and W into B"), [&](const Schedule& s) -> Edit {
    if (splits) return SplitCells{cellsOf(s, chosen)};
    return MergeCells{cellsOf(s, chosen)};
  });
  // What they became stays selected.
  for (Action a : chosen) {
    if (splits && a.kind == ActionKind::Backward) {
      for (const ActionKind kind : {ActionKind::BackwardInput, ActionKind::BackwardWeight}) a.kind = kind, selection_.insert(a);
    } else if (!splits && a.kind == ActionKind::BackwardInput) {
      a.kind = ActionKind::Backward;
      selection_.insert(a);
    }
  }
  keepSelection();
}

void HandEdit::pairOrUnpair() {
  change(tr("Overlap %1").arg(namedAll(selection_)), [&](const Schedule& s) -> Edit {
    const auto cells = cellsOf(s, selection_);
    const bool pairs = std::ranges::any_of(cells, [&](Cell c) {
      const auto& row = s.rows[c.rank.index()];
      const auto at = static_cast<std::size_t>(c.position);
      return row[at].overlapsNext || (at > 0 && row[at - 1].overlapsNext);
    });
    if (pairs) return UnpairCells{cells};
    // With only an F selected, the action after it is meant.
    if (cells.size() == 1 && cells.front().position + 1 < static_cast<std::int32_t>(s.rows[cells.front().rank.index()].size()))
      return PairCells{cells.front(), {cells.front().rank, cells.front().position + 1}};
    if (cells.size() < 2) return UnpairCells{cells};
    return PairCells{cells.front(), cells.back()};
  });
}

void HandEdit::addPause() {
  if (!on_ || drag_ || isBlocked()) return;
  if (selection_.empty()) return say(tr("Select the action before which the rank is to pause."));
  change(tr("Add a pause"), [&](const Schedule& s) { return AddIdle{cellsOf(s, selection_).front(), 1}; });
}

void HandEdit::removePauses() {
  change(tr("Remove pauses"), [&](const Schedule& s) {
    std::vector<Cell> idle;
    for (const Cell cell : cellsOf(s, selection_)) {
      const auto& row = s.rows[cell.rank.index()];
      for (auto at = cell.position - 1; at >= 0 && row[static_cast<std::size_t>(at)].kind == ActionKind::Idle; --at)
        idle.push_back({cell.rank, at});
    }
    return RemoveIdle{idle};
  });
}

void HandEdit::swapTwo() {
  if (!on_ || drag_ || isBlocked()) return;
  if (selection_.size() != 2) return say(tr("Select the two actions that are to change places."));
  change(tr("Swap %1 and %2").arg(actionText(*selection_.begin()), actionText(*selection_.rbegin())), [&](const Schedule& s) {
    const auto cells = cellsOf(s, selection_);
    return SwapCells{cells.front(), cells.back()};
  });
}

void HandEdit::repeat() {
  change(tr("Repeat the order of %1").arg(namedAll(selection_)), [&](const Schedule& s) { return RepeatCells{cellsOf(s, selection_)}; });
}

void HandEdit::improve() {
  if (!on_ || drag_ || isBlocked()) return;
  const auto graph = document_.graph();
  const auto profile = document_.profile();
  if (document_.isPredicting() || !document_.problem().isEmpty())
    return refuse({tr("the plan is still being predicted; try again in a moment").toStdString(), {}});
  const auto enough = std::make_shared<std::atomic<bool>>(false);
  try {
    const auto shown = editableSchedule(document_);
    if (const auto* refusal = std::get_if<std::string>(&shown)) return refuse({*refusal, {}});
    const auto& schedule = std::get<Schedule>(shown);
    const Design design = document_.design();
    enough_ = enough;
    improving_.start(tr("Improving the order"),
                     [this, schedule, design, graph, profile, enough](JobControl& control) -> std::function<void()> {
                       OrderEffort effort;
                       effort.shouldContinue = [&](double share) {
                         control.progress(static_cast<std::int64_t>(1000 * share), 1000);
                         return !*enough && !control.isCancelled();
                       };
                       const Schedule better = improved(schedule, design, graph.get(), profile.get(), effort);
                       return [this, design, schedule, better] {
                         if (!on_ || drag_ || document_.design() != design) return;  // edited meanwhile: that counts
                         if (better.rows == schedule.rows) return say(tr("No faster order was found from here."));
                         accept(tr("Improve the order"), better);
                       };
                     });
  } catch (const Error& e) {
    refuse({e.what(), {}});
  }
  emit changed();
}

void HandEdit::stopImproving() {
  if (enough_) *enough_ = true;
}

QString HandEdit::whyNotEarlier() const {
  const auto prediction = document_.prediction();
  if (!on_ || selection_.size() != 1 || !prediction || document_.isPredicting()) return {};
  const auto shown = editableSchedule(document_);
  const auto* schedule = std::get_if<Schedule>(&shown);
  if (schedule == nullptr) return {};
  const auto cells = cellsOf(*schedule, selection_);
  return cells.size() == 1 ? pw::gui::whyNotEarlier(*schedule, cells.front(), prediction->timeline) : QString();
}

// ---- Dragging ----

bool HandEdit::beginDrag(const Action& action) {
  const auto prediction = document_.prediction();
  if (!on_ || drag_ || !prediction || document_.isPredicting() || isBlocked()) return false;
  auto drag = std::make_unique<Dragged>();
  auto shown = editableSchedule(document_);
  if (!std::holds_alternative<Schedule>(shown)) return false;
  drag->schedule = std::get<Schedule>(std::move(shown));
  const auto cells = cellsOf(drag->schedule, {plain(action)});
  if (cells.size() != 1 || prediction->timeline.ranks.size() != drag->schedule.rows.size()) return false;
  for (std::size_t r = 0; r < drag->schedule.rows.size(); ++r) {
    auto times = timesOf(drag->schedule.rows[r], prediction->timeline.ranks[r].compute);
    if (!times) return false;
    drag->times.push_back(std::move(*times));
  }
  drag->action = plain(action);
  drag->actions = selection_.contains(drag->action) ? selection_ : std::set<Action>{drag->action};
  drag->cell = cells.front();
  drag->legal = legalPlaces(drag->schedule, drag->cell);
  drag->isSound = check(drag->schedule).empty();
  const auto& times = drag->times[drag->cell.rank.index()];
  drag->drop = {drag->cell.rank, times[static_cast<std::size_t>(drag->cell.position)].first, true, false, {}};
  if (drag->actions.size() == 1) drag->drop.room = std::pair(timeOfPlace(times, drag->legal.first), timeOfPlace(times, drag->legal.last));
  if (!selection_.contains(drag->action)) selection_ = {drag->action};
  last_ = drag->action;
  forgetReasons();
  drag_ = std::move(drag);
  document_.beginDrag(tr("Move %1").arg(namedAll(drag_->actions)));
  emit changed();
  return true;
}

/// Shows the schedule as it is after the drop; where that is not possible, as it was.
bool HandEdit::tryDrop(std::variant<Schedule, Refusal> result) {
  if (auto* refusal = std::get_if<Refusal>(&result)) {
    drag_->refusal = std::move(*refusal);
    return false;
  }
  setDrawn(document_, {}, std::get<Schedule>(std::move(result)));
  drag_->changes = true;
  return true;
}

void HandEdit::dragTo(Rank row, Ns time) {
  if (!drag_) return;
  Dragged& drag = *drag_;
  if (row.index() >= drag.times.size()) return;
  const bool movesStage = row != drag.cell.rank;
  const std::int32_t place = movesStage ? 0 : placeAt(drag.times[row.index()], time);
  const std::pair tried(row, place);
  if (drag.tried == tried) return;
  drag.tried = tried;
  drag.refusal.reset();
  drag.drop.rank = row;
  drag.drop.movesStage = movesStage;
  drag.drop.at = movesStage ? time : timeOfPlace(drag.times[row.index()], place);
  const bool stays = !movesStage && (place == drag.cell.position || place == drag.cell.position + 1);
  if (stays) {
    drag.drop.isLegal = true;
  } else if (movesStage) {
    drag.drop.isLegal = tryDrop(edited(drag.schedule, MoveStage{drag.action.stage, row}));
  } else if (drag.actions.size() == 1) {
    drag.drop.isLegal = tryDrop(drag.isKnownLegal(place) ? moved(drag.schedule, drag.cell, place)
                                                         : edited(drag.schedule, MoveCells{{drag.cell}, {row, place}}));
  } else {
    const int by = place > drag.cell.position ? place - 1 - drag.cell.position : place - drag.cell.position;
    drag.drop.isLegal = tryDrop(edited(drag.schedule, ShiftCells{cellsOf(drag.schedule, drag.actions), by}));
  }
  if ((stays || !drag.drop.isLegal) && drag.changes) {
    setDrawn(document_, {}, drag.schedule);
    drag.changes = false;
  }
  emit changed();
}

void HandEdit::endDrag(bool keep) {
  if (!drag_) return;
  const std::unique_ptr<Dragged> drag = std::move(drag_);
  document_.endDrag(keep && drag->changes && drag->drop.isLegal);
  if (keep && drag->refusal) return refuse(*drag->refusal);
  keepSelection();
  emit changed();
}

std::optional<HandEdit::Drop> HandEdit::drop() const { return drag_ && drag_->tried ? std::optional(drag_->drop) : std::nullopt; }

// ---- Words ----

QString HandEdit::message() const {
  if (drag_ && drag_->refusal) return sentenceOf(drag_->refusal->reason);
  if (isImproving() && !progress_.isEmpty()) return progress_;
  if (!refusal_.isEmpty()) return refusal_;
  if (!remark_.isEmpty()) return remark_;
  return document_.before() == earlier_ ? QString() : changeText(document_);
}

bool HandEdit::isRefused() const { return (!refusal_.isEmpty() && !isImproving()) || (drag_ && drag_->refusal); }

}  // namespace pw::gui
