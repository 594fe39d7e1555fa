#pragma once

#include <QLineEdit>
#include <QObject>
#include <optional>

#include "app/gui/common/command_list.h"
#include "app/gui/document/document.h"
#include "app/gui/timeline/mouse.h"

namespace pw::gui {

/// A line over the canvas in which a note is written: Enter keeps it, and so does going elsewhere; Escape does not.
class NoteField : public QLineEdit {
  Q_OBJECT
 public:
  explicit NoteField(QWidget* parent);
  void open(const QPoint& at, int room, const QString& text);

 signals:
  void written(const QString& text);
  void closed();

 protected:
  bool event(QEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;

 private:
  void finish(bool keeps);
};

inline const QString kNoteCommands = QStringLiteral("notes");

/// The document's notes and bookmarks on the timeline: added, written, gone to and deleted by mouse and key. Of a scene it writes `notes`.
/// What is written beside a run is about that run, and shown with it alone, except where the prediction's own block or bubble is selected.
class NoteMarks : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(NoteMarks)
 public:
  NoteMarks(Document& document, Scene& scene, Place& place, Selection& selection, Mouse& mouse, TimelineCanvas& canvas);

  void addCommands(CommandList& commands);
  /// Where the notes are, after the notes or the timelines have changed.
  void refresh();
  /// A click on a flag goes to its note, a double click writes it, a tool tip shows all of it; false: not on a flag.
  bool handle(QEvent* event);

  void openedMenu(const QPoint& at);  ///< what is added next is there

  void write();     ///< the current note where it is at the current place, else a new one there
  void bookmark();  ///< sets one at the current place, or deletes that which is there
  void goTo(std::size_t note);
  void step(int direction);  ///< to the next note in time, or the previous one, around the ends
  void remove();             ///< the current one
  [[nodiscard]] std::optional<std::size_t> current() const { return current_; }  ///< that was gone to, or added, last

 signals:
  void refused(const QString& sentence);

 private:
  [[nodiscard]] Note place() const;
  [[nodiscard]] std::optional<BubbleRef> bubbleOf(Note::Place place, const SourcedSpan& span) const;
  void putAt(const BubbleRef& gap, Note& note) const;
  [[nodiscard]] bool isAboutPlan() const;
  [[nodiscard]] const NoteFlag* flagOf(std::size_t note) const;  ///< null: it is not shown
  [[nodiscard]] std::optional<std::size_t> noteHere() const;
  void edit(std::optional<std::size_t> note, const Note& where);
  void take(const QString& text);
  void add(Note note);

  Document& document_;
  Scene& scene_;
  Place& place_;
  Selection& selection_;
  Mouse& mouse_;
  TimelineCanvas& canvas_;
  NoteField* field_;
  std::optional<std::size_t> current_, edited_;  ///< `edited_`: in the field; nothing there: a new one
  Note new_;
  std::optional<QPoint> pointed_;  ///< by a menu, until the mouse moves
  bool isFresh_ = false;           ///< the current note was gone to or added just now: the mouse did not move since
  bool pressed_ = false;
};

}  // namespace pw::gui
