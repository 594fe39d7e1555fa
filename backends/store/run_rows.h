#pragma once

// Internal to the run store: its rows.

#include <cstdint>
#include <span>
#include <string>

#include "backends/store/run_store.h"

namespace SQLite {
class Database;
class Statement;
}  // namespace SQLite

namespace pw {

// Queries, and what a row of their answers holds. `source` names the run in messages. What they name, a newer store must have.
[[nodiscard]] std::string summaryRows();
[[nodiscard]] std::string runRow();    ///< of the run of this id
[[nodiscard]] std::string stepRows();  ///< of a run, from a position on, so many

/// Without what is known of its steps.
[[nodiscard]] RunSummary summaryOf(SQLite::Statement& row);
/// Without its steps.
[[nodiscard]] RunRecord runOf(SQLite::Statement& row, RunId id, const std::string& source);
[[nodiscard]] StepRecord stepOf(SQLite::Statement& row, const std::string& source);

/// Writes a run's row, without its steps.
RunId insertRun(SQLite::Database& db, const RunRecord& run);
/// Writes rows of steps from a position on.
void insertSteps(SQLite::Database& db, RunId run, std::span<const StepRecord> steps, std::int32_t position);

}  // namespace pw
