#pragma once

#include <string>
#include <vector>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/schedule.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// `--ranks R --chunks V --microbatches M [--group G] [--strict torch]`: the schedule of a name. 0 where not given.
struct ShapeOptions {
  int ranks = 0;
  int chunks = 0;  ///< 0: as the family usually has
  int microbatches = 0;
  int group = 0;       ///< interleaved-1f1b: Megatron's group of microbatches
  std::string strict;  ///< "torch": refuse what torch refuses

  [[nodiscard]] bool given() const { return ranks > 0 || chunks > 0 || microbatches > 0 || group > 0 || !strict.empty(); }
};

/// Declares these options on a subcommand; `options` must outlive it.
void declareShape(CLI::App& command, ShapeOptions& options);

/// The named schedule, which is compute-only, or that of a CSV file (a name that ends in .csv; the options must then be absent or agree,
/// and the schedule is not checked). Throws UsageError for a missing option, an unknown name or an impossible combination.
[[nodiscard]] Schedule generateFrom(const std::string& name, const ShapeOptions& options);

/// Reads a schedule CSV; its name is the file's stem. Throws UsageError for what is not a schedule.
[[nodiscard]] Schedule readSchedule(const std::string& path, Letters letters);

/// Declares `--letters torch|zero-bubble` for a CSV.
void declareLetters(CLI::App& command, std::string& letters);
[[nodiscard]] Letters parseLetters(const std::string& text);

/// `1f1b: 4 ranks, 4 stages, 8 microbatches`.
[[nodiscard]] std::string shapeLine(const Schedule& schedule);

/// Whether any problem stops the schedule even with buffered sends, as in this program.
[[nodiscard]] bool stops(const std::vector<Problem>& problems);

/// Problems as text, one per line: rank, position, action, sentence.
[[nodiscard]] std::string problemsText(const std::vector<Problem>& problems);

}  // namespace pw::cli
