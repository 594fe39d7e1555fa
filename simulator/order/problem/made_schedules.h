#pragma once

#include <array>
#include <string_view>

#include "schedules/generate.h"
#include "simulator/order/problem/problem.h"

namespace pw {

/// An order made for given costs, beside the families of `generators`.
struct MadeSchedule {
  std::string_view name;
  std::string_view summary;
  int room = 0;  ///< each rank holds activations of its stages for at most so many times R microbatches; 0: no limit of its own
};

inline constexpr std::string_view kAutoSchedule = "auto";

/// ZB-1p and ZB-2p are the searched orders of Zero Bubble (2401.10241, section 5): memory of 1F1B's first rank on all ranks, and twice
/// that.
inline constexpr std::array kMadeSchedules{
    MadeSchedule{kAutoSchedule, "made for given times, links and memory limits", 0},
    MadeSchedule{"zb-1p", "the same with 1F1B's memory on every rank, for the window clock", 1},
    MadeSchedule{"zb-2p", "the same with twice that memory", 2},
};

/// Null for other names.
[[nodiscard]] constexpr const MadeSchedule* madeSchedule(std::string_view name) {
  for (const MadeSchedule& made : kMadeSchedules) {
    if (made.name == name) return &made;
  }
  return nullptr;
}

/// `generatorOf` where a schedule made for costs would do as well, and is none.
[[nodiscard]] const Generator& familyOf(std::string_view name);

/// Limits a problem to the schedule's own room, beside the limits that it has: in bytes above what its ranks hold all the time, what an
/// action needs while it runs, and the buffers of one message that arrives and one that leaves; in live pairs where nothing of a microbatch
/// takes memory.
void limitRoom(OrderProblem& problem, const MadeSchedule& made);

}  // namespace pw
