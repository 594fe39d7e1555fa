#pragma once

#include <QPoint>
#include <QWidget>
#include <functional>

#include "app/gui/timeline/overview/density.h"
#include "app/gui/timeline/overview/map.h"

namespace pw::gui {

/// All ranks over all time in a narrow strip, with what the timeline shows as a window in it: a click jumps there, a drag moves the window
/// or one of its edges, the wheel zooms, arrow keys move it.
class OverviewStrip : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(OverviewStrip)
 public:
  /// `timeline`: what the timeline shows now.
  explicit OverviewStrip(std::function<Geometry()> timeline, QWidget* parent = nullptr);
  void forget();  ///< the timelines' times changed
  void follow();  ///< the timeline shows something else, or looks other

  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override { return sizeHint(); }

 signals:
  void timesChosen(double from, double to);  ///< [ns]
  void scrolled(int scroll);
  void allChosen();

 protected:
  void paintEvent(QPaintEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  bool event(QEvent* event) override;

 private:
  [[nodiscard]] OverviewMap map() const;
  void choose(const std::pair<double, double>& times) { emit timesChosen(times.first, times.second); }
  void moveWindow(const QPoint& at);
  void showCursor(const QPoint& at);
  void describe();
  [[nodiscard]] static bool isOurs(const QKeyEvent& key);

  std::function<Geometry()> timeline_;
  DensityPicture picture_;
  OverviewMap::Part dragged_ = OverviewMap::Part::Outside;  ///< nothing
  QPoint grabbed_;                                          ///< from the window's upper left corner
};

}  // namespace pw::gui
