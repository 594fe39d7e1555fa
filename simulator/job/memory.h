#pragma once

#include "simulator/costs/layer_table.h"
#include "simulator/job/job.h"

namespace pw {

/// Throws UsageError where the traces of the job do not show memory, so that no limit of it can be checked.
void requireMemory(const Job& job);
/// The same of a layer table, where it is that of a job (`isOfJob`).
void requireMemory(const LayerTable& table);

}  // namespace pw
