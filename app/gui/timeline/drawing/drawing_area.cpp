#include "app/gui/timeline/drawing/drawing_area.h"

#include <utility>

namespace pw::gui {

TimelineCanvas::TimelineCanvas(QWidget* parent) : QWidget(parent) {
  setObjectName(QStringLiteral("timelineCanvas"));
  setMouseTracking(true);
  setFocusPolicy(Qt::StrongFocus);
  setAttribute(Qt::WA_OpaquePaintEvent);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
  frame_.setSingleShot(true);
  connect(&frame_, &QTimer::timeout, this, [this] { update(); });
}

void TimelineCanvas::setHandler(std::function<bool(QEvent*)> handle) { handle_ = std::move(handle); }

void TimelineCanvas::updateSoon() {
  constexpr qint64 kFrameMs = 16;
  const qint64 since = sinceFrame_.isValid() ? sinceFrame_.elapsed() : kFrameMs;
  if (since >= kFrameMs)
    update();
  else if (!frame_.isActive())
    frame_.start(static_cast<int>(kFrameMs - since));
}

void TimelineCanvas::notePainted() {
  sinceFrame_.start();
  frame_.stop();
}

}  // namespace pw::gui
