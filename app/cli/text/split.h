#pragma once

#include <string>
#include <vector>

#include "engine/run/trial.h"
#include "simulator/report/split_report.h"

namespace pw::cli {

/// The findings as text: per kind what it means, a table, and what to do. Findings that differ only in the numbers of their modules share a
/// row.
[[nodiscard]] std::string findingsText(const ModelGraph& graph, const std::vector<Finding>& findings);

/// `Tried: 1, 2 and 4 microbatches of a random batch of 4 (…): …`, a line for each number of microbatches that differs.
[[nodiscard]] std::string trialText(const Trial& trial);

}  // namespace pw::cli
