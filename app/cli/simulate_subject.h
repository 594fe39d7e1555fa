#pragma once

#include <string>
#include <vector>

#include "app/cli/schedule_options.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// Options of `simulate` that say what is simulated and with which costs.
struct SubjectOptions {
  std::string plan, schedule, csv, letters;
  ShapeOptions shape;
  std::string forward, backward, input, weight, overlap, latency, transfer, load, store;
  std::string costs, memoryLimit;
  std::vector<int> liveLimit;
  std::vector<std::string> slow;
};

/// What is simulated: a plan's own schedule and costs, or a schedule with costs from the call or a problem file.
struct Subject {
  Schedule schedule;
  CostTable costs;
  std::string costSource;       ///< a line for people
  std::vector<Bytes> limits;    ///< memory of each rank; empty: none
  bool limitsInBytes = true;    ///< else in the unit of a problem file
  std::vector<int> liveLimits;  ///< live (stage, microbatch) pairs of each rank; empty: none
};

/// Declares the options; `options` must outlive the command.
void declareSubject(CLI::App& command, SubjectOptions& options);

/// Throws UsageError if the call names no subject, two subjects, or options that contradict each other.
[[nodiscard]] Subject subjectOf(const SubjectOptions& options);

}  // namespace pw::cli
