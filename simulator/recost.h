#pragma once

#include "simulator/program.h"

namespace pw {

/// Brings other costs into a compiled program without compiling again: durations, delays, uses and peaks of memory. `rows` and `sending` are
/// those it was compiled with (`rowsOf` them where that lowers). Afterwards it equals `compile(rows, costs, sending)` in every field. Returns
/// false and leaves the program as it was where these costs make another structure (`Basis`: other messages, a channel that becomes or
/// ceases to be free, a reduction that begins to take time) or do not fit the rows: compile then. Cost: linear in steps, some tenth of
/// compiling; nothing is allocated but tables by stage.
[[nodiscard]] bool recost(const Schedule& rows, const CostTable& costs, Sending sending, Program& program);

}  // namespace pw
