#pragma once

#include <string>
#include <vector>

#include "engine/planning/inputs/measure.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// This program's path and arguments, to start it again as a rank.
[[nodiscard]] std::vector<std::string> ownCall();

/// `--load-library`, which `inspect` and `run` have too.
void addLibraryOption(CLI::App& command, std::vector<std::string>& libraries);
/// The options that say how costs are measured, but for `--progress`.
void addMeasureOptions(CLI::App& command, MeasureOptions& options);

}  // namespace pw::cli
