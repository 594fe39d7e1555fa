#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/schedule.h"
#include "simulator/step/cost_table.h"
#include "simulator/trace/trace.h"

namespace pw {

/// How messages are sent. In every case a message costs its latency and transfer time, and only between ranks.
enum class Sending : std::uint8_t {
  Overlapped,  ///< in the background, received whenever they arrive; the schedule's own sends and receives are ignored
  Posted,  ///< a SEND and its RECV post the two ends: the transfer starts when both are posted and the channel is free; compute continues
  OneChannel,  ///< as Posted, but both directions of a rank pair share one in-order channel (one NCCL communicator)
  Blocking,    ///< a SEND and its RECV hold both ranks until the message is over (rendezvous)
};
constexpr std::string_view nameOf(Sending sending) {
  switch (sending) {
    case Sending::Overlapped: return "overlapped";
    case Sending::Posted: return "posted";
    case Sending::OneChannel: return "one-channel";
    case Sending::Blocking: return "blocking";
  }
  return {};
}

/// Predicts one iteration. Every rank executes its row in order; a compute action starts when the rank is free and all its messages have
/// arrived; sends do not block compute (see Sending for other ways); a channel (direction, rank pair) carries one transfer at a time, in
/// the order sends were started (table order where one action sends several). The two actions of a slot start as soon as both can and
/// end together. A lockstep schedule runs cycle by cycle: the slowest rank's sum of load, fragments and store, then the exchange of all its
/// messages. A REDUCE_GRAD starts the stage's reduction (`StageCost::reduce`) in the background when its rank reaches it (if two replicas
/// of the stage are on different ranks: when both have); the reductions of a rank run one after the other, in the order of its row. When
/// all rows and reductions are done, shared parameters' gradients are summed (all ranks together); a rank runs its optimizer after that or,
/// if nothing is shared, after its own row and reductions. A forward-only schedule has neither. Memory: parameters, gradients, optimizer
/// state, buffers and data all the time; activations from F start to the end of B (or W; `freedByInput` to the end of I; in a forward-only
/// schedule to the end of F); what an action needs beyond that (the peaks) in the middle of the action, of a slot the larger one; a
/// receive's buffer from its posting to the start of the action that uses it; a gradient for another rank until the end of the compute
/// action after the one that made it (after the last: not at all), one for another stage of the rank until the start of its backward; what
/// a W needs of the stage before on its rank (`sharedForWeight`) from the end of that stage's backward to the end of the W. A receive is
/// posted as by the engine, when the compute action before its RECV starts (in a schedule without messages: before the action that uses
/// it), so that the message arrives meanwhile; unless Overlapped, by its RECV. Memory along a row therefore does not depend on times.
/// `microbatchScale` multiplies compute durations and transfers (to the nearest ns), not latency and bytes. Throws Error when the schedule
/// deadlocks (run `check` for the cycle) or does not fit the costs. No ties: all sends of a channel come from one rank's row. Cost: linear
/// in actions plus messages, and sorting the trace.
[[nodiscard]] Trace simulate(const Schedule& schedule, const CostTable& costs, Sending sending = Sending::Overlapped);

}  // namespace pw
