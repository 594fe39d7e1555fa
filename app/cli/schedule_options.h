#pragma once

#include <string>
#include <vector>

#include "schedules/check.h"
#include "schedules/schedule.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// `--ranks R --chunks V --microbatches M`: the shape of a schedule asked for by name. 0 where not given.
struct ShapeOptions {
  int ranks = 0;
  int chunks = 1;
  int microbatches = 0;
};

/// Declares the three options on a subcommand; `options` must outlive it.
void declareShape(CLI::App& command, ShapeOptions& options);

/// The named schedule, compute-only. Throws UsageError for a missing option, an unknown name or a shape the family refuses.
[[nodiscard]] Schedule generateFrom(const std::string& name, const ShapeOptions& options);

/// Reads a schedule CSV; its name is the file's stem. Throws UsageError for what is no schedule.
[[nodiscard]] Schedule readSchedule(const std::string& path);

/// `1f1b: 4 ranks, 4 stages, 8 microbatches`.
[[nodiscard]] std::string shapeLine(const Schedule& schedule);

/// Whether any problem stops the schedule even where sends are buffered, as they are here.
[[nodiscard]] bool stops(const std::vector<Problem>& problems);

/// Problems for people, one a line: rank, position, action, sentence.
[[nodiscard]] std::string problemsText(const std::vector<Problem>& problems);

}  // namespace pw::cli
