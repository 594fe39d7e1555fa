#pragma once

// Internal to the import of traces: the order of a job whose names say neither chunk nor microbatch.

#include <optional>
#include <utility>
#include <vector>

#include "schedules/schedule.h"

namespace pw {

/// Forwards and backwards of one step of a pipeline, by rank, each in the order in which the rank did them: start and end.
struct UnnamedStep {
  std::vector<std::vector<std::pair<Ns, Ns>>> forwards, backwards;
};

struct Interleaving {
  int chunks = 1, microbatches = 1, group = 1;
  Schedule schedule;
};

/// The interleaved 1F1B whose first rank does as many forwards before its first backward: 2 (R − 1) + (V − 1) G + 1 with groups of G
/// microbatches, or all of R microbatches (Megatron-LM, schedules.py, get_pp_rank_microbatches). Where several pairs of V and G do, the one
/// whose replay with the measured durations starts actions nearest to when they started, on each rank's own clock; ties: groups of R.
/// `chunks`: V where it is known. Nothing where none does. Cost: n log n in the actions, for each of at most 16 pairs.
[[nodiscard]] std::optional<Interleaving> interleavingOf(const UnnamedStep& step, std::optional<int> chunks = {});

}  // namespace pw
