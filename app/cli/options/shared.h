#pragma once

#include "engine/planning/inputs/progress_style.h"

namespace CLI {
class App;
}

namespace pw::cli {

// Options that several commands have. What they set must live as long as the command.

/// `--progress`.
void addProgress(CLI::App& command, ProgressStyle& style);
/// `--sensitivity`: a fraction of every time and limit; 0 where it is not given.
void addSensitivity(CLI::App& command, double& change);

}  // namespace pw::cli
