#include "backends/store/run_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string_view>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include "backends/store/trace_blob.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// The statement reads `blob` until it is reset.
void bindBlob(SQLite::Statement& statement, int at, const std::string& blob) {
  if (blob.size() > std::numeric_limits<int>::max()) {
    throw Error(fmt::format("a trace of {} bytes is too large for a run store; run fewer microbatches", blob.size()));
  }
  statement.bindNoCopy(at, blob.data(), static_cast<int>(blob.size()));
}

constexpr std::array<std::pair<RunState, std::string_view>, 3> kStates{
    {{RunState::Unfinished, "unfinished"}, {RunState::Completed, "completed"}, {RunState::Failed, "failed"}}};

}  // namespace

std::string_view name(RunState state) { return std::ranges::find(kStates, state, &std::pair<RunState, std::string_view>::first)->second; }

std::string textOf(const SQLite::Column& column) { return column.getString(); }

std::pair<RunState, std::string> endOf(const std::string& stateName, const std::string& failure) {
  const auto* const found = std::ranges::find(kStates, std::string_view(stateName), &std::pair<RunState, std::string_view>::second);
  const RunState state = found == kStates.end() ? RunState::Failed : found->first;
  switch (state) {
    case RunState::Unfinished: return {state, std::string(kUnfinishedRun)};
    case RunState::Completed: return {state, ""};
    case RunState::Failed: break;
  }
  return {state, failure.empty() ? stateName : failure};
}

Trace traceOf(const SQLite::Column& column, const std::string& source) {
  const auto* bytes = static_cast<const char*>(column.getBlob());
  return parseBlob(std::string_view(bytes, static_cast<std::size_t>(column.getBytes())), source);
}

StepRecord stepOf(SQLite::Statement& statement, const std::string& run) {
  StepRecord step;
  step.step = statement.getColumn(0).getInt();
  const SQLite::Column loss = statement.getColumn(1);
  step.loss = loss.isNull() ? std::numeric_limits<double>::quiet_NaN() : loss.getDouble();
  if (const SQLite::Column norm = statement.getColumn(3); !norm.isNull()) step.gradientNorm = norm.getDouble();
  step.measured = traceOf(statement.getColumn(2), fmt::format("step {} of {}", step.step, run));
  return step;
}

RunId insertRun(SQLite::Database& db, const RunRecord& run) {
  SQLite::Statement insert(
      db,
      "INSERT INTO run (started_at, backend, precision, tf32, synthetic, state, failure, seed, model, schedule, ranks, "
      "microbatches, host, processor, cores, device, plan, predicted_ns, predicted) "
      "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  int at = 0;
  const Shape shape = shapeOf(run.plan.schedule);
  const std::string blob = toBlob(run.predicted);
  const bool unfinished = run.state == RunState::Unfinished;
  const RunState state = unfinished ? run.state : run.failure.empty() ? RunState::Completed : RunState::Failed;
  insert.bind(++at, run.startedAt);
  insert.bind(++at, run.backend);
  insert.bind(++at, std::string(precisionName(run.precision)));
  insert.bind(++at, run.tf32 ? 1 : 0);
  insert.bind(++at, run.synthetic ? 1 : 0);
  insert.bind(++at, std::string(name(state)));
  insert.bind(++at, unfinished ? "" : run.failure);
  insert.bind(++at, std::bit_cast<std::int64_t>(run.seed));
  insert.bind(++at, run.plan.modelName);
  insert.bind(++at, run.plan.schedule.name);
  insert.bind(++at, shape.ranks);
  insert.bind(++at, shape.microbatches);
  insert.bind(++at, run.machine.host);
  insert.bind(++at, run.machine.processor);
  insert.bind(++at, run.machine.cores);
  insert.bind(++at, run.machine.device);
  insert.bind(++at, toJson(run.plan));
  insert.bind(++at, std::int64_t{durationOf(run.predicted)});
  bindBlob(insert, ++at, blob);
  insert.exec();
  return RunId(static_cast<std::int32_t>(db.getLastInsertRowid()));
}

void insertSteps(SQLite::Database& db, RunId run, std::span<const StepRecord> steps, std::int32_t position) {
  SQLite::Statement insert(db, "INSERT INTO step (run, position, step, loss, duration_ns, measured, gradient_norm) VALUES (?,?,?,?,?,?,?)");
  for (const StepRecord& step : steps) {
    const std::string blob = toBlob(step.measured);
    insert.bind(1, run.value);
    insert.bind(2, position++);
    insert.bind(3, step.step);
    insert.bind(4, step.loss);  // SQLite makes NULL of NaN
    insert.bind(5, std::int64_t{durationOf(step.measured)});
    bindBlob(insert, 6, blob);
    step.gradientNorm ? insert.bind(7, *step.gradientNorm) : insert.bind(7);
    insert.exec();
    insert.reset();
  }
}

}  // namespace pw
