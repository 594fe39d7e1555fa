#pragma once

#include "simulator/job/job.h"
#include "simulator/job/measured.h"

namespace pw {

/// The job that these steps are of. The schedule is the order of the first pipeline in most of its whole steps (`executedSchedule`); a step
/// that lacks an action of it in any copy is left out, and said in the notes; how many do them in another order is said too. Operations
/// come in the order in which workers do them. An action waits for its host as long as it starts later than all it needs; where messages
/// were not timed and one came last, its time is from the end of the action that sent it, less what its rank usually waits. A trace's own
/// optimizer and reductions count as operations where the step names none. Throws UsageError where no step is whole. Cost: n log n in
/// spans.
[[nodiscard]] Job jobOf(const MeasuredJob& measured);

}  // namespace pw
