#pragma once

// Internal to the recovery of jobs: a step's times taken apart into durations, messages and waits.

#include <vector>

#include "simulator/job/job.h"
#include "simulator/job/measured.h"

namespace pw {

/// When the actions of a step start and end, by slot, on one clock; and how long their messages were in transfer (`kUnknownTime`: not
/// timed).
struct StepSpans {
  std::vector<Ns> start, end, message;
  std::vector<Ns>
      held;  ///< end of a reduction of the whole rank that begins as the action ends, as DDP waits in its last backward; else −1
};

/// By slot: how long its rank was still busy after the sender of its message had ended, where that was not timed; `kUnknownTime` elsewhere.
using Slack = std::vector<Ns>;

/// Fills the times of a step of the job, which starts at `first`. Messages that were not timed, and waits for them, are as yet together in
/// `messages`, from the end of the sender's action to the start; where the rank was busy meanwhile, what it then waited is in `waits`.
/// Cost: n log n.
[[nodiscard]] Slack separate(const JobShape& shape, const Job& job, const StepSpans& spans, const std::vector<NamedSpan>& operations,
                             Ns first, JobStep& step);

/// Takes from the messages of all steps that were not timed what their rank usually waits before actions of that kind, where that is known
/// of a quarter of them at least. What a rank waited that was busy for less than the message usually takes was a wait for the rest of the
/// message, not for its host. `slacks`: by step. Cost: n log n.
void separateMessages(const JobShape& shape, const std::vector<Slack>& slacks, Job& job);

}  // namespace pw
