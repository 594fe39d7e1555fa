#pragma once

#include <map>
#include <string>
#include <tuple>

#include "simulator/trace/trace.h"

namespace pw {

/// Names of reductions over data-parallel replicas, by rank, start and end.
using ReductionNames = std::map<std::tuple<Rank, Ns, Ns>, std::string>;

/// Which ranks of a trace reduce together; by default as in a run of ours.
struct ReductionGroups {
  int ranks = 1, tensor = 1;  ///< of one pipeline where the trace has several; of a tensor-parallel group
  ReductionNames names = {};

  bool operator==(const ReductionGroups&) const = default;
};

/// A reduction ends nowhere before it has begun on all ranks that do it together, so the time until then is a wait for the others. Cuts it
/// off every reduction, which then begins when the last of them has begun, and returns its sum over all ranks. Together are the k-th
/// reductions of as many bytes of a stage on the ranks that hold it, in each tensor-parallel rank of `tensor` for itself; of those of no
/// stage the ones of a pipeline rank of `ranks`, or with `ranks` 1 all. A trace of another tool may draw as a reduction what is none, and
/// without bytes: of these, those of a pipeline rank that have the same name in `names` are together, and all others stay as they are. So
/// do those that do not overlap. Ranks are numbered by data-parallel replica, then tensor-parallel rank, then pipeline rank. Cost: n log n.
Ns cutReductionWaits(Trace& trace, const ReductionGroups& groups = {});

}  // namespace pw
