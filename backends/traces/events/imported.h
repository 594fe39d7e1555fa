#pragma once

// What an import gives.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/job_rank.h"
#include "simulator/job/measured.h"
#include "simulator/trace/trace.h"

namespace pw {

/// One step of an imported trace.
struct ImportedStep {
  std::string name;  ///< `step 3`, `iteration 1 (warm-up)`, or the name the file gives
  Trace trace;
  std::vector<NamedSpan> operations = {};  ///< what else was done, where the file names it
  std::optional<Ns> begin = {};            ///< of its times, on one clock for all steps, where the file has one

  bool operator==(const ImportedStep&) const = default;
};

/// A rank of an imported trace in the job that it was recorded of.
struct ImportedRank {
  std::optional<JobRank> job;  ///< its number there, if the files say it
  std::int32_t pipeline = 0;   ///< which of the pipelines beside each other it is in (data-parallel replicas times tensor-parallel ranks)
  std::int32_t tensor = 0;     ///< its place in its tensor-parallel group

  bool operator==(const ImportedRank&) const = default;
};

/// A trace measured by another tool, in this program's form.
struct ImportedTrace {
  std::string title;                ///< the file's or folder's name
  std::vector<ImportedStep> steps;  ///< in time order; at least one, each with a span at least
  std::vector<std::string> notes;   ///< sentences: what was left out or changed, and why
  std::vector<ImportedRank> ranks;  ///< by rank; empty: one pipeline, its ranks numbered as in the job
  int replicas = 1, tensor = 1;  ///< data-parallel replicas, ranks of a tensor-parallel group; ranks are numbered by these, then by stage
  bool timedMessages = false;    ///< messages are transfers alone, without the wait of either end
  bool lacksLastStages = false;  ///< the last stage here sends on or waits for gradients: those after it are missing

  bool operator==(const ImportedTrace&) const = default;
};

}  // namespace pw
