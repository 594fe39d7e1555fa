#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/subject.h"
#include "schedules/check.h"
#include "simulator/report/prediction_report.h"
#include "simulator/runtime/runtime.h"
#include "simulator/step/simulate.h"
#include "simulator/trace/trace.h"

namespace pw {

/// How durations are varied at random: see `drawJitter`. A sigma of 0: not at all.
struct JitterOptions {
  double sigma = 0;
  int draws = 1000;
  std::uint64_t seed = 1;
  std::function<bool(int done)> tell{};  ///< called after each draw, the last where it returns false; may be empty
};

/// The prediction of a subject, or why there is none.
struct SubjectPrediction {
  std::vector<Problem> problems;  ///< not empty: it cannot run when messages are sent so, and all below is empty
  Schedule rows;                  ///< what was simulated
  Trace trace;
  PredictionReport report;            ///< with jitter; with lower bounds where it `fits`
  std::optional<std::string> excess;  ///< a sentence about the first rank that exceeds a limit of the subject
};

/// Checks the subject's schedule, simulates it and reports. `everyCause`: as of `predict`. Throws UsageError where a lockstep schedule is
/// to be sent in another way than overlapped. Cost: as `simulate` and `explain`.
[[nodiscard]] SubjectPrediction predictSubject(const Subject& subject, Sending sending, bool everyCause = false,
                                               const JitterOptions& jitter = {});

/// Whose runtime a prediction is for.
struct RuntimeChoice {
  Runtime runtime = Runtime::Torch;
  PendingReceives receives = PendingReceives::Block;      ///< of torch
  bool single = false;                                    ///< torch's schedules of one stage, where the subject's has that order
  MegatronMessages messages = MegatronMessages::Overlap;  ///< of megatron
  bool asGiven = false;                                   ///< sends and receives of the subject's rows are the user's own
};

/// The prediction of a subject as that runtime posts its messages, and what it stops for.
struct RuntimePrediction {
  SubjectPrediction of;  ///< with `problems` where the runtime would hang
  std::string how;
  std::vector<BlockedBy> blocked;
  std::optional<Ns> overlapped;  ///< the makespan where pending receives stop nothing, if they were to block
};

/// As `predictSubject`; parts of backwards take as long as torch's stages take for them. Throws UsageError for a schedule that the runtime
/// does not have.
[[nodiscard]] RuntimePrediction predictRuntime(const Subject& subject, const RuntimeChoice& choice, bool everyCause = false,
                                               const JitterOptions& jitter = {});

}  // namespace pw
