#pragma once

#include <QRect>
#include <QString>
#include <QStringList>

#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {

/// The spacing of labelled ticks, wide enough that labels do not touch.
[[nodiscard]] Ns rulerStep(const Viewport& view, const Scene& scene);
/// The label of a tick at `time`, where ticks are `step` apart and times go up to `most`: `1.25 ms`.
[[nodiscard]] QString tickLabel(Ns time, Ns step, Ns most);

/// The ruler over the tracks, with the selected range.
void paintRuler(QPainter& painter, const QRect& area, const Scene& scene, const Viewport& view, const Theme& theme);
/// What a row is called besides its rank: none, or lines, at most so many. A memory row that shows the curves of two timelines has the peak
/// of each with its name, in the order of the rows above it; in one line that of the filled curve.
[[nodiscard]] QStringList rowNames(const Scene& scene, const Row& row, int most);
/// Names of the ranks and rows, left of the tracks; `area` reaches over all of the tracks' height.
void paintLabels(QPainter& painter, const QRect& area, const Scene& scene, const RowLayout& layout, int scroll, const Theme& theme);

}  // namespace pw::gui
