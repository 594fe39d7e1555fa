#pragma once

#include <string>
#include <vector>

#include "simulator/job/job.h"

namespace pw {

/// Times that a replay takes; indexed as in JobStep. None is negative, but for operations that a worker does not do (`kUnknownTime`).
struct JobTimes {
  std::vector<Ns> actions, waits, messages, operations, operationWaits;

  bool operator==(const JobTimes&) const = default;
};

/// What is usual in a job: medians over steps, of waits, messages and operations also over copies.
struct TypicalTimes {
  JobTimes times;          ///< copies differ in what their actions take alone
  std::vector<Ns> spread;  ///< by slot of a copy: half the distance of the quartiles of its duration, in the copy where that is most
};
/// Durations are medians by slot of each copy, messages by slot, which is by stage, rank, kind and microbatch. So are waits that are known
/// in half of the cases, and three at least or all there are (the first forward waits for data); else they are medians by rank, stage and
/// kind. A wait that is never known is in the message before it. Cost: n log n.
[[nodiscard]] TypicalTimes typicalTimes(const JobShape& shape, const Job& job);

/// The copy whose actions end last with these times where none waits for another; of several the first. Cost: a replay.
[[nodiscard]] std::size_t slowestCopy(const JobShape& shape, const Job& job, const JobTimes& times);

/// `usual times of pp8 (11 measured steps)`: where costs are from.
[[nodiscard]] std::string usualText(const Job& job);

/// The messages of all steps [by step and slot], also those that their receivers did not wait for: such a one takes as long as the fastest
/// that is known of its stage and direction (of less than three known, of its direction), but no longer than until its receiver was free.
/// `waits`: by slot, where a step's own are not known. Cost: a replay of every step.
[[nodiscard]] std::vector<std::vector<Ns>> messageTimes(const JobShape& shape, const Job& job, const std::vector<Ns>& waits);

}  // namespace pw
