#pragma once

#include <QObject>
#include <QPoint>
#include <optional>

#include "app/gui/timeline/editing.h"
#include "app/gui/timeline/place.h"
#include "app/gui/timeline/selection.h"

class QEvent;
class QHelpEvent;
class QMouseEvent;
class QWheelEvent;

namespace pw::gui {

/// The mouse on the canvas: clicks select, drags move the view, sum up a range, order ranks or take blocks that are edited; the wheel
/// scrolls and zooms; what is under it is marked and explained.
class Mouse : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Mouse)
 public:
  Mouse(TimelineCanvas& canvas, const Scene& scene, Knowledge& knowledge, Place& place, Selection& selection, Editing& editing);

  bool handle(QEvent* event);         ///< false: left to the canvas
  void openedMenu(const QPoint& at);  ///< what the context menu at a point is about comes to be selected
  bool cancelDrag();                  ///< of blocks that are edited; false: there is none
  void zoom(double factor);           ///< at the mouse, or in the middle
  void zoomRows(double factor);       ///< likewise
  [[nodiscard]] const std::optional<QPoint>& at() const { return mouse_; }  ///< nothing: not over the canvas
  [[nodiscard]] std::optional<Rank> currentRank() const;                    ///< the selected one, or the one under the mouse

 signals:
  void memoryClicked(Rank rank);

 private:
  enum class Drag : std::uint8_t { None, Press, Pan, Range, Label, Take };  ///< Take: a block that is edited
  void pressed(const QMouseEvent& event);
  void moved(const QMouseEvent& event);
  void orderRanks(const QPoint& at);
  void released(const QMouseEvent& event);
  void clicked(const QPoint& at, Qt::KeyboardModifiers modifiers);
  void doubleClicked(const QMouseEvent& event);
  void hover(const QPoint& at);
  void left();
  void turned(const QWheelEvent& event);
  void showTooltip(const QHelpEvent& event);
  [[nodiscard]] QString tooltipAt(const Hit& hit);
  [[nodiscard]] std::optional<BubbleRef> gapAt(const Hit& hit) const;

  TimelineCanvas& canvas_;
  const Scene& scene_;
  Knowledge& knowledge_;
  Place& place_;
  Selection& selection_;
  Editing& editing_;
  Drag drag_ = Drag::None;
  QPoint pressedAt_, lastAt_;
  std::optional<QPoint> mouse_;
  std::optional<Rank> draggedRank_;
};

}  // namespace pw::gui
