#pragma once

// Internal to the run store: its rows.

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "backends/store/run_store.h"

namespace SQLite {
class Column;
class Database;
class Statement;
}  // namespace SQLite

namespace pw {

[[nodiscard]] std::string textOf(const SQLite::Column& column);

/// How a run ended, of its columns `state` and `failure`; a state that a newer Pipewright may have written counts as a failure.
[[nodiscard]] std::pair<RunState, std::string> endOf(const std::string& stateName, const std::string& failure);

/// The trace of a column; `source` names it in messages.
[[nodiscard]] Trace traceOf(const SQLite::Column& column, const std::string& source);

/// The columns of kStepColumns in a row of `statement`; `run` names the run in messages.
[[nodiscard]] StepRecord stepOf(SQLite::Statement& statement, const std::string& run);
inline constexpr const char* kStepColumns = "step, loss, measured, gradient_norm";

/// Writes a run's row, without its steps.
RunId insertRun(SQLite::Database& db, const RunRecord& run);
/// Writes rows of steps from a position on.
void insertSteps(SQLite::Database& db, RunId run, std::span<const StepRecord> steps, std::int32_t position);

}  // namespace pw
