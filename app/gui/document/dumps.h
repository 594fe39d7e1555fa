#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/document/document.h"
#include "simulator/hang/diagnose.h"
#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// Reads what ranks recorded before they hung (`readDumps`), and the schedule beside it where the folder holds exactly one as CSV: it is
/// then opened as a file of its own; one that cannot run is not, and explains the hang alone. A table that is no schedule is noted. Throws
/// as `readDumps`.
[[nodiscard]] std::shared_ptr<Loaded> loadDumps(const std::vector<std::string>& paths);

/// The schedule that a hang is explained with: the design's as its file has it, with the file's sends and receives, else the actions of the
/// prediction. Nothing where there is none.
[[nodiscard]] std::optional<Schedule> scheduleOf(const Document& document);

/// Where a diagnosis is in a timeline of its schedule: the compute actions that the stuck messages belong to, the cause, and what a silent
/// rank may have been in. The first is where it was stuck first, if the timeline has that.
[[nodiscard]] std::vector<SpanRef> stuckSpans(const hang::Diagnosis& diagnosis, const Timeline& timeline);

/// The diagnosis in a sentence, with the ranks that left no dump and the first notes.
[[nodiscard]] QString hangText(const hang::Diagnosis& diagnosis);

}  // namespace pw::gui
