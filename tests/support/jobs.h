#pragma once

// Jobs made of simulated schedules, whose times are known in closed form.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "schedules/generate.h"
#include "simulator/job/measured.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw::test {

/// The spans of a copy of a pipeline, on the ranks of that copy.
inline void addCopy(Trace& trace, const Trace& copy, int number) {
  const int first = number * copy.ranks;
  trace.ranks = std::max(trace.ranks, first + copy.ranks);
  for (Span span : copy.spans) {
    span.rank.value += first;
    span.peer.value += first;
    trace.spans.push_back(span);
  }
}

/// One pipeline of R ranks with one stage each, F and B of every stage as given, and messages of a latency.
inline Trace pipeline(const std::string& schedule, int microbatches, const std::vector<Ns>& forward, const std::vector<Ns>& backward,
                      Ns latency = 0) {
  const int ranks = static_cast<int>(forward.size());
  SyntheticCosts costs;
  costs.forward = forward;
  costs.backward = backward;
  costs.latency = latency;
  return simulate(generate(schedule, {ranks, ranks, microbatches}), syntheticTable(costs, ranks));
}

/// A job of steps of one pipeline.
inline MeasuredJob jobOfSteps(std::vector<Trace> steps) {
  MeasuredJob job{.name = "made"};
  for (std::size_t k = 0; k < steps.size(); ++k) job.steps.push_back({"step " + std::to_string(k), std::move(steps[k]), {}});
  return job;
}

}  // namespace pw::test
