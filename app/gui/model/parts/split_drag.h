#pragma once

#include <QAbstractScrollArea>
#include <QObject>
#include <QTimer>
#include <functional>
#include <optional>

#include "app/gui/model/parts/split_rules.h"

namespace pw::gui {

/// What a drag shows over the model, in addition to the splits.
struct DropMark {
  NodeId node;
  QString refusal;  ///< empty: a stage may begin there

  bool operator==(const DropMark&) const = default;
};

/// The view that a split is dragged over. All y are of its viewport, in pixels.
struct SplitSurface {
  QAbstractScrollArea* area = nullptr;
  std::function<int()> edge;                                         ///< so near the viewport's ends it scrolls
  std::function<NodeId(double y)> nearest;                           ///< the place where a split can stand
  std::function<int(double y)> closedUnder;                          ///< the folded row there; −1: none
  std::function<void(int row)> open;                                 ///< unfolds it
  std::function<void(const std::optional<DropMark>& mark)> setMark;  ///< nothing: no drag
};

/// Dragging one split with the mouse: it snaps to positions where a stage may begin, and shows why it cannot be placed elsewhere. A
/// collapsed row expands when the mouse rests on it; the rows scroll at the edges.
class SplitDrag : public QObject {
  Q_OBJECT
 public:
  SplitDrag(Document& document, SplitSurface surface, QObject* parent = nullptr);

  /// `rules` must outlive the drag.
  void begin(const SplitRules& rules, std::size_t split);
  void moveTo(double y);  ///< of the view's viewport
  void end(bool keep);
  [[nodiscard]] bool isActive() const { return split_.has_value(); }
  [[nodiscard]] bool isRefused() const;

 signals:
  void refusalChanged(bool refused);

 private:
  void tick();
  Document& document_;
  const SplitSurface surface_;
  const SplitRules* rules_ = nullptr;
  std::optional<std::size_t> split_;
  double y_ = 0;
  int waitingOn_ = -1, waited_ = 0;  ///< closed row under the mouse, and for how many ticks
  bool refused_ = false;
  QTimer timer_;
};

}  // namespace pw::gui
