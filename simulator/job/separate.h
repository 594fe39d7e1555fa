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
};

/// Fills the times of a step of the job, which starts at `first`. Messages that were not timed, and waits for them, are as yet together in
/// `messages`, from the end of the sender's action to the start. Cost: n log n.
void separate(const JobShape& shape, const Job& job, const StepSpans& spans, const std::vector<NamedSpan>& operations, Ns first,
              JobStep& step);

/// Takes from the messages of all steps that were not timed what their rank usually waits before actions of that kind, where that is known
/// of a quarter of them at least. Cost: linear.
void separateMessages(const JobShape& shape, Job& job);

}  // namespace pw
