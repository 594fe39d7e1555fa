#pragma once

#include <QEvent>
#include <QWidget>
#include <functional>

namespace pw::gui {

/// The drawing area. What happens to it is handled by its owner.
class TimelineCanvas : public QWidget {
 public:
  TimelineCanvas(QWidget* parent, std::function<bool(QEvent*)> handle);

 protected:
  bool event(QEvent* event) override { return handle_(event) || QWidget::event(event); }

 private:
  std::function<bool(QEvent*)> handle_;
};

}  // namespace pw::gui
