#include "app/gui/timeline/overview/strip.h"

#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/common/format.h"

namespace pw::gui {
namespace {

constexpr int kMargin = 3;  ///< above and below the picture

using Part = OverviewMap::Part;

/// What is outside of the window is faint, and the window has a frame with grips.
void paintWindow(QPainter& p, const OverviewMap& map, const Theme& theme) {
  const QRect shown = map.window();
  QColor veil = theme.background;
  veil.setAlpha(130);
  QRegion outside(map.area);
  for (const QRect& part : outside.subtracted(shown)) p.fillRect(part, veil);
  p.setPen(theme.text);  // the accent would be lost on blue
  p.setBrush(Qt::NoBrush);
  p.drawRect(shown.adjusted(0, 0, -1, -1));
  if (map.isAllVisible()) return;
  p.fillRect(QRect(shown.left(), shown.top(), 2, shown.height()), theme.text);
  p.fillRect(QRect(shown.right() - 1, shown.top(), 2, shown.height()), theme.text);
}

}  // namespace

OverviewStrip::OverviewStrip(std::function<Geometry()> timeline, QWidget* parent) : QWidget(parent), timeline_(std::move(timeline)) {
  setObjectName(QStringLiteral("timelineOverview"));
  setAccessibleName(tr("Overview of all ranks over the whole step"));
  setToolTip(tr("All ranks over the whole step. Click to go there; drag the window or its edges; double-click to show all."));
  setFocusPolicy(Qt::TabFocus);
  setMouseTracking(true);
  setAttribute(Qt::WA_OpaquePaintEvent);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

QSize OverviewStrip::sizeHint() const {
  const Scene& scene = timeline_().scene;
  const int ranks = static_cast<int>(std::min<std::size_t>(scene.ranks.size(), 100));
  return {200, static_cast<int>(std::lround(std::clamp(6 * ranks + 2 * kMargin, 24, 56) * textScale(scene)))};
}

OverviewMap OverviewStrip::map() const {
  const Geometry timeline = timeline_();
  return overviewOf(timeline, rect().adjusted(labelWidth(timeline.scene), kMargin, 0, -kMargin - 1));
}

void OverviewStrip::forget() {
  picture_.forget();
  updateGeometry();
  follow();
}

void OverviewStrip::follow() {
  update();
  if (hasFocus()) describe();
}

// ---- Painting ------------------------------------------------------------------------------------------------------

void OverviewStrip::paintEvent(QPaintEvent* /*event*/) {
  const Theme& theme = currentTheme();
  const Geometry timeline = timeline_();
  const OverviewMap shown = map();
  QPainter p(this);
  p.fillRect(rect(), theme.alternate);
  p.fillRect(QRect(shown.area.left(), 0, width() - shown.area.left(), height()), theme.background);
  if (shown.area.width() <= 0 || isEmpty(timeline.scene)) return;
  p.drawImage(shown.area.topLeft(), picture_.of(timeline.scene, timeline.layout, shown.area.size(), theme));
  paintWindow(p, shown, theme);
  p.setFont(sceneFont(timeline.scene, 0.8));
  p.setPen(theme.faintText);
  const int margin = std::max(6, shown.area.left() / 10);
  p.drawText(QRect(margin, 0, shown.area.left() - margin - 4, height()), Qt::AlignLeft | Qt::AlignVCenter,
             timeline.scene.ranks.size() == 1 ? tr("1 rank") : tr("%1 ranks").arg(timeline.scene.ranks.size()));
  p.setPen(theme.grid);
  p.drawLine(shown.area.left() - 1, 0, shown.area.left() - 1, height());
  p.drawLine(0, height() - 1, width(), height() - 1);
  if (!hasFocus()) return;
  p.setPen(theme.focus);
  p.setBrush(Qt::NoBrush);
  p.drawRect(rect().adjusted(0, 0, -1, -1));
}

// ---- Mouse ---------------------------------------------------------------------------------------------------------

void OverviewStrip::mousePressEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton) return QWidget::mousePressEvent(event);
  const QPoint at = event->position().toPoint();
  const OverviewMap shown = map();
  if (at.x() < shown.area.left()) return;
  dragged_ = shown.partAt(at);
  grabbed_ = at - shown.window().topLeft();
  if (dragged_ == Part::Outside) {  // goes there, and may be dragged on from there
    dragged_ = Part::Window;
    grabbed_ = QPoint(shown.window().width() / 2, shown.window().height() / 2);
    moveWindow(at);
  }
  showCursor(at);
}

