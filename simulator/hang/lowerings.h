#pragma once

#include <vector>

#include "schedules/schedule.h"

namespace pw::hang {

/// Whether the schedule has that stage: the first and the last stage have no neighbour on one side.
[[nodiscard]] bool hasStage(const Schedule& schedule, Stage stage);

/// A schedule with messages, and whether ranks wait for them at once.
struct Lowered {
  Schedule schedule;
  bool atOnce = false;
};
/// Those that a job may have run of a schedule; the schedule itself where it has sends and receives. Of one stage a rank first the messages
/// beside the actions, as torch's schedules for that post them, else first those of torch's runtime. A lowering that would deadlock by
/// itself is left out. Never empty. Cost: as `lower`.
[[nodiscard]] std::vector<Lowered> loweringsOf(const Schedule& schedule);
/// By row and position of a schedule with messages: where its action stands in the one without, or −1. Cost: n log n in actions.
[[nodiscard]] std::vector<std::vector<int>> positionsIn(const Schedule& file, const Schedule& lowered);

}  // namespace pw::hang
