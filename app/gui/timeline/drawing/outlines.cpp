#include "app/gui/timeline/drawing/outlines.h"

#include <QPainter>
#include <algorithm>
#include <cmath>
#include <tuple>

#include "app/gui/common/theme.h"
#include "app/gui/timeline/drawing/track_painter.h"

namespace pw::gui {

std::optional<SourcedSpan> matchOf(const SourcedSpan& span, const Matches& matches) {
  if (span.span.track != TrackKind::Compute) return std::nullopt;
  const bool predicted = span.source == Source::Predicted;
  const auto& others = predicted ? matches.measuredOf : matches.predictedOf;
  const auto rank = span.span.rank.index(), index = static_cast<std::size_t>(span.span.index);
  if (rank >= others.size() || index >= others[rank].size() || others[rank][index] < 0) return std::nullopt;
  SourcedSpan other{predicted ? Source::Measured : Source::Predicted, span.span};
  other.span.index = others[rank][index];
  return other;
}

void paintOutline(QPainter& painter, const PaintedRows& rows, const SourcedSpan& marked, const QColor& colour, int thickness) {
  const QRect& tracks = rows.tracks;
  const auto& timeline = marked.source == Source::Predicted ? rows.scene.predicted : rows.scene.measured;
  if (!timeline || marked.span.rank.index() >= timeline->ranks.size()) return;
  const SpanTrack& track = trackOf(*timeline, marked.span);
  const auto i = static_cast<std::size_t>(marked.span.index);
  if (marked.span.index < 0 || i >= track.size()) return;
  for (const Row& row : rows.layout.rows) {
    const bool compute = marked.span.track == TrackKind::Compute;
    if (row.rank != marked.span.rank || row.source != marked.source ||
        row.kind != (compute ? Row::Kind::Compute : Row::Kind::Communication))
      continue;
    int top = 0, bottom = row.height;
    if (!compute) std::tie(top, bottom) = messageLaneLines(messageLane(track.tags[i].kind), messageLanes(track), row.height);
    if (compute && isSlotAt(track, i)) bottom = row.height / 2;
    if (compute && i > 0 && isSlotAt(track, i - 1)) top = row.height / 2;
    const int y = tracks.top() + (row.pinned ? row.top : row.top - rows.scroll);
    const auto x = [&](Ns time) {
      return rows.tracks.left() + static_cast<int>(std::lround(std::clamp(rows.view.xOf(time), -20.0, rows.tracks.width() + 20.0)));
    };
    const QRect box(QPoint(x(track.start[i]), y + top), QPoint(std::max(x(track.start[i]) + 1, x(track.end[i]) - 1), y + bottom - 1));
    if (!row.pinned) painter.setClipRect(tracks.adjusted(0, rows.layout.pinnedHeight, 0, 0));
    painter.setBrush(Qt::NoBrush);
    for (int t = 0; t < thickness; ++t) {
      painter.setPen(colour);
      painter.drawRect(box.adjusted(-t - 1, -t - 1, t, t));
    }
    painter.setClipRect(tracks);
  }
}

void paintRange(QPainter& painter, const PaintedRows& rows, const std::pair<Ns, Ns>& range, const Theme& theme) {
  const QRect& tracks = rows.tracks;
  QColor tint = theme.accent;
  tint.setAlpha(theme.dark ? 46 : 34);
  const auto x = [&](Ns time) { return static_cast<int>(std::lround(std::clamp(rows.view.xOf(time), -10.0, tracks.width() + 10.0))); };
  const int left = tracks.left() + x(range.first), right = tracks.left() + x(range.second);
  painter.fillRect(QRect(left, tracks.top(), std::max(1, right - left), tracks.height()), tint);
  painter.setPen(theme.accent);
  painter.drawLine(left, tracks.top(), left, tracks.bottom());
  painter.drawLine(right, tracks.top(), right, tracks.bottom());
}

}  // namespace pw::gui
