#pragma once

#include <cstdint>
#include <vector>

#include "engine/exchange.h"
#include "simulator/plan/plan.h"

namespace pw {

/// One operation of a rank: the actions of a lowered row, and the messages over several stages that rows do not contain.
struct Op {
  enum class Kind : std::uint8_t { Post, Compute, Send, Reduce, Barrier } kind = Kind::Compute;
  Action action;  ///< Post and Send: of the compute action that uses, or made, the values

  bool operator==(const Op&) const = default;
};

/// The ops of a rank's row. A receive is posted right before the compute action that precedes its RECV, so that the message arrives
/// meanwhile; one without a RECV before the compute action that precedes its use. Values without a SEND are sent as soon as they are
/// computed. A lockstep schedule has a barrier after every cycle. `evaluation`: the forward actions and their messages alone.
[[nodiscard]] std::vector<Op> opsOf(const Plan& plan, Rank rank, const Exchange& exchange, bool evaluation);

}  // namespace pw
