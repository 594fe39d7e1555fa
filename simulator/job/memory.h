#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "simulator/job/job.h"
#include "simulator/job/measured.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Of each pipeline rank the worker and step with the largest memory; empty where the traces do not show that of every rank, and how it
/// rises in a step.
[[nodiscard]] std::vector<MeasuredMemory> memoryOf(const MeasuredJob& measured, std::size_t ranks);
/// Throws UsageError where the traces of the job do not show memory, so that no limit of it can be checked; `limit`: what sets one.
void requireMemory(const Job& job, std::string_view limit = "--memory-limit");
/// The same of a model, where it is made of a job (`isOfJob`).
void requireMemory(const ModelGraph& graph, std::string_view limit = "--memory-limit");

}  // namespace pw
