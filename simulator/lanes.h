#pragma once

#include <cstdint>
#include <vector>

#include "simulator/program.h"

namespace pw {

/// F, B and I hand something on; W does not.
[[nodiscard]] inline bool makesMessage(ActionKind kind) { return isCompute(kind) && kind != ActionKind::BackwardWeight; }
[[nodiscard]] inline bool isBackward(ActionKind kind) {
  return kind != ActionKind::Forward && kind != ActionKind::SendForward && kind != ActionKind::RecvForward;
}
/// Index of a stage and a direction in tables of both.
[[nodiscard]] inline std::size_t endOf(Stage stage, bool backward) { return 2 * stage.index() + (backward ? 1U : 0U); }

/// A program while `compile` writes it; for use there only. Steps are numbered lane after lane, `begin` says (and ends with) where each lane's
/// begin; links come in any order.
struct Lanes {
  struct Draft {
    std::int32_t lane = 0;
    Origin origin;
    Ns duration = 0;
    std::int32_t use = 0;
  };
  struct Link {
    std::int32_t from = 0, to = 0, delay = 0;
  };
  std::vector<Draft> steps;
  std::vector<std::int32_t> begin;
  std::vector<Link> links;
};

/// Sorts the edges by source and the steps by need, and writes both into the program in that order. Where steps wait for each other, returns
/// for every lane its first step that is never done (the lane's end: all are); else nothing. Cost: linear.
[[nodiscard]] std::vector<std::int32_t> layOut(const Lanes& lanes, Program& program);

/// Adds the buffers of received messages to the uses of the ranks' steps, as the header of `simulate` says, and finds what each rank has at the
/// start and at most. `posted`: every RECV posts its own receive. Cost: linear in actions.
void weigh(const Schedule& rows, const CostTable& costs, bool posted, Lanes& lanes, Program& program);

}  // namespace pw
