#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "schedules/generate.h"
#include "simulator/plan/planner.h"

namespace pw {

/// Stages per rank after a change to this schedule: as many as before, where it takes them, and if those were more than one; else its
/// default. Of a schedule that is made for costs as many as before. Throws UsageError for an unknown name.
[[nodiscard]] int chunksWith(std::string_view schedule, const PlanRequest& request);

/// Why the family takes neither the request's chunks (more than one) nor its own default, with the request's ranks and microbatches: the
/// sentence of `Generator::refusal`. Nothing where it takes either.
[[nodiscard]] std::optional<std::string> refusalOf(const Generator& family, const PlanRequest& request);

}  // namespace pw
