#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ids.h"
#include "schedules/placement.h"

namespace pw {

/// What an action does; the letters are those of current torch.distributed.pipelining (`B` is the full backward).
enum class ActionKind : std::uint8_t {
  Forward,         ///< F
  Backward,        ///< B: input and weight gradients together
  BackwardInput,   ///< I
  BackwardWeight,  ///< W
  SendForward,     ///< SEND_F: the stage sends its outputs to every later stage on another rank that uses them
  RecvForward,     ///< RECV_F: the stage waits for its inputs
  SendBackward,    ///< SEND_B: the stage sends the gradients of its inputs to the stages that produced them
  RecvBackward,    ///< RECV_B: the stage waits for the gradients of its outputs
  ReduceGrad,      ///< REDUCE_GRAD
  Unshard,         ///< UNSHARD
  Reshard,         ///< RESHARD
  Idle,            ///< an empty cell of torch's compute-only CSV: shows a pause to the reader, has no effect on a run
};

/// One unit of work of one stage on one microbatch. UNSHARD, RESHARD and REDUCE_GRAD belong to the whole stage and
/// carry microbatch −1. Orders by (stage, kind, microbatch, overlapsNext).
struct Action {
  Stage stage;
  ActionKind kind = ActionKind::Forward;
  Microbatch microbatch;
  /// This forward and the backward (B) right after it in the row form one slot: both start when both are ready and end together. torch
  /// writes it `(0F5;7B2)OVERLAP_F_B`. A program that ignores the flag runs the two in sequence.
  bool overlapsNext = false;

  auto operator<=>(const Action&) const = default;
};

/// An empty cell: stage and microbatch −1.
inline constexpr Action kIdle{Stage{-1}, ActionKind::Idle, Microbatch{-1}};

/// F, B, I and W: the first of ActionKind.
inline constexpr std::size_t kComputeKinds = 4;
[[nodiscard]] constexpr bool isCompute(ActionKind k) {
  return k == ActionKind::Forward || k == ActionKind::Backward || k == ActionKind::BackwardInput || k == ActionKind::BackwardWeight;
}
[[nodiscard]] constexpr bool isSend(ActionKind k) { return k == ActionKind::SendForward || k == ActionKind::SendBackward; }
[[nodiscard]] constexpr bool isReceive(ActionKind k) { return k == ActionKind::RecvForward || k == ActionKind::RecvBackward; }
/// F and its messages.
[[nodiscard]] constexpr bool isForward(ActionKind k) {
  return k == ActionKind::Forward || k == ActionKind::SendForward || k == ActionKind::RecvForward;
}
/// B, I, W and their messages.
[[nodiscard]] constexpr bool isBackward(ActionKind k) { return (isCompute(k) || isSend(k) || isReceive(k)) && !isForward(k); }

/// B and I: it makes the gradient that the stage before waits for.
[[nodiscard]] constexpr bool makesGradient(ActionKind k) { return k == ActionKind::Backward || k == ActionKind::BackwardInput; }
/// All but what belongs to a whole stage, and idle cells.
[[nodiscard]] constexpr bool hasMicrobatch(ActionKind k) { return isCompute(k) || isSend(k) || isReceive(k); }
/// Whether the action at `position` and the next one of the row form a slot.
[[nodiscard]] constexpr bool beginsSlot(std::span<const Action> row, std::size_t position) {
  return row[position].overlapsNext && position + 1 < row.size() && row[position + 1].kind == ActionKind::Backward;
}

/// torch's letters of a kind: `F`, `SEND_B`, ...
[[nodiscard]] std::string_view letters(ActionKind kind);

/// torch's notation of an action: `2F0`, `1SEND_B3`, `0REDUCE_GRAD`.
[[nodiscard]] std::string toString(const Action& action);

/// The other end of a message: `0SEND_F3` ↔ `1RECV_F3`, `2SEND_B0` ↔ `1RECV_B0`. The stage may be outside the pipeline if the message
/// should not exist. Any other action is returned unchanged.
[[nodiscard]] Action counterpart(const Action& message);

/// A schedule: for each rank the actions in the order it does them, and which rank computes what. A compute-only
/// schedule holds F, B, I, W and perhaps idle cells; a lowered one also sends and receives. `microbatches` is M.
struct Schedule {
  std::string name;
  int microbatches = 0;
  Placement placement;
  std::vector<std::vector<Action>> rows;  ///< size = number of ranks
  /// All ranks advance cycle by cycle, with an exchange of messages after each (see `lockstepCycle` in generate.h).
  bool lockstep = false;

  bool operator==(const Schedule&) const = default;
};

/// The same schedule on other ranks: what rank i does, rank `order[i]` does. Throws UsageError for an order that does not name every rank
/// once.
[[nodiscard]] Schedule withRankOrder(const Schedule& schedule, const std::vector<Rank>& order);
/// Likewise of a placement on so many ranks.
[[nodiscard]] Placement withRankOrder(Placement placement, std::size_t ranks, const std::vector<Rank>& order);

/// Whether it holds sends or receives.
[[nodiscard]] bool isLowered(const Schedule& schedule);
/// Whether it computes a backward.
[[nodiscard]] bool trains(const Schedule& schedule);

[[nodiscard]] inline Shape shapeOf(const Schedule& s) {
  return {static_cast<int>(s.rows.size()), static_cast<int>(s.placement.stages()), s.microbatches};
}

}  // namespace pw
