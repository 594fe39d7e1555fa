#pragma once

#include <vector>

#include "simulator/report/program_view.h"

namespace pw {

/// By step: when the inputs of its action (or of both of a slot) were there. An action is ready when what its own rank computes for it is
/// there, and its messages are: where the row receives them itself, when that receive is done. Cost: linear in steps and edges.
[[nodiscard]] std::vector<Ns> readyTimes(const ProgramView& view, const ComputeSteps& steps);

/// By rank: how long in the gaps of its row, up to the last end of all, the inputs of an action (or of both of a slot) were there that the
/// row computes later. Cost: linear in steps and edges.
[[nodiscard]] std::vector<Ns> readyWork(const ProgramView& view, const ComputeSteps& steps);

}  // namespace pw
