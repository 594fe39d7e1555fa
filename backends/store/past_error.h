#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/store/run_store.h"

namespace pw {

/// How far off predictions were: the median of |measured − predicted| / predicted over the steps of completed runs of this model and
/// schedule, or of this model if there are none with the schedule. Only runs that were predicted from times like these: as measured or
/// estimated as they are, and of the same cluster (`Profile::cluster`); a run that does not say counts for none. Runs of one step count
/// only if there are no longer ones, because the first step warms up. Nothing if there is no usable run.
[[nodiscard]] std::optional<double> pastError(const std::vector<RunSummary>& runs, const std::string& model, const std::string& schedule,
                                              CostSource costs, const std::string& cluster);

}  // namespace pw
