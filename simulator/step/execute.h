#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "simulator/step/program.h"

namespace pw {

/// Computes all start times. Durations are the program's, or the given ones (by step). Cost: linear; no allocation if `times` was used with
/// a program of the same size before.
void execute(const Program& program, Times& times);
void execute(const Program& program, std::span<const Ns> duration, Times& times);

/// From the first start to the last end of an action anywhere (flush clock), and the longest such time of a single rank.
/// `duration`: those the times were computed with.
[[nodiscard]] Ns makespanOf(const Program& program, std::span<const Ns> duration, const Times& times);
[[nodiscard]] Ns windowOf(const Program& program, std::span<const Ns> duration, const Times& times);

/// The optimizer's time on each rank: of all stages that it holds.
[[nodiscard]] std::vector<Ns> optimizerTimes(const Placement& placement, std::size_t ranks, const CostTable& costs);

/// From the first action to the end of the last one, optimizer or reduction, as `metricsOf` defines the step of their trace. `times`: of
/// the program's durations.
[[nodiscard]] Ns stepOf(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times);

}  // namespace pw
