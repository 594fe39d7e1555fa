#pragma once

#include <QIcon>
#include <QRectF>
#include <QString>

#include "simulator/report/split_report.h"

class QPainter;

namespace pw::gui {

/// Paints the mark of findings with this effect into a square: a filled circle where something is limited, a triangle where results change;
/// nothing for notes.
void paintFindingMark(QPainter& painter, const QRectF& square, FindingEffect effect);
[[nodiscard]] QIcon findingIcon(FindingEffect effect, int size);

/// A kind's name for display: `batch norm`.
[[nodiscard]] QString findingTitle(FindingKind kind);
/// `Batch norm in training takes … . What to do: Keep microbatches large … .`
[[nodiscard]] QString findingExplanation(FindingKind kind);

}  // namespace pw::gui
