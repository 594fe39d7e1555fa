#pragma once

#include <QObject>
#include <QTimer>
#include <optional>

#include "app/gui/model/parts/split_rules.h"

namespace pw::gui {

class TreeView;

/// Dragging one split with the mouse: it snaps to positions where a stage may begin, and shows why it cannot be placed elsewhere. A
/// collapsed row expands when the mouse rests on it; the rows scroll at the edges.
class SplitDrag : public QObject {
  Q_OBJECT
 public:
  SplitDrag(Document& document, TreeView& view, QObject* parent = nullptr);

  /// `rules` must outlive the drag.
  void begin(const SplitRules& rules, std::size_t split);
  void moveTo(double y);  ///< of the tree's viewport
  void end(bool keep);
  [[nodiscard]] bool isActive() const { return split_.has_value(); }
  [[nodiscard]] bool isRefused() const;

 signals:
  void refusalChanged(bool refused);

 private:
  void tick();
  Document& document_;
  TreeView& view_;
  const SplitRules* rules_ = nullptr;
  std::optional<std::size_t> split_;
  double y_ = 0;
  int waitingOn_ = -1, waited_ = 0;  ///< closed row under the mouse, and for how many ticks
  bool refused_ = false;
  QTimer timer_;
};

}  // namespace pw::gui
