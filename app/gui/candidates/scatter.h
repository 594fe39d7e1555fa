#pragma once

#include <QPointF>
#include <QRectF>
#include <QString>
#include <QWidget>
#include <optional>
#include <vector>

#include "app/gui/candidates/scatter_axis.h"
#include "schedules/ids.h"

namespace pw::gui {

/// Where a plan stands in the plot.
struct TimeAndMemory {
  Ns time = 0;  ///< of a step or of a sample
  Bytes bytes = 0;

  bool operator==(const TimeAndMemory&) const = default;
};

/// A plan in the plot.
struct ScatterPoint {
  Ns time = 0;  ///< of a step or of a sample
  Bytes bytes = 0;
  bool front = false, fits = true;
  bool shown = true;  ///< can be selected; otherwise only a dot
  QString title;
  int ranks = 0;     ///< 0: not shown
  double scale = 1;  ///< of its mark

  bool operator==(const ScatterPoint&) const = default;
};

/// Time against memory of plans, with their Pareto front, the memory limit and the current plan. Points are selected by mouse or arrow keys
/// (left and right by time, up and down by memory), and activated by double click or Enter.
class CandidatesScatter : public QWidget {
  Q_OBJECT
 public:
  explicit CandidatesScatter(QWidget* parent = nullptr);

  void setPoints(std::vector<ScatterPoint> points);
  void setTimeTitle(const QString& title);  ///< title of the time axis
  void setLimit(Bytes limit);               ///< 0: none
  void setCurrentPlan(const std::optional<TimeAndMemory>& plan);
  void setHovered(int index);  ///< −1: none; without a signal
  void setSelected(int index);
  [[nodiscard]] int hovered() const { return hovered_; }
  [[nodiscard]] int selected() const { return selected_; }
  [[nodiscard]] QPointF positionOf(int index) const;
  /// The visible point nearest to a position, if it is close; −1: none.
  [[nodiscard]] int pointAt(const QPointF& place) const;
  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override;

 signals:
  void pointHovered(int index);  ///< −1: none
  void pointSelected(int index);
  void pointActivated(int index);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void leaveEvent(QEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  void rescale();
  [[nodiscard]] QRectF plot() const;
  [[nodiscard]] QPointF toPlace(double time, double bytes) const;
  [[nodiscard]] QPointF toPlace(const TimeAndMemory& plan) const;
  void select(int index);
  void hover(int index);
  [[nodiscard]] QString wordsOf(int index) const;
  void paintAxes(QPainter& painter) const;
  void paintLimit(QPainter& painter) const;
  void paintFront(QPainter& painter) const;
  void paintPoints(QPainter& painter) const;
  void paintCurrent(QPainter& painter) const;
  void paintLegend(QPainter& painter) const;
  void paintLabel(QPainter& painter, int index) const;

  std::vector<ScatterPoint> points_;
  ScatterAxis time_, memory_;
  QString timeTitle_;
  Bytes limit_ = 0;
  std::optional<TimeAndMemory> current_;
  int hovered_ = -1, selected_ = -1;
};

}  // namespace pw::gui
