#pragma once

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
  Bytes freedByInput = 0;     ///< the part that a separate I frees at its end; W frees the rest
  Bytes addedByInput = 0;     ///< what W needs in addition to the rest, from the end of I to the end of W
  // Peaks during an action; 0: no more than before and after it.
  Bytes forwardPeak = 0;   ///< F: of this microbatch, received values included, as in `activationBytes`
  Bytes backwardPeak = 0;  ///< B: above what was kept at its start, received gradients included
  Bytes inputPeak = 0;     ///< I: likewise
  Bytes weightPeak = 0;    ///< W: above what was kept at its start
  Bytes updatedBytes = 0;  ///< parameters that this stage's optimizer updates: trained ones, without those another stage owns
  Bytes fixedBytes = 0;    ///< buffers and constants
  Bytes dataBytes = 0;     ///< model inputs of one microbatch; those of all microbatches are there all the time
  Ns reduce = 0;           ///< summing its gradients over all ranks that hold it, on the network; starts at REDUCE_GRAD, compute continues
  Bytes sharedForWeight = 0;  ///< the part of what W needs that the stage before, on the same rank, holds anyway until its backward ends

  bool operator==(const StageCost&) const = default;
};

/// What W holds alone, from the end of I on. Where the stage before ends its backward earlier than this W, `sharedForWeight` is to be added
/// from there on.
[[nodiscard]] constexpr Bytes heldForWeight(const StageCost& cost) {
  return cost.activationBytes - cost.freedByInput + cost.addedByInput - cost.sharedForWeight;
}

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

/// What the simulator needs in addition to the schedule.
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

/// Adds to each action so much for every message that it sends to another rank.
void addTimeOfSends(CostTable& costs, const Placement& placement, Ns each);

/// Synthetic costs: each list has one value, or one per stage; messages go between neighbouring stages in both directions. An empty
/// `backward` is input + weight; without `backwardInput` or `backwardWeight` that part is what the other leaves of the backward, without
/// both each is half. Throws UsageError when a list has another length or a negative time.
struct SyntheticCosts {
  std::vector<Ns> forward, backward, backwardInput, backwardWeight;
  Ns latency = 0;
  Ns transfer = 0;
  std::vector<Ns> overlap;  ///< a slot, by the stage of its forward; empty: the sum of F and B
};
[[nodiscard]] CostTable syntheticTable(const SyntheticCosts& costs, int stages);

/// Of schedules without a model: a round unit, a backward of twice the forward, as usual, and messages that take no time.
inline constexpr Ns kDefaultForward = 1'000'000;
inline constexpr int kDefaultBackwardRatio = 2;
[[nodiscard]] CostTable defaultCosts(int stages);

/// Throws Error, naming what does not fit, when ids of the schedule or the costs are out of range, an action is not on its stage's rank,
/// sizes differ, a message does not lead forward (or, of gradients, back), or the schedule has fewer actions than stages × microbatches.
void requireFitting(const Schedule& schedule, const CostTable& costs);

/// Throws UsageError when times or sizes are too large for their sums over an iteration of this shape, idle time of all ranks included, to
/// stay within 64 bits. The costs of a plan file are already checked.
void requireSummable(const CostTable& costs, const Shape& shape);

}  // namespace pw
