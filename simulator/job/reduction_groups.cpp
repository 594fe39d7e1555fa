#include "simulator/job/reduction_groups.h"

#include <algorithm>

#include "simulator/job/job.h"

namespace pw {

ReductionGroups reductionGroups(const std::vector<NamedSpan>& operations, int ranks, int replicas, int tensor) {
  const int copies = std::max(1, replicas) * std::max(1, tensor);
  ReductionGroups groups{std::max(1, ranks / copies), std::max(1, tensor), {}};
  for (const NamedSpan& operation : operations) {
    if (groupNamed(operation.name) == OperationGroup::Replicas)
      groups.names[{Rank(operation.worker.value), operation.start, operation.end}] = operation.name;
  }
  return groups;
}

}  // namespace pw
