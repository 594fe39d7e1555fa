#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backends/messages/communicator.h"
#include "engine/clock.h"
#include "engine/flight_record.h"
#include "engine/step_log.h"
#include "engine/verify.h"
#include "simulator/plan/plan.h"

namespace pw {

/// What a rank knows at the end of its training, apart from the steps.
struct RankLog {
  Verification verification;
  Bytes residentPeak = 0;           ///< of the process
  Ns startToFirstAction = 0;        ///< from the start of the process
  std::optional<double> lossScale;  ///< after the last step, where float16 needs one; the same on all ranks
};

/// All ranks' logs on rank 0 (index = rank); empty on other ranks. Throws what the communicator throws.
[[nodiscard]] std::vector<RankLog> gatherRankLogs(const RankLog& own, Communicator& communicator);

/// Brings what the ranks saw of a step to rank 0 as soon as it has ended, so that no rank has to keep steps. Costs one message per rank and
/// step, and, where ranks have different clocks (on several hosts), a comparison of clocks every few seconds.
class StepGatherer {
 public:
  /// All ranks make one at the same point: it compares clocks. The plan must be the same on all. `now`: this rank's clock.
  StepGatherer(const Plan& plan, Communicator& communicator, ClockFunction now = monotonicNow);

  /// All ranks call it after each step, with a barrier between two calls. The step's logs on rank 0 (index = rank), their times on rank 0's
  /// clock; empty on other ranks. Its messages are noted in `flights`. Throws what the communicator throws.
  [[nodiscard]] std::vector<StepLog> gather(StepLog own, FlightRecord& flights);

 private:
  void compare();
  void send(const StepLog& own, FlightRecord& flights);
  [[nodiscard]] std::vector<StepLog> receive(StepLog own, FlightRecord& flights);
  void putOnOurClock(StepLog& log, JobRank peer) const;

  Communicator& communicator_;
  ClockFunction now_;
  std::size_t inlineBytes_;                 // of a log, in its first message; rarely a log needs a second one
  std::vector<ClockReading> first_, last_;  // of each rank; on rank 0 only
  int untilComparison_ = 0;                 // steps; 0: the ranks share a clock
  int sinceComparison_ = 0;
  Ns comparedAt_ = 0;
};

}  // namespace pw
