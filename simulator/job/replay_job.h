#pragma once

#include <vector>

#include "schedules/job_rank.h"
#include "simulator/job/job.h"
#include "simulator/job/typical.h"
#include "simulator/trace/trace.h"

namespace pw {

/// When everything happens, from the start of the step.
struct JobReplay {
  std::vector<Ns> start, end;                    ///< by slot
  std::vector<Ns> left, next;                    ///< by slot: when what it made can leave its rank, and when the rank goes on
  std::vector<Ns> operationStart, operationEnd;  ///< by worker × operation; 0 where there is none
  Ns step = 0;                                   ///< the last end of anything
  Ns makespan = 0;                               ///< from the first start to the last end of an action
};

/// Does the step with these times: a worker its operations before the pipeline, its row and the rest, one after the other; an action when
/// its rank is free and its message has arrived, after its wait; a collective ends a duration after all its workers came. The row holds for
/// operations within it; others during the row delay only those after them. `replay` is overwritten, and allocates nothing where it was
/// used before. Cost: linear.
void replayJob(const JobShape& shape, const Job& job, const JobTimes& times, JobReplay& replay);

/// Time that a worker lost before an action or operation, far beyond what is usual there.
struct Stall {
  std::size_t step = 0;
  JobRank worker;
  std::int32_t slot = -1;  ///< of all slots; −1: an operation
  std::int32_t operation = -1;
  bool message = false;  ///< it waited for a message, not for its host
  Ns lost = 0;           ///< beyond the usual

  bool operator==(const Stall&) const = default;
};
/// Waits and messages that take longer than usual by more than `kStallShare` of their step's makespan, by (step, slot, operation).
inline constexpr double kStallShare = 0.001;
[[nodiscard]] std::vector<Stall> stallsOf(const JobShape& shape, const Job& job, const TypicalTimes& typical);

/// The times of a step for its replay: its own durations (and messages, where they were timed) and stalls; all other waits and messages are
/// the usual ones.
[[nodiscard]] JobTimes ownTimes(const JobShape& shape, const Job& job, std::size_t step, const TypicalTimes& typical,
                                const std::vector<Stall>& stalls);
/// As it was measured: every known wait and message, the others as is usual.
[[nodiscard]] JobTimes measuredTimes(const JobShape& shape, const Job& job, std::size_t step, const TypicalTimes& typical);

/// How well a replay meets a measured step.
struct ReplayError {
  Ns measured = 0, replayed = 0;  ///< makespans
  double makespan = 0;            ///< signed fraction
  double start = 0;               ///< mean absolute start error of actions, of the measured makespan

  bool operator==(const ReplayError&) const = default;
};
/// By step; starts count from the first action. Cost: linear in slots and steps.
[[nodiscard]] std::vector<ReplayError> replayErrors(const JobShape& shape, const Job& job, const TypicalTimes& typical);

/// The replay of a copy as a trace of its pipeline.
[[nodiscard]] Trace traceOf(const JobShape& shape, const JobReplay& replay, std::size_t copy = 0);
/// The same with the operations of its workers, without their waits for others. `times`: those that were replayed.
[[nodiscard]] Trace stepOf(const JobShape& shape, const Job& job, const JobTimes& times, const JobReplay& replay, std::size_t copy);

}  // namespace pw
