#pragma once

#include <optional>
#include <string>

#include "engine/planning/prediction.h"
#include "engine/planning/subject.h"
#include "simulator/job/job.h"

namespace pw {

/// What is simulated with the costs of a job (`SubjectOptions::costsFrom`: a job or its trace): without a schedule in the options its own,
/// action by action; else theirs, of the job's ranks and microbatches where they do not say others, with the job's work spread over its
/// stages (`costsFor`). Slow ranks are not looked at. Throws UsageError where neither options nor job say the schedule, and for a memory
/// limit where the job's traces do not show memory.
[[nodiscard]] Subject jobSubject(const SubjectOptions& options);

/// The options' shape, with the job's ranks and microbatches where they do not say others.
[[nodiscard]] ShapeOptions jobShape(const SubjectOptions& options);

/// The same for a schedule at hand.
[[nodiscard]] Subject jobSubject(Schedule schedule, const SubjectOptions& options);

/// As `uncertaintyOf` of the job, with its held-out steps predicted as that runtime posts its messages; nothing where they cannot be.
[[nodiscard]] std::optional<Uncertainty> uncertaintyOf(const Job& job, const Schedule& schedule, const RuntimeChoice& choice);

/// `each microbatch's usual times of pp8 (11 steps)`; without `isByAction` `each stage's …`, which are means over microbatches.
[[nodiscard]] std::string jobTimesText(const Job& job, bool isByAction);

}  // namespace pw
