#pragma once

#include <string>

#include "simulator/plan/plan.h"

namespace pw::cli {

/// Writes the plan as arguments of Megatron-LM: a shell's lines, or JSON where `out` ends so; to stdout without `out`. Returns the exit
/// status.
int exportMegatron(const Plan& plan, const std::string& out);

}  // namespace pw::cli
