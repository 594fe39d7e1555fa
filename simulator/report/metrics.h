#pragma once

#include <vector>

#include "simulator/step/simulate.h"
#include "simulator/trace/trace.h"

namespace pw {

struct RankMetrics {
  Rank rank;
  Ns busy = 0;         ///< F, B, I, W
  Ns idle = 0;         ///< makespan − busy
  Ns exposedComm = 0;  ///< idle time within the makespan during which a message to this rank is in flight and it computes nothing
  Bytes peakBytes = 0;
  int peakLiveMicrobatches = 0;  ///< (stage, microbatch) pairs alive at once: F start to the end of B (or W where split); ends free first

  bool operator==(const RankMetrics&) const = default;
};

/// Metrics of one trace (all 0 without compute spans). The makespan runs from the first compute start to the last compute end anywhere
/// (flush clock); the window is the longest first-start-to-last-end of a single rank; the step ends with the last optimizer or reduce span.
struct Metrics {
  Ns makespan = 0;
  Ns window = 0;
  Ns step = 0;
  double bubbleFraction = 0;        ///< total idle / (ranks · makespan)
  double bubbleFractionWindow = 0;  ///< 1 − busiest rank's busy time / window
  std::vector<RankMetrics> ranks;

  bool operator==(const Metrics&) const = default;
};

[[nodiscard]] Metrics metricsOf(const Trace& trace);

}  // namespace pw
