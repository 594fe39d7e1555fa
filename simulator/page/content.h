#pragma once

#include <string>

#include "simulator/page/page.h"
#include "simulator/plan/plan.h"
#include "simulator/trace/reductions.h"

namespace pw {

/// Adds what a plan says: its facts, and a table of stages. `predicted` is the trace of its prediction.
void addPlan(Page& page, const Plan& plan, const Trace& predicted);

/// Adds a table of what ranks do in the page's steps: busy, idle, exposed messages, peak memory.
void addRanks(Page& page);

/// Adds where the second of the page's two steps differs from the first, the prediction of the plan, by kind, stage and rank, and the
/// verdict as the page's sentence. `reductions`: of the second step.
void addErrors(Page& page, const Plan& plan, const ReductionGroups& reductions);

}  // namespace pw
