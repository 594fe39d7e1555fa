#pragma once

#include <functional>
#include <optional>
#include <string>

#include "backends/store/comparable_runs.h"
#include "simulator/history/gate.h"

namespace pw {

/// Which runs are judged, and by what.
struct GateOptions {
  std::string store, against;      ///< files: runs to judge, and the base
  std::optional<RunId> only = {};  ///< this run of `store` alone; nothing: all that are comparable to its newest
  double limit = 0.05;             ///< slow-down that matters, above 0: 0.05 is 5 %
};

/// Runs, the base they are judged by, and the answer.
struct JudgedRuns {
  RunRecord run;  ///< the newest of `runs`
  ComparableRuns runs, base;
  GateReport report;
};

/// Judges runs by those of the base that did the same (`whatDiffers`). Throws UsageError naming store and run where the run did not
/// complete or has one step only, and where the base has nothing comparable, with what differs. `warn` gets what the stores say of
/// themselves. Cost: that of `comparableRuns` on both.
[[nodiscard]] JudgedRuns judgeRuns(const GateOptions& options, const std::function<void(const std::string& note)>& warn);

/// The document of `gate --json` without its version and a final newline; keys have a fixed order.
[[nodiscard]] std::string judgedRunsJson(const JudgedRuns& judged);

}  // namespace pw
