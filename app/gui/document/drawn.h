#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "app/gui/document/document.h"
#include "schedules/editing/edit.h"
#include "simulator/order/find.h"

namespace pw::gui {

/// The schedule of a design's own that has this name; null: none has.
[[nodiscard]] std::shared_ptr<const Schedule> drawnNamed(const Design& design, std::string_view name);
/// That which the design's request names; null where it names a family, or the rows are a file's own.
[[nodiscard]] std::shared_ptr<const Schedule> drawnOf(const Design& design);
/// Its compute-only rows for the design's ranks, chunks and microbatches (`adapted`). Throws UsageError where it has none.
[[nodiscard]] Schedule drawnFor(const Design& design, const Schedule& drawn);

/// Gives a plan what the design before it has of its own: the notes, and the drawn schedules that the plan has under no name. One whose
/// name is that of another there gets a number.
void keepOwn(Design& plan, const Design& before);

/// The compute-only schedule that the document shows, as edits by hand take it, for the rank order of the design; or a sentence that says
/// why there is none: nothing is open, an order made for the costs is not there yet, or the design's numbers do not suit the schedule.
[[nodiscard]] std::variant<Schedule, std::string> editableSchedule(const Document& document);

/// Makes the schedule the design's, as one edit: in place of the drawn one that it has, else as a new one, `1f1b, edited`. What the design
/// took from a file goes with it. Throws UsageError, without a model, where its times are of another number of stages.
void setDrawn(Document& document, const QString& what, Schedule schedule);
/// Adds a schedule under its name, or that with a number where another has it, and makes it the design's: its ranks, chunks and
/// microbatches are then the plan's. Throws UsageError for one with problems.
void addDrawn(Document& document, const QString& what, Schedule schedule);

/// The schedule made faster from where it is, for the design's model and costs (`improvedSchedule`); without a model (null) for the costs
/// that the design has itself. Reads nothing else, so that it may run on another thread. Throws as `improvedSchedule`,
/// and UsageError for a schedule with overlapped pairs, which that search does not know.
[[nodiscard]] Schedule improved(const Schedule& schedule, const Design& design, const ModelGraph* graph, const Profile* profile,
                                const OrderEffort& effort);

}  // namespace pw::gui
