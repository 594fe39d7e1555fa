#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/step/step_clock.h"

namespace pw {

/// A scheduling problem without a model, as found in papers: costs by stage, latencies by link, memory limits by rank.
struct ProblemFile {
  Shape shape;
  Placement placement;
  CostTable costs;
  std::vector<Bytes> limits;        ///< by rank; empty: none
  std::vector<Bytes> ifRecomputed;  ///< activation by stage when it is recomputed; empty: recomputation is not possible
  StepClock objective = StepClock::Flush;
};

/// Reads {"ranks", "microbatches", "place": [rank of each stage], "forward_ns", "input_ns", "weight_ns": [per stage], "latency_ns": [per
/// link between ranks i and i + 1; others add up], "activation": [held per stage from F start to W end], and optionally
/// "activation_after_input": [held from I to W], "limit": [per rank], "activation_if_recomputed", "objective": "flush" | "window"}. Throws
/// UsageError naming what is missing, misspelt, of the wrong length, negative, or too large to add up. `source` names the file.
[[nodiscard]] ProblemFile parseProblem(std::string_view json, const std::string& source);

}  // namespace pw
