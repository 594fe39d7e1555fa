#pragma once

#include "app/gui/document/document.h"
#include "simulator/report/compare.h"

namespace pw::gui {

/// Whether the model is cut at the same places in a step as in a prediction of the design (`pw::splitsOf`). A step with other splits has
/// other work in the actions of the same name, so their times do not compare.
[[nodiscard]] Splits splitsOf(const Prediction& prediction, const Measured& step, const Design& design);
/// Of two steps.
[[nodiscard]] Splits splitsOf(const Measured& a, const Measured& b);

}  // namespace pw::gui
