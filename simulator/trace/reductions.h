#pragma once

#include "simulator/trace/trace.h"

namespace pw {

/// A reduction ends nowhere before it has begun on all ranks that do it together, so the time until then is a wait for the others. Cuts it
/// off every reduction, which then begins when the last of them has begun, and returns its sum over all ranks. Together are the k-th
/// reductions of a stage on the ranks that hold it, in each tensor-parallel rank of `tensor` for itself; of those of no stage the ones of a
/// pipeline rank of `ranks`, or with `ranks` 1 all. Those that do not overlap stay as they are. Ranks are numbered by data-parallel
/// replica, then tensor-parallel rank, then pipeline rank. Cost: n log n.
Ns cutReductionWaits(Trace& trace, int ranks = 1, int tensor = 1);

}  // namespace pw
