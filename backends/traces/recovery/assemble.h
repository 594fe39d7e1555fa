#pragma once

#include <string>
#include <vector>

#include "backends/traces/events/events.h"
#include "backends/traces/events/imported.h"

namespace pw {

/// Turns the events of the files into steps: finds ranks, aligns clocks, splits into steps, trims overlaps. Throws UsageError when there is
/// no pipeline span.
[[nodiscard]] ImportedTrace assemble(std::vector<FileEvents> files, std::string title);

}  // namespace pw
