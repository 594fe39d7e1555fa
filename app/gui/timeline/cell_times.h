#pragma once

#include <QString>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "app/gui/document/document.h"
#include "schedules/editing/waiting.h"
#include "simulator/plan/predictor.h"
#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// When the action of a cell starts and ends.
using CellTimes = std::vector<std::pair<Ns, Ns>>;

/// By cell of a compute-only row: when its action runs on the timeline, an idle cell at the end of what is before it. Nothing where the
/// timeline is of another schedule. Cost: linear.
[[nodiscard]] std::optional<CellTimes> timesOf(const std::vector<Action>& row, const SpanTrack& track);
/// The place before the first cell whose middle is later than `time`.
[[nodiscard]] std::int32_t placeAt(const CellTimes& times, Ns time);
/// The time that is drawn for a place: between its neighbours.
[[nodiscard]] Ns timeOfPlace(const CellTimes& times, std::int32_t place);

/// Why the action of a cell does not start earlier on the timeline, and where it could go: two sentences; empty where the timeline is of
/// another schedule. Cost: linear.
[[nodiscard]] QString whyNotEarlier(const Schedule& schedule, Cell cell, const Timeline& timeline);

/// `Step 9.46 ms → 10.8 ms (+14 %), bubble 21 % → 24 %, peak memory 1.2 GiB → 1.3 GiB`; memory of the fullest rank. Of two that look alike
/// the difference, `Step 14.5 s (+1.20 ms)`, or one.
[[nodiscard]] QString differenceText(const Prediction& before, const Prediction& after);
/// Of the document's last change, or of the drag so far; empty: there is none.
[[nodiscard]] QString changeText(const Document& document);

}  // namespace pw::gui
