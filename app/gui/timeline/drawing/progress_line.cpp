#include "app/gui/timeline/drawing/progress_line.h"

#include <QPainter>
#include <QWidget>
#include <utility>

namespace pw::gui {
namespace {

constexpr int kLateMs = 200;  ///< an answer that takes longer shows that it is in progress
constexpr int kTickMs = 40;

}  // namespace

ProgressLine::ProgressLine(QWidget& widget, std::function<bool()> isAwaited) : widget_(widget), isAwaited_(std::move(isAwaited)) {
  waiting_.setInterval(kTickMs);
  connect(&waiting_, &QTimer::timeout, this, [this] {
    const bool goesOn = isAwaited_();
    const bool wasLate = std::exchange(isLate_, goesOn && sinceRequest_.elapsed() > kLateMs);
    if (!goesOn) waiting_.stop();
    if (isLate_ || wasLate) widget_.update(0, 0, widget_.width(), 4);
  });
}

void ProgressLine::noteRequest() {
  if (waiting_.isActive() || !isAwaited_()) return;
  sinceRequest_.start();
  waiting_.start();
}

void ProgressLine::noteAnswer() {
  sinceRequest_.start();
  isLate_ = false;
}

void ProgressLine::paint(QPainter& p, const Theme& theme) const {
  if (!isLate_) return;
  constexpr int kHeight = 3, kPeriodMs = 1400;
  const double phase = static_cast<double>(sinceRequest_.elapsed() % kPeriodMs) / kPeriodMs;
  const double length = 0.3 * widget_.width();
  p.fillRect(0, 0, widget_.width(), kHeight, theme.grid);
  p.fillRect(QRectF(phase * (widget_.width() + length) - length, 0, length, kHeight), theme.accent);
}

}  // namespace pw::gui
