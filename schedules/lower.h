#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"

namespace pw {

/// Where sends and receives are placed between the compute actions.
enum class Lowering : std::uint8_t {
  Deferred,      ///< ours: a receive is placed where its message is due, see `lower`
  Torch,         ///< torch's `_add_send_recv`: a receive is placed as early as its send
  TorchRuntime,  ///< as torch's runtime prepares it: UNSHARD and RESHARD, REDUCE_GRAD, then `_add_send_recv`
};
constexpr std::string_view nameOf(Lowering lowering) {
  switch (lowering) {
    case Lowering::Deferred: return "deferred";
    case Lowering::Torch: return "torch";
    case Lowering::TorchRuntime: return "torch-runtime";
  }
  return {};
}

/// Inserts sends and receives into a compute-only schedule. Stages on the same rank exchange no messages, a forward-only schedule gets no
/// backward messages, the first stage receives nothing in the forward and the last nothing in the backward. Idle cells are dropped and
/// messages already there replaced, so lowering twice changes nothing. The receives and sends of an overlapped pair come before and after
/// the pair.
///
/// Every policy orders all messages globally and gives sender and receiver that same order, so none can deadlock, not even with blocking
/// sends and one channel for both directions of a rank pair. Deferred takes the times of a simulation with F = I = W = 1, B = 2 and free
/// messages: a send follows its action, its receive goes into the receiver's first gap at or after that moment. It therefore never
/// occupies a channel before its message exists, and never comes later than the compute action before its use. Cost: n log n; Torch: linear
/// in torch's passes over the ranks. Throws UsageError when the compute actions themselves deadlock or lack what they need (run `check`).
[[nodiscard]] Schedule lower(const Schedule& compute, Lowering lowering = Lowering::Deferred);

/// How long actions take, by stage.
struct ActionTimes {
  std::vector<Ns> forward, backward, input, weight;

  bool operator==(const ActionTimes&) const = default;
};
/// As Deferred, with these times in place of units, so that a rank is not stopped by a receive whose message comes later. Cost and errors:
/// as there; UsageError also for another number of stages.
[[nodiscard]] Schedule lower(const Schedule& compute, const ActionTimes& times);

/// Adds a REDUCE_GRAD of each stage to every row that computes it: after the stage's last B or W there and the sends that directly follow,
/// so that the previous stage does not wait for the reduction to begin. Existing ones are replaced, so doing it twice changes nothing. For
/// schedules whose gradients are summed between ranks: data-parallel replicas, or two replicas of each stage. Cost: linear.
[[nodiscard]] Schedule withReductions(const Schedule& schedule);

/// Removes messages, sharding and reductions; idle cells stay. `computeOnly(lower(s)) == s` for every compute-only s without idle cells.
[[nodiscard]] Schedule computeOnly(const Schedule& schedule);

/// When each action starts, as in the rows, where F = I = W = 1 ns, B = 2 ns and messages take no time; those of an overlapped pair
/// together. Takes a compute-only schedule; idle cells take no time and start when what follows them could. Cost: linear. Throws as
/// `lower`.
[[nodiscard]] std::vector<std::vector<Ns>> unitStarts(const Schedule& compute);

/// Joins every I directly followed by the W of the same stage and microbatch into a B, as torch's `_merge_bw` does; idle cells are dropped.
[[nodiscard]] Schedule mergeBackward(const Schedule& compute);

}  // namespace pw
