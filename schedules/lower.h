#pragma once

#include "schedules/schedule.h"

namespace pw {

/// In which order sends and receives stand between the compute actions.
enum class Lowering : std::uint8_t {
  Deferred,      ///< ours: a receive where its message is due, see `lower`
  Torch,         ///< torch's `_add_send_recv`: a receive stands as early as its send was scheduled
  TorchRuntime,  ///< as torch's runtime prepares it: UNSHARD and RESHARD, REDUCE_GRAD, then `_add_send_recv`
};

/// Inserts sends and receives into a compute-only schedule. Stages on one rank hand over without messages, a
/// forward-only schedule gets no backward messages, the first stage receives nothing forward and the last nothing
/// backward. Idle cells are dropped and messages already there replaced, so lowering twice is lowering once. The receives
/// and sends of an overlapped pair stand before and after the pair.
///
/// Every policy orders all messages globally and gives sender and receiver that same order, so none can deadlock, not
/// even with blocking sends and one channel for both directions of a rank pair.
/// Deferred takes the times of a simulation with F = I = W = 1, B = 2 and free messages: a send follows its action, its
/// receive stands in the receiver's first gap at or after that moment. So it holds a channel no earlier than its
/// message exists, and never later than the compute action before its use. Cost: n log n; Torch: linear in torch's
/// passes over the ranks.
/// Throws UsageError when the compute actions themselves deadlock or miss what they need (run `check`).
[[nodiscard]] Schedule lower(const Schedule& compute, Lowering lowering = Lowering::Deferred);

/// Puts a REDUCE_GRAD of each stage into every row that computes it: after its last B or W there and the sends directly behind that, so
/// that the stage before does not wait for the reduction to begin. Others already there are replaced, so twice is once. For schedules whose
/// gradients are summed between ranks: data-parallel replicas, or two replicas of each stage. Cost: linear.
[[nodiscard]] Schedule withReductions(const Schedule& schedule);

/// Removes messages, sharding and reduction again; idle cells stay. `computeOnly(lower(s)) == s` for every compute-only s without idle
/// cells.
[[nodiscard]] Schedule computeOnly(const Schedule& schedule);

/// Joins every I directly followed by the W of the same stage and microbatch into a B, as torch's `_merge_bw` does; idle cells are dropped.
[[nodiscard]] Schedule mergeBackward(const Schedule& compute);

/// Splits every B into I and W, one after the other; a slot keeps its B whole, for its two parts are one overlapped action.
/// `mergeBackward(splitBackward(s)) == s` for every s of F and B without idle cells.
[[nodiscard]] Schedule splitBackward(const Schedule& compute);

}  // namespace pw
