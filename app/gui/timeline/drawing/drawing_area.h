#pragma once

#include <QElapsedTimer>
#include <QEvent>
#include <QTimer>
#include <QWidget>
#include <functional>

namespace pw::gui {

/// The drawing area. What happens to it is handled by its owner.
class TimelineCanvas : public QWidget {
 public:
  explicit TimelineCanvas(QWidget* parent);
  /// Gets each event first; returns false to have it handled as any widget's.
  void setHandler(std::function<bool(QEvent*)> handle);

  void updateSoon();  ///< painted anew, at most once in the time of a frame
  void notePainted();

 protected:
  bool event(QEvent* event) override { return (handle_ && handle_(event)) || QWidget::event(event); }

 private:
  std::function<bool(QEvent*)> handle_;
  QTimer frame_;
  QElapsedTimer sinceFrame_;
};

}  // namespace pw::gui
