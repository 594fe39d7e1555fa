#pragma once

#include <vector>

#include "schedules/schedule.h"
#include "simulator/report/certificate.h"
#include "simulator/step/cost_table.h"

namespace pw {

/// What an order is searched for: who computes what, what it costs, how much may be kept.
struct OrderProblem {
  int microbatches = 1;
  int ranks = 1;
  Placement placement;                ///< one replica of each stage, as many stages on a rank as it likes
  CostTable costs;                    ///< without slots of their own duration
  std::vector<Bytes> limits;          ///< by rank, of its peak bytes; empty: none
  std::vector<int> liveLimits;        ///< by rank, of its live (stage, microbatch) pairs; empty: none
  std::vector<StageCost> recomputed;  ///< by stage: what it costs if it computes its forward again before its backward; empty: none may
  StepClock clock = StepClock::Flush;
};

}  // namespace pw