void OverviewStrip::mouseMoveEvent(QMouseEvent* event) {
  const QPoint at = event->position().toPoint();
  if (dragged_ == Part::Window) {
    moveWindow(at);
  } else if (dragged_ != Part::Outside) {
    choose(map().withEdgeAt(dragged_, at.x()));
  }
  showCursor(at);
}

void OverviewStrip::moveWindow(const QPoint& at) {
  const OverviewMap shown = map();
  const QPoint corner = at - grabbed_;
  // From the window as it is painted: a small one is larger than what it shows.
  const double spare = shown.window().width() - (shown.to - shown.from) / static_cast<double>(shown.end) * shown.area.width();
  choose(shown.movedTo(shown.timeAt(corner.x() + std::max(0.0, spare) / 2)));
  if (shown.visible < shown.lines) emit scrolled(shown.scrollAt(corner.y()));
}

void OverviewStrip::mouseReleaseEvent(QMouseEvent* event) {
  dragged_ = Part::Outside;
  showCursor(event->position().toPoint());
}

void OverviewStrip::mouseDoubleClickEvent(QMouseEvent* event) {
  if (event->button() == Qt::LeftButton) emit allChosen();
}

void OverviewStrip::wheelEvent(QWheelEvent* event) {
  constexpr double kTick = 120, kTickZoom = 0.8;
  choose(map().zoomedAt(event->position().x(), std::pow(kTickZoom, event->angleDelta().y() / kTick)));
  event->accept();
}

void OverviewStrip::showCursor(const QPoint& at) {
  const OverviewMap shown = map();
  const Part part = dragged_ != Part::Outside ? dragged_ : shown.partAt(at);
  setCursor(part == Part::LeftEdge || part == Part::RightEdge ? Qt::SizeHorCursor
            : dragged_ == Part::Window                        ? Qt::ClosedHandCursor
            : part == Part::Window && !shown.isAllVisible()   ? Qt::OpenHandCursor
                                                              : Qt::ArrowCursor);
}

// ---- Keys ----------------------------------------------------------------------------------------------------------

bool OverviewStrip::isOurs(const QKeyEvent& key) {
  if ((key.modifiers() & ~Qt::KeypadModifier) != Qt::NoModifier) return false;
  return key.key() == Qt::Key_Left || key.key() == Qt::Key_Right || key.key() == Qt::Key_Up || key.key() == Qt::Key_Down;
}

bool OverviewStrip::event(QEvent* event) {
  if (event->type() == QEvent::ShortcutOverride && isOurs(*static_cast<QKeyEvent*>(event))) {
    event->accept();
    return true;
  }
  if (event->type() == QEvent::FocusIn) describe();
  return QWidget::event(event);
}

void OverviewStrip::keyPressEvent(QKeyEvent* event) {
  if (!isOurs(*event)) return QWidget::keyPressEvent(event);  // the timeline's keys
  const OverviewMap shown = map();
  const double step = 0.1 * (shown.to - shown.from);
  const int lines = std::max(1, (shown.visible - shown.pinned) / 10);
  if (event->key() == Qt::Key_Left) choose(shown.movedTo(shown.from - step));
  if (event->key() == Qt::Key_Right) choose(shown.movedTo(shown.from + step));
  if (event->key() == Qt::Key_Up) emit scrolled(shown.scroll - lines);
  if (event->key() == Qt::Key_Down) emit scrolled(shown.scroll + lines);
}

/// Says what the window shows.
void OverviewStrip::describe() {
  const Geometry timeline = timeline_();
  const OverviewMap shown = map();
  int ranks = 0;
  std::optional<Rank> last;
  for (const Row& row : timeline.layout.rows) {
    const int top = row.pinned ? row.top : row.top - timeline.scroll;
    if (row.kind != Row::Kind::Compute || last == row.rank || top + row.height <= 0 || top >= shown.visible) continue;
    last = row.rank;
    ++ranks;
  }
  const auto time = [&](double at) { return durationText(static_cast<Ns>(std::clamp(at, 0.0, static_cast<double>(shown.end)))); };
  setAccessibleDescription(tr("Shows %1 to %2 of %3, and %4 of %5 ranks")
                               .arg(time(shown.from), time(shown.to), durationText(shown.end))
                               .arg(ranks)
                               .arg(timeline.scene.ranks.size()));
}

}  // namespace pw::gui
