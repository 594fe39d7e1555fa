#pragma once

#include "app/gui/document/document.h"
#include "simulator/report/compare.h"

namespace pw::gui {

/// Whether the model is cut at the same places in a step as in a prediction of the design. A step with other splits has other work in the
/// actions of the same name, so their times do not compare. Of a trace of another tool that is not known, and counts as the same.
[[nodiscard]] Splits splitsOf(const Prediction& prediction, const Measured& step, const Design& design);
/// Of two steps; those of two models have other splits.
[[nodiscard]] Splits splitsOf(const Measured& a, const Measured& b);

}  // namespace pw::gui
