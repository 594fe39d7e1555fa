#pragma once

#include <functional>
#include <string>

#include "simulator/plan/plan.h"

namespace pw {

/// Checks what a hostile or hand-edited file could break, so that nothing indexes out of range later: every stage, rank and microbatch that
/// the plan names exists, and its costs can be summed without overflow. Calls `fail`, which throws, with what is wrong: `it has no stages`.
/// Cost: linear.
void requireConsistent(const Plan& plan, const std::function<void(const std::string& what)>& fail);

}  // namespace pw
