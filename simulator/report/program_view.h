#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/program.h"

namespace pw {

inline constexpr std::int32_t kNoStep = -1;

/// An executed program beside the rows and costs that it was compiled from, by step. Arguments as in `traceOf`; `times` were computed with
/// the program's durations. Keeps references to all.
struct ProgramView {
  const Schedule& rows;
  const CostTable& costs;
  const Program& program;
  const Times& times;

  [[nodiscard]] Ns startOf(std::int32_t step) const { return times.start[static_cast<std::size_t>(step)]; }
  [[nodiscard]] Ns endOf(std::int32_t step) const { return startOf(step) + program.duration[static_cast<std::size_t>(step)]; }
  [[nodiscard]] std::int32_t laneOf(std::int32_t step) const { return program.steps[static_cast<std::size_t>(step)].lane; }
  [[nodiscard]] const Origin& originOf(std::int32_t step) const { return program.origin[static_cast<std::size_t>(step)]; }
  [[nodiscard]] bool onRank(std::int32_t step) const { return laneOf(step) < program.ranks; }
  [[nodiscard]] bool onChannel(std::int32_t step) const { return !onRank(step) && laneOf(step) < program.ranks + program.channels; }

  /// The (first) compute action of a step, or null.
  [[nodiscard]] const Action* actionOf(std::int32_t step) const;
  /// The second action of a slot, or null.
  [[nodiscard]] const Action* partnerOf(std::int32_t step) const;

  /// Index of an action's stage and microbatch in tables of all of them, and how many there are.
  [[nodiscard]] std::size_t pairOf(const Action& a) const {
    return a.stage.index() * static_cast<std::size_t>(rows.microbatches) + a.microbatch.index();
  }
  [[nodiscard]] std::size_t pairs() const { return costs.stages.size() * static_cast<std::size_t>(std::max(0, rows.microbatches)); }
};

/// A step on a rank's lane that computes an action, or the two of a slot.
struct ComputeStep {
  std::int32_t step = kNoStep;
  Ns start = 0, end = 0;
};

/// All of a program; without any, `last` is none.
struct ComputeSteps {
  std::vector<std::vector<ComputeStep>> ofRank;  ///< in their order
  ComputeStep last;                              ///< that ends last (ties: the last of the lowest rank)
  Ns first = 0;                                  ///< start of the first
};
/// Cost: linear in steps.
[[nodiscard]] ComputeSteps computeStepsOf(const ProgramView& view);

}  // namespace pw
