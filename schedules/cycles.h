#pragma once

#include <string>

#include "schedules/schedule.h"

namespace pw {

/// A lockstep schedule as a picture, after PopART's pipeline diagrams: one column per cycle, and for each rank four lanes, in
/// the order in which a cycle does them:
///   load   host to device: `in3` (first stage) the inputs of microbatch 3, `target3` (last stage) its targets
///   main   the compute actions: `F4 B0`
///   store  device to host: `out3` (last stage) loss and outputs
///   copy   the exchange after the cycle: `F4>` the activation goes to the next rank, `<B0` the gradient to the one before
/// The line above the cycles names the phase: while microbatches enter, `fill` for the first 2R−2 cycles, then `main`; `flush` once none
/// is left. A table wider than `columns` characters is broken into blocks of at most that width, each of one cycle or more.
/// Messages of a lowered schedule are not shown; the copy lane is derived. Throws UsageError when the schedule is not lockstep
/// with one stage per rank. Cost: linear in ranks × cycles.
[[nodiscard]] std::string cycleTable(const Schedule& lockstep, int columns);

}  // namespace pw
