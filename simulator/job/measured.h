#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/job_rank.h"
#include "schedules/schedule.h"
#include "simulator/job/times_of.h"
#include "simulator/trace/trace.h"

namespace pw {

/// An operation of a worker that is none of its pipeline's actions: a collective, the optimizer, garbage collection. Times as of its trace.
struct NamedSpan {
  JobRank worker;    ///< as a rank of the trace
  std::string name;  ///< as the trace names it: `grads-reduce-scatter`; of several in a step with a number, `params-all-gather 2`
  Ns start = 0, end = 0;
  bool beside = false;  ///< its worker's actions go on meanwhile, as far as its trace says

  bool operator==(const NamedSpan&) const = default;
};

/// One step as it was measured.
struct MeasuredStep {
  std::string name;  ///< `step 3`
  Trace trace;       ///< of all workers, see `MeasuredJob`
  std::vector<NamedSpan> operations = {};
  std::optional<Ns> begin = {};  ///< when its time 0 was, on one clock for all steps of the job; nothing: not known

  bool operator==(const MeasuredStep&) const = default;
};

/// What was measured of a job. Its workers are numbered by data-parallel replica, then tensor-parallel rank, then pipeline rank, so that a
/// pipeline is a block of ranks of the traces.
struct MeasuredJob {
  std::string name;
  int replicas = 1;            ///< data-parallel
  int tensor = 1;              ///< ranks of a tensor-parallel group
  bool timedMessages = false;  ///< the traces' messages are transfers alone, without the wait of either end
  std::vector<MeasuredStep> steps = {};
  std::vector<std::string> notes = {};
  TimesOf times = TimesOf::Measured;
  std::optional<Schedule> schedule =
      {};                        ///< of one pipeline, where it is known; else its traces show it, and not how actions of 0 ns follow
  bool lacksLastStages = false;  ///< the traces' last stage sends on or waits for gradients: those after it are missing

  bool operator==(const MeasuredJob&) const = default;
};

/// How a trace shows what a worker does besides its actions, the first of which starts at `first` and the last of which ends at `last`:
/// before them as loading, between them beside them, after them as a sum of gradients, where its name says so, or an optimizer.
[[nodiscard]] Span spanOf(const NamedSpan& operation, Rank rank, Stage beside, Ns first, Ns last);

/// The spans of one pipeline, on ranks from 0 on.
[[nodiscard]] Trace pipelineOf(const Trace& trace, std::size_t copy, int ranks);

/// A step of that pipeline of `measured` that takes longest in most of its steps (ties: the first).
[[nodiscard]] Trace slowestPipeline(const MeasuredJob& measured, const MeasuredStep& step);

}  // namespace pw
