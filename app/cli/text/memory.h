#pragma once

#include <string>
#include <vector>

#include "simulator/plan/memory.h"
#include "simulator/report/memory_report.h"

namespace pw::cli {

/// What each rank holds at its peak, as a table. `inBytes`: else sizes are numbers of a problem file's own unit.
[[nodiscard]] std::string memoryText(const std::vector<RankMemory>& ranks, bool inBytes);
/// And which modules it belongs to, and what would free how much.
[[nodiscard]] std::string memoryText(const PlanMemory& memory);
/// `155 MiB`, or where ranks differ `143 to 155 MiB`. `sizes` is not empty.
[[nodiscard]] std::string rangeOfSizes(const std::vector<Bytes>& sizes);
/// A JSON document with these fields added: `memory`; of a plan also `memory_by_module` and `memory_savings`.
[[nodiscard]] std::string withMemory(const std::string& document, const std::vector<RankMemory>& ranks);
[[nodiscard]] std::string withMemory(const std::string& document, const PlanMemory& memory);

}  // namespace pw::cli
