#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/store/run_store.h"
#include "engine/worker.h"
#include "simulator/model/export_record.h"

namespace pw::cli {

/// What rank 0 knows at the end of a run.
struct RunResult {
  RunRecord record;
  std::optional<Verification> verification;  ///< of --verify
  std::optional<RunId> id;                   ///< where it was stored
  std::vector<Bytes> residentPeak;           ///< of each rank's process
  std::vector<Ns> startToFirstAction;        ///< of each rank
  std::vector<double> gradientNorms;         ///< of each step, with --clip-norm
  int skippedSteps = 0;                      ///< changed no parameter
  int nonFiniteSteps = 0;           ///< of them those whose loss or gradients were not finite; the others' gradients overflowed in float16
  bool countsSkipped = false;       ///< of --skip-nonfinite and fp16
  std::optional<double> lossScale;  ///< after the last step, with --precision fp16
  std::string saved;                ///< checkpoint written; empty: none
  int firstStep = 0;
  std::optional<ExportRecord> exported;  ///< of the model; nothing in a synthetic run
  int savedSteps = 0;                    ///< that had been done when it was last written, from `firstStep` on
};

/// What was not finite first in a step; empty if everything was finite.
[[nodiscard]] std::string nonFinite(const std::vector<RankLog>& ranks, std::size_t step);
/// The sentence on why the run ended at that step, and what to do.
[[nodiscard]] std::string nonFiniteSentence(int step, const std::string& what, bool foundOperator);

/// One JSON document (app contract: `run`).
void printJson(const RunResult& result);
/// Losses, and predicted next to measured times.
void printText(const RunResult& result, const std::string& store);

}  // namespace pw::cli
