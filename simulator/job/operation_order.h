#pragma once

// Internal to the recovery of jobs: which operations a step has, and in which order.

#include <vector>

#include "simulator/job/job.h"
#include "simulator/job/measured.h"
#include "simulator/job/separate.h"

namespace pw {

/// Whether a span of a trace without named operations is one: an optimizer, a reduction, parameters that are gathered for the whole rank.
[[nodiscard]] bool isOperation(const Span& span);

/// The operations of these steps [by step], in the order in which the workers do them (where workers disagree: as most; then by their mean
/// start), each after the actions that usually ended before it started. `spans`: of the steps' actions. `shape` is without operations.
/// Cost: n log n.
[[nodiscard]] std::vector<JobOperation> operationOrder(const JobShape& shape, const std::vector<std::vector<NamedSpan>>& operations,
                                                       const std::vector<const StepSpans*>& spans);

}  // namespace pw
