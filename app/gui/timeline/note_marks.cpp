#include "app/gui/timeline/note_marks.h"

#include <QAction>
#include <QFontMetrics>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QToolTip>
#include <algorithm>
#include <tuple>
#include <utility>

#include "app/gui/timeline/drawing/note_flags.h"
#include "app/gui/timeline/facts/navigation.h"

namespace pw::gui {
namespace {

constexpr int kFieldWidth = 280;  ///< pixels

}  // namespace

// ---- The field -----------------------------------------------------------------------------------------------------

NoteField::NoteField(QWidget* parent) : QLineEdit(parent) {
  setAccessibleName(tr("Note"));
  setPlaceholderText(tr("Note: Enter keeps it, Esc does not"));
  setMaxLength(static_cast<int>(kLongestNote));
  hide();
}

void NoteField::open(const QPoint& at, int room, const QString& text) {
  const int width = std::min(kFieldWidth, room);
  setGeometry(std::max(0, std::min(at.x(), parentWidget()->width() - width)), at.y(), width, sizeHint().height());
  setText(text);
  show();
  raise();
  setFocus(Qt::OtherFocusReason);
  selectAll();
}

void NoteField::finish(bool keeps) {
  if (isHidden()) return;
  const QString wrote = text();
  hide();  // first: the focus goes, too
  if (keeps) emit written(wrote);
  emit closed();
}

bool NoteField::event(QEvent* event) {
  if (event->type() == QEvent::ShortcutOverride) {  // not for the timeline's keys
    const auto& key = *static_cast<QKeyEvent*>(event);
    if (key.modifiers() == Qt::NoModifier || key.modifiers() == Qt::ShiftModifier || key.modifiers() == Qt::KeypadModifier) {
      event->accept();
      return true;
    }
  }
  return QLineEdit::event(event);
}

void NoteField::keyPressEvent(QKeyEvent* event) {
  event->accept();
  if (event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter) return finish(true);
  if (event->key() == Qt::Key_Escape) return finish(false);
  QLineEdit::keyPressEvent(event);
  event->accept();  // what a line does not need is not for the timeline
}

void NoteField::focusOutEvent(QFocusEvent* event) {
  QLineEdit::focusOutEvent(event);
  if (event->reason() != Qt::PopupFocusReason && event->reason() != Qt::ActiveWindowFocusReason) finish(!text().trimmed().isEmpty());
}

// ---- The notes -----------------------------------------------------------------------------------------------------

NoteMarks::NoteMarks(Document& document, Scene& scene, Place& place, Selection& selection, Mouse& mouse, TimelineCanvas& canvas)
    : document_(document),
      scene_(scene),
      place_(place),
      selection_(selection),
      mouse_(mouse),
      canvas_(canvas),
      field_(new NoteField(&canvas)) {
  connect(field_, &NoteField::written, this, &NoteMarks::take);
  connect(field_, &NoteField::closed, this, [this] { canvas_.setFocus(Qt::OtherFocusReason); });
  connect(&document, &Document::designChanged, this, &NoteMarks::refresh);
}

void NoteMarks::addCommands(CommandList& commands) {
  commands.beginGroup(kNoteCommands);
  commands.add(tr("Note…"), {QKeySequence(Qt::Key_N)}, [this] { write(); });
  commands.add(tr("Bookmark"), {QKeySequence(Qt::CTRL | Qt::Key_F2)}, [this] { bookmark(); });
  commands.add(tr("Next note"), {QKeySequence(Qt::Key_F2)}, [this] { step(1); });
  commands.add(tr("Previous note"), {QKeySequence(Qt::SHIFT | Qt::Key_F2)}, [this] { step(-1); });
  commands.add(tr("Delete note"), {QKeySequence(Qt::Key_Delete)}, [this] { remove(); });
}

void NoteMarks::refresh() {
  const std::vector<Note>& notes = document_.design().notes;
  if (current_ && *current_ >= notes.size()) current_.reset();
  if (edited_ && *edited_ >= notes.size()) edited_.reset();
  std::vector<NoteFlag> flags;
  const auto measured = document_.measured();
  for (std::size_t i = 0; i < notes.size(); ++i) {
    if (!isAbout(notes[i], measured.get())) continue;
    const auto span = notes[i].block ? spanNamed(scene_, *notes[i].block) : std::nullopt;
    const auto bubble = span ? bubbleOf(notes[i].place, *span) : std::nullopt;
    const Timeline* timeline = span ? timelineFrom(scene_, span->source) : nullptr;
    const Ns time = bubble ? gapOf(*timeline, *bubble).first : span ? spanOf(*timeline, span->span).start : notes[i].time;
    flags.push_back({QString::fromStdString(notes[i].text), time, span, current_ == i, i, bubble});
  }
  if (current_ && std::ranges::find(flags, *current_, &NoteFlag::note) == flags.end()) current_.reset(), isFresh_ = false;
  if (flags == scene_.notes) return;
  const bool hadLane = !scene_.notes.empty();
  scene_.notes = std::move(flags);
  if (hadLane != !scene_.notes.empty()) place_.resized();
  canvas_.updateSoon();
}

/// The bubble beside a block; nothing: the block is meant, or follows the one before it at once.
std::optional<BubbleRef> NoteMarks::bubbleOf(Note::Place place, const SourcedSpan& span) const {
  if (place == Note::Place::Block) return std::nullopt;
  const BubbleRef bubble{span.source, span.span.rank, span.span.index + (place == Note::Place::BubbleAfter ? 1 : 0)};
  const auto [from, to] = gapOf(*timelineFrom(scene_, span.source), bubble);
  return from < to ? std::optional(bubble) : std::nullopt;
}

/// At a bubble: beside the block that it is before, or the last one of its row.
void NoteMarks::putAt(const BubbleRef& gap, Note& note) const {
  const Timeline& timeline = *timelineFrom(scene_, gap.source);
  note.time = gapOf(timeline, gap).first;
  const auto size = static_cast<std::int32_t>(timeline.ranks[gap.rank.index()].compute.size());
  if (size == 0) return;
  note.place = gap.next < size ? Note::Place::BubbleBefore : Note::Place::BubbleAfter;
  note.block = blockName(scene_, {gap.source, {gap.rank, TrackKind::Compute, std::min(gap.next, size - 1)}});
}

const NoteFlag* NoteMarks::flagOf(std::size_t note) const {
  const auto found = std::ranges::find(scene_.notes, note, &NoteFlag::note);
  return found == scene_.notes.end() ? nullptr : &*found;
}

/// Whether what is selected is the prediction's, which does not change with the run.
bool NoteMarks::isAboutPlan() const {
  const auto& gap = selection_.gap();
  return scene_.selected ? scene_.selected->source == Source::Predicted : gap && gap->source == Source::Predicted;
}

/// The selected block or bubble, the beginning of the selected range, what the mouse is at, or the middle of what is shown.
Note NoteMarks::place() const {
  Note note;
  if (scene_.selected) {
    note.block = blockName(scene_, *scene_.selected);
    note.time = spanOf(*timelineFrom(scene_, scene_.selected->source), scene_.selected->span).start;
  } else if (const auto& gap = selection_.gap()) {
    putAt(*gap, note);
  } else if (scene_.range) {
    note.time = scene_.range->first;
  } else {
    const Geometry where = place_.geometry();
    const QRect tracks = where.tracks();
    const auto& at = pointed_ ? pointed_ : mouse_.at();
    const bool isInside = at && at->x() >= tracks.left() && at->x() <= tracks.right();
    note.time = where.timeAt(isInside ? at->x() : tracks.center().x());
  }
  note.time = std::clamp<Ns>(note.time, 0, endOf(scene_));
  if (const auto measured = document_.measured(); measured && !isAboutPlan()) setAbout(note, *measured);
  return note;
}

/// The note of the selected block or time; without a selection the one that was gone to just now, or at the mouse.
std::optional<std::size_t> NoteMarks::noteHere() const {
  const auto shownNote = [this](const auto& isHere) -> std::optional<std::size_t> {
    const NoteFlag* const last = current_ ? flagOf(*current_) : nullptr;  // of several here, the one gone to
    if (last != nullptr && isHere(*last)) return current_;
    const auto found = std::ranges::find_if(scene_.notes, isHere);
    return found == scene_.notes.end() ? std::nullopt : std::optional(found->note);
  };
  const auto& at = pointed_ ? pointed_ : mouse_.at();
  if (selection_.isEmpty() && isFresh_) return current_;
  if (selection_.isEmpty() && at) return noteAt(place_.geometry(), *at);
  const Note here = place();
  const bool isAtBlock = here.block && here.place == Note::Place::Block;
  return shownNote([&](const NoteFlag& flag) {
    const Note& note = document_.design().notes[flag.note];
    if (!note.block) return !isAtBlock && note.time == here.time;
    const Note::Place shown = flag.bubble ? note.place : Note::Place::Block;  // a bubble that has closed is shown at its block
    return note.block == here.block && shown == here.place;
  });
}

void NoteMarks::edit(std::optional<std::size_t> note, const Note& where) {
  const Geometry at = place_.geometry();
  const NoteFlag* const flag = note ? flagOf(*note) : nullptr;
  const Ns time = flag != nullptr ? flag->time : where.time;
  const int x = at.tracks().left() + static_cast<int>(std::clamp(at.view.xOf(time), 0.0, static_cast<double>(at.view.width)));
  edited_ = note;
  new_ = where;
  field_->open({x, at.tracks().top()}, at.tracks().width(), flag != nullptr ? flag->text : QString());
}

void NoteMarks::write() {
  if (isEmpty(scene_)) return;
  edit(noteHere(), place());
}

void NoteMarks::take(const QString& text) {
  if (edited_) return changeNote(document_, *std::exchange(edited_, std::nullopt), text);
  new_.text = noteText(text);
  if (!new_.text.empty()) add(new_);
}

void NoteMarks::add(Note note) {
  isFresh_ = true;
  current_ = document_.design().notes.size();
  if (!addNote(document_, std::move(note))) emit refused(tr("There are %1 notes already; delete one first.").arg(kMostNotes));
}

void NoteMarks::bookmark() {
  if (isEmpty(scene_)) return;
  const auto here = noteHere();
  if (here && document_.design().notes[*here].text.empty()) return removeNote(document_, *here);
  if (here && scene_.selected)
    return emit refused(tr("The block has a note already, so it needs no bookmark; N writes that note, Delete deletes it."));
  add(place());
}

void NoteMarks::goTo(std::size_t note) {
  const std::vector<Note>& notes = document_.design().notes;
  if (note >= notes.size()) return;
  const NoteFlag* const shown = flagOf(note);
  if (shown == nullptr) return emit refused(tr("This note is about %1; %2.").arg(subjectOf(notes[note]), howToShow(notes[note])));
  const NoteFlag flag = *shown;
  current_ = note;
  isFresh_ = true;
  if (flag.bubble) {
    selection_.selectGap(*flag.bubble);
  } else if (flag.span) {
    selection_.selectSpan(flag.span);
  } else {
    selection_.clear();
    place_.revealTime(flag.time, flag.time + 1);
  }
  refresh();
}

void NoteMarks::step(int direction) {
  if (scene_.notes.empty()) return;
  std::vector<std::tuple<Ns, std::size_t>> order;
  for (const NoteFlag& flag : scene_.notes) order.emplace_back(flag.time, flag.note);
  std::ranges::sort(order);
  const NoteFlag* const now = current_ ? flagOf(*current_) : nullptr;
  if (now == nullptr) return goTo(std::get<1>(direction > 0 ? order.front() : order.back()));
  const auto at = std::ranges::find(order, std::tuple(now->time, now->note)) - order.begin();
  const auto count = std::ssize(order);
  goTo(std::get<1>(order[static_cast<std::size_t>((at + direction + count) % count)]));
}

void NoteMarks::remove() {
  const auto here = noteHere();
  const auto note = here ? here : selection_.isEmpty() ? current_ : std::nullopt;
  if (!note || flagOf(*note) == nullptr) return;
  current_.reset();
  removeNote(document_, *note);
}

void NoteMarks::openedMenu(const QPoint& at) {
  if (!isFresh_) pointed_ = at;
}

bool NoteMarks::handle(QEvent* event) {
  const auto type = event->type();
  if (type == QEvent::MouseMove) {
    pointed_.reset();
    isFresh_ = false;
  }
  if (scene_.notes.empty()) return false;
  if (type == QEvent::ToolTip) {
    const auto& help = *static_cast<QHelpEvent*>(event);
    const auto note = noteAt(place_.geometry(), help.pos());
    if (note) QToolTip::showText(help.globalPos(), flagOf(*note)->text.toHtmlEscaped(), &canvas_);
    return note.has_value();
  }
  if (type != QEvent::MouseButtonPress && type != QEvent::MouseButtonRelease && type != QEvent::MouseButtonDblClick) return false;
  const auto& mouse = *static_cast<QMouseEvent*>(event);
  if (type == QEvent::MouseButtonRelease) return std::exchange(pressed_, false);
  const auto note = noteAt(place_.geometry(), mouse.position().toPoint());
  if (!note || mouse.button() == Qt::MiddleButton) return false;
  pressed_ = mouse.button() == Qt::LeftButton;
  canvas_.setFocus(Qt::MouseFocusReason);
  goTo(*note);
  if (type == QEvent::MouseButtonDblClick) edit(note, {});
  return true;
}

}  // namespace pw::gui
