#pragma once

#include <string_view>

#include "simulator/job/job.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Throws UsageError where the traces of the job do not show memory, so that no limit of it can be checked; `limit`: what sets one.
void requireMemory(const Job& job, std::string_view limit = "--memory-limit");
/// The same of a model, where it is made of a job (`isOfJob`).
void requireMemory(const ModelGraph& graph, std::string_view limit = "--memory-limit");

}  // namespace pw
