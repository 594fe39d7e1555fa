#pragma once

#include <QObject>
#include <functional>
#include <vector>

#include "app/gui/model/parts/split_drag.h"

namespace pw::gui {

class SplitCommands;
class SplitHandle;

/// What the handles of one view do: drags over it, steps, removal. The view's `reveal` shows the place before a node.
class HandleLinks : public QObject {
  Q_OBJECT
 public:
  HandleLinks(Document& document, SplitCommands& commands, SplitSurface surface, std::function<void(NodeId)> reveal);

  /// Connects the new, last one of a view's handles; with the Tab key it comes after the one before it, the first after the view.
  void adopt(SplitHandle* handle, const std::vector<SplitHandle*>& handles, QWidget& view);
  [[nodiscard]] SplitDrag& drag() { return drag_; }

 signals:
  void dragStarted();
  void menuRequested(int split, const QPoint& global);

 private:
  void show(int split);
  Document& document_;
  SplitCommands& commands_;
  QAbstractScrollArea& area_;
  std::function<void(NodeId)> reveal_;
  SplitDrag drag_;
};

}  // namespace pw::gui
