#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/messages/device.h"
#include "schedules/job_rank.h"
#include "simulator/trace/trace.h"

namespace pw {

/// What a rank saw of one step; ranks are those of its pipeline. Times are on the monotonic clock. Message spans are complete only after
/// `joinTraces`: a sender knows when it started (end = start), a receiver when it had the message (start = end).
struct StepLog {
  std::vector<Span> spans;
  std::vector<MemorySample> memory;
  std::optional<double> loss;          ///< this rank's part of it, where the rank has the last stage
  std::optional<double> gradientNorm;  ///< over all ranks, if requested
  std::optional<double> lossScale;     ///< of the step's gradients, where float16 needs one
  bool skipped = false;                ///< gradients overflowed in float16, or were not finite: no parameter changed
  /// The loss or gradients were not (overflows of float16 aside): the process that saw it first, known to all ranks.
  std::optional<JobRank> notFinite;
  std::string whatNotFinite;  ///< on that rank: a sentence without its end, naming action or parameter

  bool operator==(const StepLog&) const = default;
};

/// Joins what all processes saw (index = rank in the job) into one trace from 0: the start of a message comes from its sender, the end from
/// its receiver. Logs name ranks within their pipeline of `ranksOfPipeline`; the trace has those of all replicas (`Replicas::inTrace`).
[[nodiscard]] Trace joinTraces(const std::vector<StepLog>& processes, std::size_t ranksOfPipeline);

}  // namespace pw
