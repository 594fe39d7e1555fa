#pragma once

#include <vector>

#include "schedules/schedule.h"
#include "simulator/trace.h"

namespace pw {

/// Times of one stage for one microbatch, and its memory.
struct StageCost {
  Ns forward = 0;
  Ns backward = 0;  ///< B; with separate I and W their sum
  Ns backwardInput = 0;
  Ns backwardWeight = 0;
  Ns optimizer = 0;  ///< optimizer step of this stage's parameters, once per iteration
  Bytes parameterBytes = 0;
  Bytes gradientBytes = 0;
  Bytes optimizerBytes = 0;
  Bytes activationBytes = 0;  ///< kept from F start to B (or W) end, per microbatch

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
  Ns reduceTime = 0;                    ///< summing gradients of replicated parameters at the end of the step
  std::vector<double> microbatchScale;  ///< duration factor of each microbatch (uneven sizes); empty: all 1

  bool operator==(const CostTable&) const = default;
};

/// Synthetic costs: one value or one per stage in each list (a list of one is repeated); messages between neighbouring
/// stages both ways. An empty `backward` is input + weight; without `backwardInput` or `backwardWeight` that part is what the other
/// leaves of the backward, without both each is half. Throws UsageError when a list has another length or a negative time.
struct SyntheticCosts {
  std::vector<Ns> forward, backward, backwardInput, backwardWeight;
  Ns latency = 0;
  Ns transfer = 0;
};
[[nodiscard]] CostTable syntheticTable(const SyntheticCosts& costs, int stages);

/// Throws Error, naming what does not fit, when ids of the schedule or the costs are out of range, an action is not on its stage's rank,
/// sizes differ, a message does not lead forward (or, of gradients, back), or the schedule has fewer actions than stages × microbatches.
void requireFitting(const Schedule& schedule, const CostTable& costs);

/// Predicts one iteration. Every rank does its row in order; a compute action starts when the rank is free and all its messages
/// have arrived; sends do not block compute; a channel (direction, rank pair) carries one transfer at a time, in the order sends were
/// started (table order where one action sends several). When all rows are done replicated gradients are reduced (all ranks together);
/// a rank takes the optimizer step after that, or, where nothing is reduced, after its row. A forward-only schedule has neither.
/// Send and receive actions of a lowered schedule are ignored: messages follow from `costs.messages`.
/// Memory: parameters, gradients and optimizer state all the time; activations from F start to the end of B (or W); a received
/// buffer from arrival to the start of the action that uses it. In a forward-only schedule activations end with F.
/// `microbatchScale` multiplies compute durations and transfers (to the nearest ns), not latency and bytes.
/// Throws Error when the schedule deadlocks (run `check` for the cycle) or does not fit the costs. No ties: all sends of a channel come
/// from one rank's row. Cost: linear in actions plus messages, and sorting the trace.
[[nodiscard]] Trace simulate(const Schedule& schedule, const CostTable& costs);

}  // namespace pw
