#pragma once

#include <QTreeView>
#include <optional>

#include "app/gui/model/parts/row_geometry.h"
#include "app/gui/model/parts/split_drag.h"
#include "app/gui/model/row_delegate.h"
#include "app/gui/model/tree_model.h"

class QMenu;

namespace pw::gui {

/// The tree with the lines of the splits over it. All y are of the viewport, in pixels.
class TreeView : public QTreeView {
  Q_OBJECT
 public:
  explicit TreeView(TreeModel& model, QWidget* parent = nullptr);

  [[nodiscard]] int rowHeight() const;
  [[nodiscard]] double yOf(NodeId node) const;  ///< where the place before a node is
  [[nodiscard]] double rowAt(double y) const;   ///< in row heights from the first row's top
  [[nodiscard]] const VisibleRows& visibleRows() const;
  [[nodiscard]] RowDelegate& rows() { return *delegate_; }

  /// Opens what is around the place before a node, so that it lies between two rows, and scrolls to it.
  void reveal(NodeId node);
  void openAround(int row);
  void open(int row);
  void goTo(int row);                   ///< opens what is around the row and makes it the current one
  void fillMenu(QMenu& menu, int row);  ///< what can be done with a row, apart from splits
  /// For dragging splits over it.
  [[nodiscard]] SplitSurface surface();
  /// Shows a drag's place; nothing: no drag.
  void setDropMark(const std::optional<DropMark>& mark);
  [[nodiscard]] const std::optional<DropMark>& dropMark() const { return mark_; }
  /// Repaints what changes when splits move from one set of places to another.
  void updateSplits(const std::vector<NodeId>& before, const std::vector<NodeId>& after);
  /// The row with the cursor; −1: none.
  [[nodiscard]] int currentRow() const;

 signals:
  void rowsChanged();  ///< visible rows changed: expanded or collapsed; emitted once for many, after the event
  void scrolled();     ///< or of another height
  void splitRequested(int row);
  void removeRequested(int row);
  void findRequested();
  void menuRequested(int row, const QPoint& global);

 protected:
  bool event(QEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void contextMenuEvent(QContextMenuEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void scrollContentsBy(int dx, int dy) override;
  void updateGeometries() override;

 private:
  void rowsMayDiffer();
  void paintMark(QPainter& painter) const;
  [[nodiscard]] QRect sentenceArea(const DropMark& mark) const;  ///< of a refusal, with its frame
  TreeModel& model_;
  RowDelegate* delegate_;
  mutable VisibleRows visible_;
  mutable bool isStale_ = true;
  bool willTell_ = false;  ///< rowsChanged is pending
  std::optional<DropMark> mark_;
};

}  // namespace pw::gui
