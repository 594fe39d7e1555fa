#pragma once

#include <string>
#include <vector>

#include "schedules/schedule.h"

namespace pw {

/// One thing wrong with a schedule: where, and a sentence saying what and why. `position` indexes the rank's row;
/// −1 when the problem is about something missing from the row.
struct Problem {
  Rank rank;
  int position = -1;
  Action action;
  std::string message;
  /// True for a deadlock that buffered (asynchronous) sends avoid: a caller that has them may ignore it.
  bool blockingOnly = false;

  bool operator==(const Problem&) const = default;
};

/// All problems of a schedule, by (rank, position); empty means it can be run.
/// Checks: ids in range and on the stage's rank; no duplicates (UNSHARD and RESHARD may repeat); every rank works;
/// every stage does F and (B, or I and W) of every microbatch exactly once (a row set with forwards only is complete as
/// well); F before B on a stage, I before W, REDUCE_GRAD last; F of stage s after F of stage s−1 and B of s after B of
/// s+1 under execution; in a lowered schedule every send has its receive, no receive comes after the action that needs
/// it, sends come after the action that produces, and no message goes where none is needed.
/// Deadlock: a schedule without other problems is executed once with buffered sends and, where it is lowered and
/// passed, once with rendezvous (blocking) sends: a send ends only while the peer is at the matching receive. A
/// deadlock is one problem whose message shows the cycle of waiting ranks, action by action.
/// Cost: linear in the number of actions; ids far beyond what the actions can fill are one problem, not a table.
[[nodiscard]] std::vector<Problem> check(const Schedule& schedule);

}  // namespace pw
