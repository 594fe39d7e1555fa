#pragma once

#include <cstdint>
#include <vector>

#include "engine/exchange.h"
#include "simulator/plan/plan.h"

namespace pw {

/// One thing a rank does, in the terms of its exchange: what a lowered row says, and the messages over several stages that rows do not
/// name.
struct Op {
  enum class Kind : std::uint8_t { Post, Compute, Send, Reduce, Barrier } kind = Kind::Compute;
  Action action;  ///< Post and Send: of the compute action that uses, or made, the values

  bool operator==(const Op&) const = default;
};

/// The moves of a rank's row. A receive is posted right before the compute action before its RECV, so that the message comes in meanwhile;
/// one without a RECV before the compute action before its use. What has no SEND is sent as soon as it is computed. A lockstep schedule has
/// a barrier after every cycle. `evaluation`: the forward actions and their messages alone.
[[nodiscard]] std::vector<Op> opsOf(const Plan& plan, Rank rank, const Exchange& exchange, bool evaluation);

}  // namespace pw
