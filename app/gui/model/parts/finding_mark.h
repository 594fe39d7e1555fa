#pragma once

#include <QIcon>
#include <QRectF>
#include <QString>
#include <vector>

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

/// Findings as rich text, by kind, each with its number of places, for as many kinds as a tip can hold. They are ordered by kind.
[[nodiscard]] QString findingsText(const std::vector<const Finding*>& findings);

}  // namespace pw::gui
