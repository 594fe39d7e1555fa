#pragma once

#include <QString>

#include "app/gui/timeline/selection.h"

namespace pw::gui {

/// What is said of what is selected, in plain text; empty where nothing is. `isMoving`: timelines change, so only what is known at once.
[[nodiscard]] QString detailsOf(const Selection& selection, const Scene& scene, Knowledge& knowledge, bool isMoving);

}  // namespace pw::gui
