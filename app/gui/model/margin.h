#pragma once

#include <QWidget>
#include <functional>
#include <vector>

#include "app/gui/model/parts/links.h"
#include "app/gui/model/parts/stage_totals.h"

namespace pw::gui {

class SplitHandle;
class TreeView;

/// Left of the tree, as high as its rows: a bracket for each stage with its totals, handles where stages meet, and arcs for everything that
/// does not go from one stage to the next.
class Margin : public QWidget {
  Q_OBJECT
 public:
  explicit Margin(const TreeView& view, QWidget* parent = nullptr);

  void setStages(std::vector<StageTotals> stages);
  void setArcs(std::vector<Arc> arcs);
  /// Sets handles at these positions, with names for display. Handles are reused, so that one keeps the focus while it moves.
  void setSplits(const std::vector<NodeId>& begins, const std::vector<QString>& names);
  void setHandleTip(std::function<QString(int)> tip);
  /// Lays out everything at the current rows; `scroll` if only the scroll position changed.
  void place();
  void scroll();

  [[nodiscard]] const std::vector<SplitHandle*>& handles() const { return handles_; }
  [[nodiscard]] const std::vector<Arc>& arcs() const { return arcs_; }
  /// The arcs at a point, nearest first: indices into `arcs`.
  [[nodiscard]] std::vector<std::size_t> arcsAt(const QPointF& point) const;
  [[nodiscard]] QSize sizeHint() const override;

 signals:
  void handleAdded(SplitHandle* handle);

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void leaveEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  /// Arcs of one kind between the same two visible rows.
  struct DrawnArc {
    ArcKind kind = ArcKind::Sent;
    double from = 0, to = 0;  ///< in row heights from the first row's top
    int lane = 0;
    std::vector<std::size_t> arcs;
  };
  void placeHandles();
  void placeArcs();
  void measure();                              ///< the font
  [[nodiscard]] double laneX(int lane) const;  ///< many lanes are closer together
  [[nodiscard]] double yOf(double row) const;
  [[nodiscard]] std::pair<double, double> extent(Stage stage) const;  ///< y
  [[nodiscard]] const DrawnArc* drawnAt(const QPointF& point) const;
  void updateBetween(double top, double bottom);
  void paintStage(QPainter& painter, Stage stage, const QRect& dirty) const;
  void paintTotals(QPainter& painter, Stage stage, double from, double to) const;
  void paintArc(QPainter& painter, const DrawnArc& arc, bool strong) const;

  const TreeView& view_;
  double bracketWidth_ = 0;  ///< totals and bar
  QFont bold_;
  std::vector<StageTotals> stages_;
  Ns longest_ = 1;  ///< forward and backward of a stage
  std::vector<NodeId> begins_;
  std::vector<Arc> arcs_;
  std::vector<DrawnArc> drawn_;
  int lanes_ = 0;     ///< that they take
  int hovered_ = -1;  ///< of `drawn_`
  std::vector<SplitHandle*> handles_;
  std::function<QString(int)> handleTip_;
};

}  // namespace pw::gui
