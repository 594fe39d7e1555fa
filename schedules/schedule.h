#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// What an action does; the letters are those of current torch.distributed.pipelining (`B` is the full backward).
enum class ActionKind : std::uint8_t {
  Forward,        ///< F
  Backward,       ///< B: input and weight gradients together
  BackwardInput,  ///< I
  BackwardWeight, ///< W
  SendForward,    ///< SEND_F: the stage sends its outputs to every later stage on another rank that uses them
  RecvForward,    ///< RECV_F: the stage waits for its inputs
  SendBackward,   ///< SEND_B: the stage sends the gradients of its inputs to the stages that produced them
  RecvBackward,   ///< RECV_B: the stage waits for the gradients of its outputs
  ReduceGrad,     ///< REDUCE_GRAD
  Unshard,        ///< UNSHARD
  Reshard,        ///< RESHARD
};

/// One unit of work of one stage on one microbatch. UNSHARD, RESHARD and REDUCE_GRAD belong to the whole stage and
/// carry microbatch −1. Orders by (stage, kind, microbatch).
struct Action {
  Stage stage;
  ActionKind kind = ActionKind::Forward;
  Microbatch microbatch;

  auto operator<=>(const Action&) const = default;
};

[[nodiscard]] constexpr bool isCompute(ActionKind k) {
  return k == ActionKind::Forward || k == ActionKind::Backward || k == ActionKind::BackwardInput ||
         k == ActionKind::BackwardWeight;
}
[[nodiscard]] constexpr bool isSend(ActionKind k) {
  return k == ActionKind::SendForward || k == ActionKind::SendBackward;
}
[[nodiscard]] constexpr bool isReceive(ActionKind k) {
  return k == ActionKind::RecvForward || k == ActionKind::RecvBackward;
}

/// torch's letters of a kind: `F`, `SEND_B`, ...
[[nodiscard]] std::string_view letters(ActionKind kind);

/// torch's notation of an action: `2F0`, `1SEND_B3`, `0REDUCE_GRAD`.
[[nodiscard]] std::string toString(const Action& action);

/// The other end of a message: `0SEND_F3` ↔ `1RECV_F3`, `2SEND_B0` ↔ `1RECV_B0`. The stage may lie outside the pipeline
/// when the message should not exist. Any other action is returned unchanged.
[[nodiscard]] Action counterpart(const Action& message);

/// Largest numbers taken from the outside (command line, files), so hostile ones cannot exhaust memory.
inline constexpr int kMaxRanks = 4096;
inline constexpr int kMaxStages = 1'000'000;
inline constexpr int kMaxMicrobatches = 1'000'000;

/// How many ranks, stages and microbatches a schedule is for. `stages` = ranks × chunks.
struct Shape {
  int ranks = 1;
  int stages = 1;
  int microbatches = 1;

  auto operator<=>(const Shape&) const = default;
};

/// A schedule: for each rank the actions in the order it does them, and the rank of each stage. A compute-only schedule
/// holds F, B, I, W; a lowered one also sends and receives. `microbatches` is M.
struct Schedule {
  std::string name;
  int microbatches = 0;
  std::vector<Rank> rankOfStage;            ///< the placement; size = number of stages
  std::vector<std::vector<Action>> rows;    ///< size = number of ranks

  bool operator==(const Schedule&) const = default;
};

[[nodiscard]] inline Shape shapeOf(const Schedule& s) {
  return {static_cast<int>(s.rows.size()), static_cast<int>(s.rankOfStage.size()), s.microbatches};
}

/// Loop placement: stage s on rank s mod R [ranks ≥ 1]. The only one of single-chunk schedules.
[[nodiscard]] std::vector<Rank> loopPlacement(const Shape& shape);

}  // namespace pw
