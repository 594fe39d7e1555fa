#pragma once

#include <QAbstractScrollArea>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "app/gui/model/graph/graph_painter.h"
#include "app/gui/model/parts/split_drag.h"

namespace pw::gui {

class SplitHandle;

/// The model as a graph in order of execution, from top to bottom: calls folded to the layers, what flows between them, and the cuts of the
/// splits across it as handles. All y are of the viewport, in pixels.
class GraphView : public QAbstractScrollArea {
  Q_OBJECT
 public:
  /// Tree and findings may change; `treeChanged` and `update` say so.
  GraphView(const CallTree& tree, const RowFindings& findings, QWidget* parent = nullptr);

  void treeChanged(bool sameModel);  ///< the same model's keeps what is unfolded and chosen
  void setFlow(ModelFlow flow);
  [[nodiscard]] const ModelFlow& flow() const { return flow_; }
  /// Where stages 1, 2, … begin, with names for display. Handles are reused, so that one keeps the focus while it moves.
  void setSplits(const std::vector<NodeId>& begins, const std::vector<QString>& names);
  void dropHandles();                              ///< until the next setSplits
  void setCutLabels(std::vector<QString> labels);  ///< of every stage's beginning, the first included
  void setLegal(std::vector<NodeId> legal) { legal_ = std::move(legal); }
  void setHandleTip(std::function<QString(int)> tip);

  [[nodiscard]] const GraphLayout& drawn() const;
  [[nodiscard]] const GraphMetrics& metrics() const { return metrics_; }
  [[nodiscard]] const std::vector<SplitHandle*>& handles() const { return handles_; }
  [[nodiscard]] double yOf(NodeId node) const;  ///< where the cut before a node stands
  [[nodiscard]] SplitSurface surface();

  [[nodiscard]] int current() const { return current_; }  ///< row of the tree, or kInputs, kOutputs
  [[nodiscard]] const std::vector<NodeId>& begins() const { return begins_; }
  void choose(int row);  ///< makes it current; unfolds what is around it, and scrolls there
  void setOpen(int row, bool open);
  void reveal(NodeId node);  ///< scrolls to the cut before it, unfolding nothing
  /// Draws all so many times as large as the text beside it, from 0.4 to 3; what is at that y stays there.
  void zoomTo(double factor, double y);
  [[nodiscard]] double zoom() const { return zoom_; }

 signals:
  void currentChanged(int row);
  void handleAdded(SplitHandle* handle);
  void splitRequested(int row);
  void removeRequested(int row);
  void findRequested();
  void menuRequested(int row, const QPoint& global);

 protected:
  bool event(QEvent* event) override;
  bool viewportEvent(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void scrollContentsBy(int dx, int dy) override;
  void keyPressEvent(QKeyEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void contextMenuEvent(QContextMenuEvent* event) override;
  void focusInEvent(QFocusEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  void measure();
  void relayout();
  void openAround(NodeId node);  // so that it lies between two boxes
  void place();                  // handles and scroll bars
  void makeCurrent(int row);
  void scrollTo(double top, double bottom);  // of the layout
  void step(int boxes);
  [[nodiscard]] int rowAt(const QPointF& point) const;  // kNowhere: none
  [[nodiscard]] int currentBox() const;
  [[nodiscard]] std::pair<double, double> extentOf(int row) const;
  [[nodiscard]] QFont drawnFont() const;  // the widget's, zoomed
  [[nodiscard]] GraphScene scene() const;
  [[nodiscard]] QString branchText(const GraphBranch& branch) const;
  [[nodiscard]] QString boxName(int row) const;

  const CallTree& tree_;
  const RowFindings& findings_;
  ModelFlow flow_;
  GraphMetrics metrics_;
  std::set<RowKey> open_;
  RowKey currentKey_;
  mutable GraphLayout layout_;
  mutable bool isStale_ = true;
  GraphColumns columns_;
  std::vector<NodeId> begins_, legal_;
  std::vector<QString> cuts_;
  std::vector<SplitHandle*> handles_;
  std::function<QString(int)> tip_;
  std::optional<DropMark> mark_;
  int current_ = 0, hovered_ = -1;
  double zoom_ = 1;
};

}  // namespace pw::gui
