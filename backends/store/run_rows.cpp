#include "backends/store/run_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include "backends/store/trace_blob.h"
#include "schedules/error.h"
#include "simulator/costs/cluster.h"
#include "simulator/costs/cluster_name.h"

namespace pw {

namespace {

/// `, precision, tf32, …`: the facts, after other columns of `run`.
std::string factNames() {
  std::string names;
  for (const RunColumn& column : kRunColumns) names.append(", ").append(column.name);
  return names;
}

void read(const SQLite::Column& column, bool& value) { value = column.getInt() != 0; }
void read(const SQLite::Column& column, DType& value) { value = precisionNamed(column.getString()).value_or(DType::Unknown); }
template <class Enum>
void read(const SQLite::Column& column, std::optional<Enum>& value) {
  value = valueNamed<Enum>(column.getString());
}

/// The facts in a row, from a column on.
RunFacts factsOf(SQLite::Statement& row, int at) {
  RunFacts facts{};
  for (const RunColumn& column : kRunColumns) {
    std::visit([&](auto member) { read(row.getColumn(at++), facts.*member); }, column.member);
  }
  return facts;
}

void write(SQLite::Statement& statement, int at, bool value) { statement.bind(at, value ? 1 : 0); }
void write(SQLite::Statement& statement, int at, DType value) { statement.bind(at, std::string(precisionName(value))); }
template <class Enum>
void write(SQLite::Statement& statement, int at, std::optional<Enum> value) {
  statement.bind(at, value ? std::string(nameOf(*value)) : "");
}

/// `?,?,?`.
std::string placeholders(std::size_t count) {
  std::string marks;
  for (std::size_t i = 0; i < count; ++i) marks += i == 0 ? "?" : ",?";
  return marks;
}

/// The statement reads `blob` until it is reset.
void bindBlob(SQLite::Statement& statement, int at, const std::string& blob) {
  if (blob.size() > std::numeric_limits<int>::max()) {
    throw Error(fmt::format("a trace of {} bytes is too large for a run store; run fewer microbatches", blob.size()));
  }
  statement.bindNoCopy(at, blob.data(), static_cast<int>(blob.size()));
}

std::string textOf(const SQLite::Column& column) { return column.getString(); }

/// How a run ended, of its columns `state` and `failure`; a state that a newer Pipewright may have written counts as a failure.
std::pair<RunState, std::string> endOf(const std::string& stateName, const std::string& failure) {
  const RunState state = valueNamed<RunState>(stateName).value_or(RunState::Failed);
  switch (state) {
    case RunState::Unfinished: return {state, std::string(kUnfinishedRun)};
    case RunState::Completed: return {state, ""};
    case RunState::Failed: break;
  }
  return {state, failure.empty() ? stateName : failure};
}

/// A cluster's text as everything else has it; one that is unknown here as it stands.
std::string clusterOf(std::string stored) {
  if (!isClusterText(stored)) return stored;
  try {
    return toJson(parseCluster(stored, "The cluster of a run"));
  } catch (const UsageError&) {  // a list of runs has room for one that cannot be read
    return stored;
  }
}

Trace traceOf(const SQLite::Column& column, const std::string& source) {
  const auto* bytes = static_cast<const char*>(column.getBlob());
  return parseBlob(std::string_view(bytes, static_cast<std::size_t>(column.getBytes())), source);
}

}  // namespace

std::string summaryRows() {
  return "SELECT id, started_at, model, schedule, backend, failure, ranks, microbatches, predicted_ns, state, "
         "CASE WHEN json_valid(plan) THEN json_extract(plan, '$.profile.cluster') END" +
         factNames() + " FROM run ORDER BY id";
}

std::string runRow() {
  return "SELECT started_at, backend, failure, seed, host, processor, cores, device, plan, predicted, state" + factNames() +
         " FROM run WHERE id = ?";
}

std::string stepRows() {
  return "SELECT step, loss, measured, gradient_norm FROM step WHERE run = ? AND position >= ? ORDER BY position LIMIT ?";
}

RunSummary summaryOf(SQLite::Statement& row) {
  RunSummary s;
  s.id = RunId(row.getColumn(0).getInt());
  s.startedAt = textOf(row.getColumn(1));
  s.model = textOf(row.getColumn(2));
  s.schedule = textOf(row.getColumn(3));
  read(row.getColumn(4), s.transport);
  s.failure = textOf(row.getColumn(5));
  s.ranks = row.getColumn(6).getInt();
  s.microbatches = row.getColumn(7).getInt();
  s.predictedStep = Ns(row.getColumn(8).getInt64());
  std::tie(s.state, s.failure) = endOf(textOf(row.getColumn(9)), s.failure);
  s.cluster = clusterOf(textOf(row.getColumn(10)));
  s.facts = factsOf(row, 11);
  return s;
}

RunRecord runOf(SQLite::Statement& row, RunId id, const std::string& source) {
  RunRecord run;
  run.id = id;
  run.startedAt = textOf(row.getColumn(0));
  read(row.getColumn(1), run.transport);
  run.failure = textOf(row.getColumn(2));
  run.seed = std::bit_cast<std::uint64_t>(row.getColumn(3).getInt64());
  run.machine = {textOf(row.getColumn(4)), textOf(row.getColumn(5)), row.getColumn(6).getInt(), textOf(row.getColumn(7))};
  run.plan = parsePlan(textOf(row.getColumn(8)), source);
  run.predicted = traceOf(row.getColumn(9), source);
  std::tie(run.state, run.failure) = endOf(textOf(row.getColumn(10)), run.failure);
  run.facts = factsOf(row, 11);
  return run;
}

StepRecord stepOf(SQLite::Statement& row, const std::string& source) {
  StepRecord step;
  step.step = row.getColumn(0).getInt();
  const SQLite::Column loss = row.getColumn(1);
  step.loss = loss.isNull() ? std::numeric_limits<double>::quiet_NaN() : loss.getDouble();
  if (const SQLite::Column norm = row.getColumn(3); !norm.isNull()) step.gradientNorm = norm.getDouble();
  step.measured = traceOf(row.getColumn(2), fmt::format("step {} of {}", step.step, source));
  return step;
}

RunId insertRun(SQLite::Database& db, const RunRecord& run) {
  SQLite::Statement insert(db,
                           "INSERT INTO run (started_at, backend, state, failure, seed, model, schedule, ranks, microbatches, host, "
                           "processor, cores, device, plan, "
                           "predicted_ns, predicted" +
                               factNames() + ") VALUES (" + placeholders(16 + kRunColumns.size()) + ")");
  int at = 0;
  const Shape shape = shapeOf(run.plan.schedule);
  const std::string blob = toBlob(run.predicted);
  const bool unfinished = run.state == RunState::Unfinished;
  const RunState state = unfinished ? run.state : run.failure.empty() ? RunState::Completed : RunState::Failed;
  insert.bind(++at, run.startedAt);
  write(insert, ++at, run.transport);
  insert.bind(++at, std::string(nameOf(state)));
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
  for (const RunColumn& column : kRunColumns) {
    std::visit([&](auto member) { write(insert, ++at, run.facts.*member); }, column.member);
  }
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
