#pragma once

#include <QBrush>
#include <QColor>
#include <QPalette>

#include "schedules/ids.h"
#include "simulator/trace/span_kind.h"

namespace pw::gui {

/// Colours of everything drawn. Kinds use the palette of Okabe and Ito (2008), which is distinguishable with any colour vision; patterns
/// make black-and-white prints readable too.
struct Theme {
  bool dark = false;
  QColor background, alternate, text, faintText, grid, accent, focus;
  QColor outline;              ///< of fields and boxes to tick
  QColor bubble, bubbleHatch;  ///< idle time is drawn, not left blank
  QColor slower, faster;       ///< measured longer (shorter) than predicted
  QColor warning, error;
};
[[nodiscard]] const Theme& theme(bool dark);
/// The theme of the application's palette.
[[nodiscard]] const Theme& currentTheme();
/// Fusion style, with outlines that are seen on a dark window too, and its palette in light or dark.
void applyTheme(bool dark);

/// What span colours stand for.
enum class ColourBy : std::uint8_t { Kind, Stage, Microbatch };
[[nodiscard]] QColor kindColour(SpanKind kind, const Theme& theme);
[[nodiscard]] QColor stageColour(Stage stage, const Theme& theme);
[[nodiscard]] QColor microbatchColour(Microbatch microbatch, const Theme& theme);
[[nodiscard]] Qt::BrushStyle kindPattern(SpanKind kind);  ///< F solid, B dense, I and W hatched to either side
[[nodiscard]] QColor faded(QColor colour, double alpha);  ///< `alpha`: its opacity, 0 to 1
[[nodiscard]] QColor textOn(const QColor& fill);          ///< black or white, whichever reads better

}  // namespace pw::gui
