#pragma once

#include "schedules/answer.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/trace/trace.h"

namespace pw {

/// The step as simulated with the measured duration of every compute action (the two of a slot one after the other, as the engine runs
/// them) and with the messages of the costs: how long the run would have taken without any overhead of the engine. Comparing its makespan
/// with the measured one shows that overhead. Of several replicas the first is used; pieces of one action count together. Or which action
/// of the schedule is not in the trace, so that there is nothing to replay. Throws as `compile`. Cost: n log n.
Answer<Trace> replay(const Schedule& schedule, const CostTable& costs, const Trace& measured);

}  // namespace pw
