#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "simulator/plan/plan.h"

namespace pw::cli {

/// Writes the plan as arguments of Megatron-LM: a shell's lines, or JSON where `out` ends so; to stdout without `out`. `layers`,
/// `memoryLimit`: as of `megatronPlan`. Returns the exit status.
int exportMegatron(const Plan& plan, const std::string& out, std::optional<std::int64_t> layers, Bytes memoryLimit);

/// Writes the plan for torchtitan into a folder: schedule.csv, arguments.txt, config.py. Throws UsageError without a folder.
int exportTorchtitan(const Plan& plan, const std::string& folder, std::optional<std::int64_t> layers);

}  // namespace pw::cli
