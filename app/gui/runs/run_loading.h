#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/document/document.h"

namespace pw::gui {

struct RunsOfStore {
  std::vector<RunSummary> runs;  ///< oldest first
  std::string note;              ///< see RunStore::note
};

/// None where there is no such file yet. Throws Error as `RunStore` does.
[[nodiscard]] RunsOfStore listRuns(const std::string& store);

/// A step of a run of the store at `path`, ready to be shown; without `step` its median. Null where the run has no step. Throws UsageError
/// for a step it does not have.
[[nodiscard]] std::shared_ptr<const Measured> measuredOf(const RunStore& store, const std::string& path, const RunRecord& run,
                                                         std::optional<int> step);

/// Whether the prediction is of the run's plan: the same rows, at the same costs.
[[nodiscard]] bool isOfPlan(const Prediction& prediction, const Plan& plan);

/// Writes the run's plan where it stays, for documents that use it; its path. Throws Error when it cannot.
[[nodiscard]] std::string keepPlan(const RunRecord& run);

/// Whether `keepPlan` writes this run's plan to this path.
[[nodiscard]] bool isPlanOf(const RunRecord& run, const std::string& path);

}  // namespace pw::gui
