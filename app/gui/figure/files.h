#pragma once

#include <QByteArray>
#include <QString>

#include "simulator/timeline/figure.h"

namespace pw::gui {

inline constexpr int kUsualDpi = 300, kLeastDpi = 36, kMostDpi = 2400;

/// Whether a file of that name can hold a figure: `.svg`, `.pdf`, `.png`, `.tex`.
[[nodiscard]] bool isFigureFile(const QString& path);
/// What a figure for that file is laid out with.
[[nodiscard]] FigureFrame frameFor(const QString& path);
/// Writes a figure in the format of the file's suffix, atomically; `dpi`: of PNG. Throws UsageError for another suffix and for pictures of
/// more than 150 million pixels, Error where the file cannot be written. Main thread.
void writeFigure(const Figure& figure, const QString& path, int dpi = kUsualDpi);
/// A page of the figure's size, with text as text.
[[nodiscard]] QByteArray pdfOf(const Figure& figure);

}  // namespace pw::gui
