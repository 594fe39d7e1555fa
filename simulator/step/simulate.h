#pragma once

#include <cstdint>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/trace/trace.h"

namespace pw {

/// Times of one stage for one microbatch, and its memory.
struct StageCost {
  Ns forward = 0;
  Ns backward = 0;  ///< B
  Ns backwardInput = 0;
  Ns backwardWeight = 0;
  Ns optimizer = 0;  ///< optimizer step of this stage's parameters, once per iteration
  Bytes parameterBytes = 0;
  Bytes gradientBytes = 0;
  Bytes optimizerBytes = 0;
  Bytes activationBytes = 0;  ///< kept from F start to B (or W) end, per microbatch
  Bytes freedByInput = 0;     ///< the part of it that a separate I frees at its end; W frees the rest
  Bytes addedByInput = 0;     ///< what W needs beyond the rest, from the end of I to the end of W
  // Most at any moment of an action; 0: no more than before and after it.
  Bytes forwardPeak = 0;   ///< F: of this microbatch, received values included, as in `activationBytes`
  Bytes backwardPeak = 0;  ///< B: above what was kept at its start, received gradients included
  Bytes inputPeak = 0;     ///< I: likewise
  Bytes weightPeak = 0;    ///< W: above what was kept at its start
  Bytes updatedBytes = 0;  ///< parameters that this stage's optimizer updates: trained ones, without those another stage owns
  Bytes fixedBytes = 0;    ///< buffers and constants
  Bytes dataBytes = 0;     ///< model inputs of one microbatch; those of all microbatches are there all the time
  Ns reduce = 0;           ///< summing its gradients over all ranks that hold it, on the network; starts at REDUCE_GRAD, compute goes on

  bool operator==(const StageCost&) const = default;
};

/// A message between two stages for each microbatch, forward or back; those on one rank cost nothing.
struct MessageCost {
  Stage from;
  Stage to;
  bool backward = false;  ///< gradients travel from the later stage (`from`) to the earlier one (`to`)
  Bytes bytes = 0;
  Ns latency = 0;   ///< does not hold the channel
  Ns transfer = 0;  ///< holds the channel of its direction and rank pair

  bool operator==(const MessageCost&) const = default;
};

/// What the simulator needs to know beside the schedule.
struct CostTable {
  std::vector<StageCost> stages;
  std::vector<MessageCost> messages;
  Ns reduceTime = 0;                    ///< keeping shared parameters equal at the end of the step
  std::vector<Ns> overlap;              ///< duration of a slot, by the stage of its forward; empty: the sum of F and B
  Ns load = 0;                          ///< lockstep only: host to device of a microbatch's input (first rank) and target (last rank)
  Ns store = 0;                         ///< lockstep only: device to host of a microbatch's result, on the last rank
  std::vector<double> microbatchScale;  ///< duration factor of each microbatch (uneven sizes); empty: all 1

  bool operator==(const CostTable&) const = default;
};

/// How messages go. Whatever the way, a message costs its latency and transfer, and only between ranks.
enum class Sending : std::uint8_t {
  Overlapped,  ///< in the background, received whenever they come; the schedule's own sends and receives are ignored
  Posted,      ///< a SEND and its RECV post the two ends: the transfer starts when both are posted and the channel is free; compute goes on
  OneChannel,  ///< as Posted, but both directions of a rank pair share one in-order channel (one NCCL communicator)
  Blocking,    ///< a SEND and its RECV hold both ranks until the message is over (rendezvous)
};

/// Synthetic costs: one value or one per stage in each list (a list of one is repeated); messages between neighbouring
/// stages both ways. An empty `backward` is input + weight; without `backwardInput` or `backwardWeight` that part is what the other
/// leaves of the backward, without both each is half. Throws UsageError when a list has another length or a negative time.
struct SyntheticCosts {
  std::vector<Ns> forward, backward, backwardInput, backwardWeight;
  Ns latency = 0;
  Ns transfer = 0;
  std::vector<Ns> overlap;  ///< a slot, by the stage of its forward; empty: the sum of F and B
};
[[nodiscard]] CostTable syntheticTable(const SyntheticCosts& costs, int stages);

/// Throws Error, naming what does not fit, when ids of the schedule or the costs are out of range, an action is not on its stage's rank,
/// sizes differ, a message does not lead forward (or, of gradients, back), or the schedule has fewer actions than stages × microbatches.
void requireFitting(const Schedule& schedule, const CostTable& costs);

/// Throws UsageError when times or sizes are too large for their sums over an iteration of this shape, idle time of all ranks included, to
/// stay within 64 bits. Costs of a plan file have been checked.
void requireSummable(const CostTable& costs, const Shape& shape);

/// Predicts one iteration. Every rank does its row in order; a compute action starts when the rank is free and all its messages
/// have arrived; sends do not block compute (see Sending for other ways); a channel (direction, rank pair) carries one transfer at a time,
/// in the order sends were started (table order where one action sends several). The two actions of a slot start when both could and
/// end together. A lockstep schedule goes cycle by cycle: the slowest rank's sum of load, fragments and store, then the exchange of all its messages.
/// A REDUCE_GRAD starts the stage's reduction (`StageCost::reduce`) in the background when its rank gets there and, where two replicas of the
/// stage are on different ranks, both did; the reductions of a rank run one after the other, in the order of its row. When all rows and
/// reductions are done shared parameters' gradients are summed (all ranks together); a rank takes the optimizer step after that, or, where
/// none is shared, after its row and reductions. A forward-only schedule has neither.
/// Memory: parameters, gradients, optimizer state, buffers and data all the time; activations from F start to the end of B (or W; `freedByInput`
/// to the end of I; in a forward-only schedule to the end of F); what an action needs beyond that (the peaks) in the middle of the action, of
/// a slot the larger one; a receive's buffer from its posting to the start of the action that uses it; a gradient for another rank until the
/// end of the compute action after the one that made it (behind the last: not at all). A receive is posted as the engine does, when the compute action before its RECV starts (in a schedule without messages: before the action that
/// uses it), so that the message comes in meanwhile; unless Overlapped by its RECV. So the memory along a row does not depend on times.
/// `microbatchScale` multiplies compute durations and transfers (to the nearest ns), not latency and bytes.
/// Throws Error when the schedule deadlocks (run `check` for the cycle) or does not fit the costs. No ties: all sends of a channel come
/// from one rank's row. Cost: linear in actions plus messages, and sorting the trace.
[[nodiscard]] Trace simulate(const Schedule& schedule, const CostTable& costs, Sending sending = Sending::Overlapped);

}  // namespace pw
