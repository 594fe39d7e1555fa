#include "app/gui/timeline/drawing/note_flags.h"

#include <QFontMetrics>
#include <QPainter>
#include <QPolygonF>
#include <algorithm>
#include <cmath>
#include <vector>

#include "app/gui/timeline/drawing/look.h"

namespace pw::gui {
namespace {

constexpr int kFlag = 8;       ///< width of a flag [pixels]
constexpr int kLongest = 260;  ///< of a text

/// A flag on the screen; `room`: with its text, before the next flag.
struct Place {
  std::size_t flag = 0;  ///< of the scene
  int x = 0;             ///< of its pole
  QRect room;
};

/// Those in sight, from left to right.
std::vector<Place> placesOf(const QRect& tracks, const Scene& scene, const Viewport& view) {
  std::vector<Place> places;
  for (std::size_t i = 0; i < scene.notes.size(); ++i) {
    const double x = view.xOf(scene.notes[i].time);
    if (x >= -kLongest && x <= view.width) places.push_back({i, tracks.left() + static_cast<int>(std::lround(x)), {}});
  }
  std::ranges::stable_sort(places, {}, &Place::x);
  const QFontMetrics metrics(sceneFont(scene, 0.85));
  const int height = noteLaneHeight(scene), top = tracks.top() - height;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const QString& text = scene.notes[places[i].flag].text;
    const int wanted = kFlag + 2 + (text.isEmpty() ? 0 : std::min(kLongest, metrics.horizontalAdvance(text) + 6));
    const int free = i + 1 < places.size() ? places[i + 1].x - places[i].x : wanted;
    places[i].room = QRect(places[i].x, top, std::max(kFlag, std::min(wanted, free - 2)), height);
  }
  return places;
}

/// Down to the middle of its block, or through all rows.
void paintLine(QPainter& p, const QRect& tracks, const NoteFlag& note, int x, const RowLayout& layout, int scroll, const Theme& theme) {
  QColor line = theme.warning;
  line.setAlpha(note.isCurrent ? 220 : 130);
  p.setPen(QPen(line, 1, Qt::DashLine));
  const auto at = note.span ? rowOf(layout, *note.span) : std::nullopt;
  if (!at) return p.drawLine(x, tracks.top(), x, tracks.bottom());
  const Row& row = layout.rows[*at];
  const int y = tracks.top() + (row.pinned ? row.top : row.top - scroll);
  p.drawLine(x, tracks.top(), x, std::min(tracks.bottom(), y));
  if (y > tracks.bottom() || y + row.height < tracks.top()) return;
  const double side = std::clamp(row.height * 0.4, 5.0, 9.0);
  p.setRenderHint(QPainter::Antialiasing);
  p.setPen(QPen(theme.background, 1));
  p.setBrush(theme.warning);
  p.drawPolygon(QPolygonF({QPointF(x, y), QPointF(x + side, y), QPointF(x, y + side)}));
  p.setRenderHint(QPainter::Antialiasing, false);
}

}  // namespace

void paintNotes(QPainter& p, const QRect& tracks, const Scene& scene, const RowLayout& layout, const Viewport& view, int scroll,
                const Theme& theme) {
  if (scene.notes.empty()) return;
  const int height = noteLaneHeight(scene);
  const QRect lane(tracks.left(), tracks.top() - height, tracks.width(), height);
  const std::vector<Place> places = placesOf(tracks, scene, view);
  p.save();
  p.setClipRect(tracks);
  for (const Place& place : places) paintLine(p, tracks, scene.notes[place.flag], place.x, layout, scroll, theme);
  p.setClipRect(lane);
  p.fillRect(lane, theme.alternate);
  p.setFont(sceneFont(scene, 0.85));
  const QFontMetrics metrics(p.font());
  for (const Place& place : places) {
    const NoteFlag& note = scene.notes[place.flag];
    if (note.isCurrent) {
      QColor tint = theme.warning;
      tint.setAlpha(70);
      p.fillRect(place.room, tint);
    }
    const int top = lane.top() + 2, bottom = lane.bottom() - 1;
    p.setRenderHint(QPainter::Antialiasing);
    p.setPen(Qt::NoPen);
    p.setBrush(theme.warning);
    const double middle = top + (bottom - top) * 0.32;
    p.drawPolygon(QPolygonF({QPointF(place.x, top), QPointF(place.x + kFlag, middle), QPointF(place.x, middle + (middle - top))}));
    p.setRenderHint(QPainter::Antialiasing, false);
    p.setPen(theme.warning);
    p.drawLine(place.x, top, place.x, lane.bottom());
    const int room = place.room.width() - kFlag - 3;
    if (note.text.isEmpty() || room < 3 * metrics.averageCharWidth()) continue;
    p.setPen(theme.text);
    p.drawText(QRect(place.x + kFlag + 2, lane.top(), room, height - 1), Qt::AlignLeft | Qt::AlignVCenter,
               metrics.elidedText(note.text, Qt::ElideRight, room));
  }
  p.setPen(theme.grid);
  p.drawLine(lane.left(), lane.bottom(), lane.right(), lane.bottom());
  p.restore();
}

std::optional<std::size_t> noteAt(const Geometry& where, const QPoint& at) {
  std::optional<std::size_t> found;
  for (const Place& place : placesOf(where.tracks(), where.scene, where.view)) {
    if (place.room.adjusted(-2, 0, 0, 0).contains(at)) found = where.scene.notes[place.flag].note;
  }
  return found;
}

}  // namespace pw::gui
