#pragma once

#include <QList>
#include <QObject>
#include <optional>

#include "app/gui/common/command_list.h"
#include "app/gui/timeline/drawing/geometry.h"
#include "app/gui/timeline/edit_bar.h"
#include "app/gui/timeline/hand_edit.h"
#include "app/gui/timeline/selection.h"

class QMouseEvent;
class QPainter;

namespace pw::gui {

/// Groups of its commands: the switch, and what is done while it is on.
inline const QString kHandToggle = QStringLiteral("by hand"), kHandCommands = QStringLiteral("editing by hand");

/// Editing by hand on the canvas: the blocks of the predicted rows as actions of the schedule, that mouse and commands take and move.
class Editing : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Editing)
 public:
  Editing(HandEdit& hand, const Scene& scene, const ShownTimelines& shown, Selection& selection);

  void addCommands(CommandList& commands);
  [[nodiscard]] EditBar* makeBar(QWidget* parent);  ///< once, after `addCommands`; shown while editing
  void show();                                      ///< what is edited, selected or said of it, after a change

  // ---- Mouse ----
  enum class Pressed : std::uint8_t { Elsewhere, OnBlock, Takes };
  /// While editing, a press on a predicted block takes the block, or changes what is selected; elsewhere it is not for this class.
  Pressed press(const QMouseEvent& event, const Geometry& where);
  /// Takes the pressed block to a point; false: the prediction is not of this schedule yet.
  bool dragTo(const QPoint& at, const Geometry& where);
  [[nodiscard]] bool isDragging() const { return hand_.isDragging(); }
  bool release();                              ///< of a block that is taken; false: it was a click, not a drag
  void cancelDrag() { hand_.endDrag(false); }  ///< which changes nothing then
  void clearSelection();                       ///< of actions, and what was refused

  void paint(QPainter& painter, const Geometry& where, const Theme& theme) const;

 private:
  void addMovingCommands(CommandList& commands);
  void addRowCommands(CommandList& commands);
  void takeSelection();
  void followSelection();
  void add(CommandList& commands, const QString& text, const QString& about, int key, const std::function<void()>& act);
  [[nodiscard]] std::optional<Action> actionOf(const SourcedSpan& span) const;
  [[nodiscard]] std::optional<SourcedSpan> spanOf(const Action& action) const;

  HandEdit& hand_;
  const Scene& scene_;
  const ShownTimelines& shown_;
  Selection& selection_;
  std::optional<SourcedSpan> followed_;  ///< the block that was selected last
  QList<QAction*> actions_;
  EditBar* bar_ = nullptr;
  std::optional<Action> taken_;
};

}  // namespace pw::gui
