#pragma once

#include <string>

#include "app/gui/document/loading.h"

namespace pw::gui {

/// Whether a file that begins so is a job that `pipewright import` made.
[[nodiscard]] bool isJob(const std::string& head);

/// Plans the job of a file, which was loaded as a table of layers, as it ran: with its ranks, stages, microbatches and, where it is of a
/// family, its schedule. Adds the job's notes. Throws UsageError for a file that is no job.
void planAsItRan(const std::string& path, Loaded& loaded);

}  // namespace pw::gui
