#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"

namespace pw {

/// The transports on which a problem stops a run, from the most severe case to the mildest.
enum class Stops : std::uint8_t {
  Always,      ///< on every transport
  OneChannel,  ///< only where both directions of a rank pair share one in-order channel (one NCCL communicator)
  Blocking,    ///< only where a send waits until its receiver takes it (rendezvous)
  Nothing,     ///< on none: the schedule runs, but not as the caller expected (`check` itself reports none of these)
};

/// `always`, `one_channel`, `blocking_sends`, `nothing`.
[[nodiscard]] std::string_view nameOf(Stops stops);

/// One thing wrong with a schedule: where it is, and a sentence that says what is wrong and why. `position` indexes the rank's row; −1 when
/// something is missing from the row.
struct Problem {
  Rank rank;
  int position = -1;
  Action action;
  std::string message;
  Stops stops = Stops::Always;

  bool operator==(const Problem&) const = default;
};

/// All problems of a schedule, by (rank, position); empty means that it runs on any transport. Single actions: ids in range and on the rank
/// the placement says; no duplicates (UNSHARD and RESHARD may repeat); every rank works; a stage does F and (B, or I and W) of every
/// microbatch exactly once (a schedule of forwards only is complete as well); F before B, I before W, REDUCE_GRAD after every B and W of
/// its stage; a slot is an F and, next to it, a B of another (stage, microbatch). Messages of a lowered schedule: every send has its
/// receive, no receive comes after the action that needs it, sends come after the action that produces, no message goes where none is
/// needed, and each direction of a rank pair is received in the order it is sent. Deadlock: a schedule without other problems is executed
/// with buffered sends (a send waits for nothing, a receive for its send); where it is lowered and passes, the operations of each rank pair
/// are compared one by one (one channel: the k-th of one rank must be the other end of the k-th of the other), and it is executed with
/// rendezvous sends: a send ends only while the peer is at the matching receive. A deadlock is one problem whose message shows the cycle of
/// waiting ranks, action by action. A schedule that passes with rendezvous sends passes everywhere. Cost: linear in the number of actions;
/// an id far larger than the number of actions allows is reported as one problem, and no table is built for it.
[[nodiscard]] std::vector<Problem> check(const Schedule& schedule);

/// `NAME cannot be run: rank 1: F0 comes after B0`, without an end: how every face refuses a schedule. `name`: of the schedule, or of the
/// file that it is from.
[[nodiscard]] std::string refusalOf(std::string_view name, const Problem& problem);
/// Throws UsageError with the first problem, and where to see the rest, if the schedule runs on no transport (Stops::Always).
void requireRunnable(std::string_view name, const Schedule& schedule);

/// The message sizes that each stage declares [bytes per microbatch, one value per stage; 0 where it has no such message]. The two ends are
/// often described separately (by hand, from example inputs), and a mismatch otherwise shows only as a hang.
struct MessageSizes {
  std::vector<Bytes> sends;     ///< forward, to the next stage
  std::vector<Bytes> receives;  ///< forward, from the previous stage
};

/// The stages whose receivers expect a different size from what their senders send: both directions then hang or corrupt data, as a
/// gradient has the size of its value. One problem for each such pair, at the first receive of the later stage (in compute-only schedules:
/// its first forward). Throws UsageError when a list does not have one value per stage or holds a negative size.
[[nodiscard]] std::vector<Problem> checkSizes(const Schedule& schedule, const MessageSizes& sizes);

/// The stages that are not where a regular placement of the schedule's shape has them, or why it has no such placement; of `Custom`
/// nothing. None of these problems stops a run. Cost: linear in the actions.
[[nodiscard]] std::vector<Problem> checkPlacement(const Schedule& schedule, PlacementKind wanted);

}  // namespace pw
