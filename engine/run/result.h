#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/store/run_store.h"
#include "engine/run/step_figures.h"
#include "engine/worker.h"
#include "simulator/model/export_record.h"

namespace pw {

/// What rank 0 knows at the end of a run.
struct RunResult {
  RunRecord record;                          ///< without its steps
  StepFigureFile figures;                    ///< of the steps
  std::optional<Verification> verification;  ///< of --verify
  std::optional<RunId> id;                   ///< where all of it was stored
  std::vector<Bytes> residentPeak;           ///< of each rank's process
  std::vector<Ns> startToFirstAction;        ///< of each rank
  int skippedSteps = 0;                      ///< changed no parameter
  int nonFiniteSteps = 0;           ///< of them those whose loss or gradients were not finite; the others' gradients overflowed in float16
  bool countsSkipped = false;       ///< of --skip-nonfinite and fp16
  std::optional<double> lossScale;  ///< after the last step, with --precision fp16
  std::string saved;                ///< checkpoint written; empty: none
  int firstStep = 0;
  std::optional<ExportRecord> exported;  ///< of the model; nothing in a synthetic run
  int savedSteps = 0;                    ///< that had been done when it was last written, from `firstStep` on
};

/// What first was not finite in a step, of all ranks' logs of it; empty where all was.
[[nodiscard]] std::string nonFinite(const std::vector<StepLog>& ranks);
/// Why the run ended there, and what to do.
[[nodiscard]] std::string nonFiniteSentence(int step, const std::string& what, bool foundOperator);

}  // namespace pw
