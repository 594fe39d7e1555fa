#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/cli/options/shared.h"
#include "simulator/job/measured.h"
#include "simulator/job/reduction_groups.h"
#include "simulator/plan/plan.h"
#include "simulator/trace/trace.h"

namespace pw::cli {

/// What is exported: of a plan its prediction, of a store a run, of traces a step; of a plan and traces both.
struct ExportSource {
  std::string plan, store;
  std::vector<std::string> traces;
  std::string patterns;  ///< of names in `traces`
  int run = 0;           ///< 0: the newest
  int step = -1;         ///< −1: the one that stands for the run
  bool predicted = false;
  ProgressStyle progressStyle = ProgressStyle::Automatic;
};

/// Traces that go into one file, and the one that is drawn if there can be only one.
struct ExportMaterial {
  std::vector<std::string> names;
  std::vector<Trace> traces;
  std::size_t chosen = 0;
  TimesOf times = TimesOf::Measured;  ///< of the chosen one, beside a prediction
  ReductionGroups reductions;         ///< likewise
  std::string title;
  std::optional<Plan> plan;  ///< of which the first trace is the prediction
  int run = 0, step = 0;     ///< of a store, and of a trace of several steps, from 1; 0: there is none
};

/// Reads it. Notes about traces go to stderr. Throws UsageError for what it cannot be.
[[nodiscard]] ExportMaterial materialOf(const ExportSource& source);

}  // namespace pw::cli
