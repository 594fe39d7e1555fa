#include "simulator/job/memory.h"

#include <algorithm>

#include "schedules/error.h"
#include "simulator/job/job_costs.h"

namespace pw {
namespace {

void requireShown(bool isShown) {
  if (!isShown) throw UsageError("the traces of this job say nothing of memory, so that no limit can be checked; omit --memory-limit");
}

}  // namespace

void requireMemory(const Job& job) { requireShown(!job.memory.empty()); }

void requireMemory(const LayerTable& table) {
  requireShown(!isOfJob(table) || std::ranges::any_of(table.layers, [](const Layer& layer) { return layer.activations > 0; }));
}

}  // namespace pw
