#pragma once

#include <functional>
#include <string>

#include "engine/planning/inputs/job_source.h"
#include "engine/planning/inputs/progress_style.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// Declares `TRACE…`, `--store`, `--run`, `--steps` and `--patterns`; `options` must outlive the command.
void declareJob(CLI::App& command, JobOptions& options);
/// Declares `--steps` alone.
void declareSteps(CLI::App& command, std::string& steps);
/// Declares `--patterns` alone.
void declarePatterns(CLI::App& command, std::string& patterns);

/// A progress that counts bytes.
[[nodiscard]] JobProgress byteProgress(const std::string& task, ProgressStyle style);

}  // namespace pw::cli
