#pragma once

#include <string>

#include "engine/run/evaluation.h"
#include "engine/run/result.h"

namespace pw::cli {

/// Of the model's FLOPs, in a step of this length of a run (`flopUtilisation`); 0: not known, nothing was computed, or in another
/// precision than planned, whose peak the plan does not name.
[[nodiscard]] double utilisationOf(const RunRecord& record, Ns step);

/// One JSON document (`run --json` in resources/docs/commands.md).
void printJson(RunResult& result);
/// Losses, and predicted next to measured times.
void printText(RunResult& result, const std::string& store);

/// The result of `run --eval`; `file`: where the outputs were written, empty: nowhere.
void printEvaluation(const EvaluationResult& result, const std::string& file, bool json);

}  // namespace pw::cli
