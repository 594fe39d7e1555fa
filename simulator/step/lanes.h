#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulator/step/compile.h"
#include "simulator/step/program.h"

namespace pw {

/// F, B and I pass on a value or gradient; W does not.
[[nodiscard]] inline bool makesMessage(ActionKind kind) { return isCompute(kind) && kind != ActionKind::BackwardWeight; }
/// Index of a stage and a direction in tables of both.
[[nodiscard]] inline std::size_t endOf(Stage stage, bool backward) { return 2 * stage.index() + (backward ? 1U : 0U); }

/// A program while `compile` builds it; for use there only. Steps are numbered lane by lane; `begin` has the first step of each lane and
/// ends with their number; links are in any order.
struct Lanes {
  struct Draft {
    std::int32_t lane = 0;
    Origin origin;
    std::int32_t use = 0;
  };
  struct Link {
    std::int32_t from = 0, to = 0, delay = 0;
  };
  std::vector<Draft> steps;
  std::vector<std::int32_t> begin;
  std::vector<Link> links;
};

/// Sorts the edges by source and the steps topologically, and writes both into the program in that order. If steps wait for each other in a
/// cycle, returns for every lane its first step that is never done (the lane's end: all are done); otherwise nothing. Cost: linear.
[[nodiscard]] std::vector<std::int32_t> layOut(const Lanes& lanes, Program& program);

/// A channel for each direction of a rank pair that messages use, or for both with OneChannel; by (sender, receiver).
struct Channels {
  static constexpr std::int32_t kNone = -1;
  std::int32_t count = 0;
  std::vector<std::array<std::int32_t, 2>> ofMessage;  ///< by message and whether the microbatch is mirrored; kNone within a rank
  std::vector<bool> held;                              ///< by channel: whether messages wait for each other there
};
[[nodiscard]] Channels channelsOf(const Schedule& rows, const CostTable& costs, Sending sending);

/// The basis of a program of these rows. `reduces`, `trains`: as in Basis, of the rows.
[[nodiscard]] Basis basisOf(const Schedule& rows, const CostTable& costs, Sending sending, const std::vector<bool>& reduces, bool trains);

/// Sets everything that costs determine in a program that already has steps, sources and basis: durations, delays, uses, memory. Cost:
/// linear in steps.
void setCosts(const Schedule& rows, const CostTable& costs, Program& program);

}  // namespace pw
