#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"

namespace pw {

/// Under which transport a problem stops a run. Each later one is milder than all before it.
enum class Stops : std::uint8_t {
  Always,      ///< whatever carries the messages
  OneChannel,  ///< only where both directions of a rank pair share one in-order channel (one NCCL communicator)
  Blocking,    ///< only where a send waits until its receiver takes it (rendezvous)
  Nothing,     ///< it runs, but is not what the caller expected (`check` itself reports none of these)
};

/// `always`, `one_channel`, `blocking_sends`, `nothing`.
[[nodiscard]] std::string_view name(Stops stops);

/// One thing wrong with a schedule: where, and a sentence saying what and why. `position` indexes the rank's row;
/// −1 when the problem is about something missing from the row.
struct Problem {
  Rank rank;
  int position = -1;
  Action action;
  std::string message;
  Stops stops = Stops::Always;

  bool operator==(const Problem&) const = default;
};

/// All problems of a schedule, by (rank, position); empty means it can be run by any transport.
/// Single actions: ids in range and on the rank the placement says; no duplicates (UNSHARD and RESHARD may repeat);
/// every rank works; a stage does F and (B, or I and W) of every microbatch exactly once (a row set with forwards only
/// is complete as well); F before B, I before W, REDUCE_GRAD after every B and W of its stage; a slot is an F and, next to it, a B of
/// another (stage, microbatch).
/// Messages of a lowered schedule: every send has its receive, no receive comes after the action that needs it, sends
/// come after the action that produces, no message goes where none is needed, and each direction of a rank pair is
/// received in the order it is sent.
/// Deadlock: a schedule without other problems is executed with buffered sends (a send waits for nothing, a receive for
/// its send); where it is lowered and passes, the operations of each rank pair are compared one by one (one channel:
/// the k-th of one rank must be the other end of the k-th of the other), and it is executed with rendezvous
/// sends: a send ends only while the peer is at the matching receive. A deadlock is one problem whose message shows the
/// cycle of waiting ranks, action by action. What passes with rendezvous sends passes everywhere.
/// Cost: linear in the number of actions; ids far beyond what the actions can fill are one problem, not a table.
[[nodiscard]] std::vector<Problem> check(const Schedule& schedule);

/// What each stage says of its messages [bytes per microbatch, one value per stage; 0 where it has none]: as the two
/// ends are often described apart (by hand, from example inputs), a difference is found only by a hang.
struct MessageSizes {
  std::vector<Bytes> sends;     ///< forward to the next stage
  std::vector<Bytes> receives;  ///< forward from the stage before
};

/// The stages whose receivers expect other sizes than their senders send: both directions hang or corrupt, as a gradient
/// has the size of its value. One problem for each such pair, at the first receive (forward, in compute-only schedules) of
/// the later stage. Throws UsageError when the lists have another length than the schedule has stages or hold negative sizes.
[[nodiscard]] std::vector<Problem> checkSizes(const Schedule& schedule, const MessageSizes& sizes);

}  // namespace pw
