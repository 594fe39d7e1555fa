#include "backends/store/run_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <map>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include "backends/store/schema_sql.h"
#include "backends/store/trace_blob.h"
#include "schedules/error.h"
#include "schedules/printable.h"

namespace pw {
namespace {

// Of resources/schema.sql.
constexpr int kApplicationId = 0x50777274;
constexpr int kVersion = 1;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool writable(const std::string& path) { return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0; }

std::string folderOf(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string cannotWrite(const std::string& path) {
  const std::string folder = folderOf(path);
  if (!exists(folder)) return fmt::format("the folder of the run store {} does not exist; make it first", path);
  if (exists(path) && !writable(path)) return fmt::format("the run store {} is read-only; make it writable or give another one", path);
  return fmt::format("the run store {} lies in a folder that is read-only; make {} writable or give another one", path, folder);
}

std::string noRunStore(const std::string& path) {
  return fmt::format("{} is not a Pipewright run store; give the file that `pipewright run --store` wrote", path);
}

/// SQLite's complaint as a sentence of ours.
[[noreturn]] void rethrow(const SQLite::Exception& problem, const std::string& path, int lockWaitMs) {
  const std::string reason = printableLine(problem.what());  // quotes what a damaged file holds
  switch (problem.getErrorCode() & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(
          fmt::format("the run store {} has been locked by another program for {} ms; try again when that has ended", path, lockWaitMs));
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM: throw Error(cannotWrite(path));
    case SQLITE_NOTADB: throw UsageError(noRunStore(path));
    case SQLITE_CORRUPT: throw Error(fmt::format("the run store {} is damaged ({}); restore it from a copy", path, reason));
    case SQLITE_FULL:
    case SQLITE_IOERR:
      throw Error(
          fmt::format("cannot write the run store {} ({}): free space on its disk, or check quota and disk; runs stored before are kept",
                      path, reason));
    default: throw Error(fmt::format("the run store {} failed ({}); check the file or give another one", path, reason));
  }
}

/// The file's name for a reader that may create nothing beside it: SQLite takes it for unchanging.
std::string immutableUri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#')
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    else
      uri += c;
  }
  return uri + "?immutable=1";
}

int number(SQLite::Database& db, const char* query) { return db.execAndGet(query).getInt(); }

std::string textOf(const SQLite::Column& column) { return column.getString(); }

/// Position of the median after the first, which warms up; 0 where it is alone.
std::size_t medianPosition(const std::vector<Ns>& durations) {
  if (durations.size() == 1) return 0;
  std::vector<std::pair<Ns, std::size_t>> order;
  for (std::size_t s = 1; s < durations.size(); ++s) order.emplace_back(durations[s], s);
  std::sort(order.begin(), order.end());
  return order[(order.size() - 1) / 2].second;
}

/// The statement reads `blob` until it is reset.
void bindBlob(SQLite::Statement& statement, int at, const std::string& blob) {
  if (blob.size() > std::numeric_limits<int>::max()) {
    throw Error(fmt::format("a trace of {} bytes is too large for a run store; run fewer microbatches", blob.size()));
  }
  statement.bindNoCopy(at, blob.data(), static_cast<int>(blob.size()));
}

RunId insertRun(SQLite::Database& db, const RunRecord& run) {
  SQLite::Statement insert(db,
                           "INSERT INTO run (started_at, backend, failure, seed, model, schedule, ranks, microbatches, host, processor, "
                           "cores, device, plan, predicted_ns, predicted) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  int at = 0;
  const Shape shape = shapeOf(run.plan.schedule);
  const std::string blob = toBlob(run.predicted);
  insert.bind(++at, run.startedAt);
  insert.bind(++at, run.backend);
  insert.bind(++at, run.failure);
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

void insertSteps(SQLite::Database& db, RunId run, const std::vector<StepRecord>& steps) {
  SQLite::Statement insert(db, "INSERT INTO step (run, position, step, loss, duration_ns, measured) VALUES (?,?,?,?,?,?)");
  std::int32_t position = 0;
  for (const StepRecord& step : steps) {
    const std::string blob = toBlob(step.measured);
    insert.bind(1, run.value);
    insert.bind(2, position++);
    insert.bind(3, step.step);
    insert.bind(4, step.loss);  // SQLite makes NULL of NaN
    insert.bind(5, std::int64_t{durationOf(step.measured)});
    bindBlob(insert, 6, blob);
    insert.exec();
    insert.reset();
  }
}

Trace traceOf(const SQLite::Column& column, const std::string& source) {
  const auto* bytes = static_cast<const char*>(column.getBlob());
  return parseBlob(std::string_view(bytes, static_cast<std::size_t>(column.getBytes())), source);
}

}  // namespace

/// The open file. Every use of SQLite goes through `guarded`, which words what it throws.
struct RunStore::Database {
  std::string path;
  int lockWaitMs;
  std::optional<SQLite::Database> db;

  void open(Mode mode);
  void openForReading();
  void create();
  void checkIdentity();

  template <class Work>
  auto guarded(Work work) {
    try {
      return work();
    } catch (const SQLite::Exception& problem) {
      rethrow(problem, path, lockWaitMs);
    }
  }
  [[nodiscard]] RunId find(std::optional<RunId> wanted);
};

/// Throws unless this is a run store of a version we know.
void RunStore::Database::checkIdentity() {
  if (number(*db, "PRAGMA application_id") != kApplicationId) throw UsageError(noRunStore(path));
  if (const int version = number(*db, "PRAGMA user_version"); version != kVersion) {
    throw UsageError(
        fmt::format("the run store {} has format {} but this Pipewright reads {}; use the Pipewright that wrote it or a newer one", path,
                    version, kVersion));
  }
}

/// Makes an empty file a run store; another process may do so at the same time.
void RunStore::Database::create() {
  SQLite::Transaction transaction(*db, SQLite::TransactionBehavior::IMMEDIATE);
  if (number(*db, "SELECT count(*) FROM sqlite_master") != 0 || number(*db, "PRAGMA application_id") != 0) return;
  db->exec(kSchemaSql);
  transaction.commit();
}

/// A store in a read-only folder, closed by its writer, can be read only when SQLite takes it for unchanging: WAL needs to
/// create a file beside it.
void RunStore::Database::openForReading() {
  db.emplace(path, SQLite::OPEN_READONLY, lockWaitMs);
  try {
    (void)number(*db, "PRAGMA application_id");
  } catch (const SQLite::Exception& problem) {
    const int code = problem.getErrorCode() & 0xff;
    if ((code != SQLITE_CANTOPEN && code != SQLITE_READONLY) || exists(path + "-wal")) throw;
    db.emplace(immutableUri(path), SQLite::OPEN_READONLY | SQLite::OPEN_URI, lockWaitMs);
  }
  checkIdentity();
}

void RunStore::Database::open(Mode mode) {
  if (mode == Mode::ReadOnly) {
    if (!exists(path)) throw UsageError(fmt::format("there is no run store {}; `pipewright run --store {}` makes one", path, path));
    return openForReading();
  }
  db.emplace(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, lockWaitMs);
  if (sqlite3_db_readonly(db->getHandle(), "main") == 1) throw Error(cannotWrite(path));
  db->exec("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL");
  if (number(*db, "SELECT count(*) FROM sqlite_master") == 0) create();
  checkIdentity();
  try {
    db->exec("PRAGMA journal_mode = WAL");
  } catch (const SQLite::Exception&) {
    // A network home has no shared memory, or another process is using the file: the journal it has will do.
  }
}

RunStore::RunStore(const std::string& path, Mode mode, int lockWaitMs)
    : database_(std::make_unique<Database>(Database{path, lockWaitMs, std::nullopt})) {
  database_->guarded([&] { database_->open(mode); });
}

RunStore::~RunStore() = default;

const StepRecord& medianStep(const RunRecord& run) {
  if (run.steps.empty()) {
    throw UsageError(fmt::format("run {} has no measured step{}; choose another run with --run", run.id.value,
                                 run.failure.empty() ? "" : ", as it failed"));
  }
  std::vector<Ns> durations;
  for (const StepRecord& step : run.steps) durations.push_back(durationOf(step.measured));
  return run.steps[medianPosition(durations)];
}

RunId RunStore::add(const RunRecord& run) {
  return database_->guarded([&] {
    SQLite::Transaction transaction(*database_->db, SQLite::TransactionBehavior::IMMEDIATE);
    const RunId id = insertRun(*database_->db, run);
    insertSteps(*database_->db, id, run.steps);
    transaction.commit();
    return id;
  });
}

std::vector<RunSummary> RunStore::list() const {
  return database_->guarded([&] {
    SQLite::Transaction snapshot(*database_->db);
    std::map<RunId, std::vector<Ns>> durations;  // by position
    SQLite::Statement steps(*database_->db, "SELECT run, duration_ns FROM step ORDER BY run, position");
    while (steps.executeStep()) durations[RunId(steps.getColumn(0).getInt())].push_back(steps.getColumn(1).getInt64());
    SQLite::Statement runs(
        *database_->db, "SELECT id, started_at, model, schedule, backend, failure, ranks, microbatches, predicted_ns FROM run ORDER BY id");
    std::vector<RunSummary> summaries;
    while (runs.executeStep()) {
      RunSummary& s = summaries.emplace_back();
      s.id = RunId(runs.getColumn(0).getInt());
      int at = 0;
      for (std::string* text : {&s.startedAt, &s.model, &s.schedule, &s.backend, &s.failure}) *text = textOf(runs.getColumn(++at));
      s.ranks = runs.getColumn(6).getInt();
      s.microbatches = runs.getColumn(7).getInt();
      s.predictedStep = runs.getColumn(8).getInt64();
      s.steps = static_cast<int>(durations[s.id].size());
      if (s.steps > 0) s.medianMeasuredStep = durations[s.id][medianPosition(durations[s.id])];
    }
    return summaries;
  });
}

/// The wanted run or the newest. Throws UsageError naming the runs there are when there is no such run.
RunId RunStore::Database::find(std::optional<RunId> wanted) {
  std::vector<int> ids;
  SQLite::Statement query(*db, "SELECT id FROM run ORDER BY id");
  while (query.executeStep()) ids.push_back(query.getColumn(0).getInt());
  if (ids.empty()) throw UsageError(fmt::format("the run store {} holds no runs yet; `pipewright run --store {}` adds one", path, path));
  if (!wanted) return RunId(ids.back());
  if (std::ranges::binary_search(ids, wanted->value)) return *wanted;
  const bool gapless = ids.back() - ids.front() + 1 == static_cast<int>(ids.size());
  const std::string known =
      ids.size() > 2 && gapless ? fmt::format("{} to {}", ids.front(), ids.back()) : fmt::format("{}", fmt::join(ids, ", "));
  throw UsageError(fmt::format("the run store {} holds no run {}; it holds {}", path, wanted->value, known));
}

RunRecord RunStore::load(std::optional<RunId> id) const {
  return database_->guarded([&] {
    SQLite::Database& db = *database_->db;
    SQLite::Transaction snapshot(db);
    RunRecord run;
    run.id = database_->find(id);
    const std::string source = fmt::format("run {} in {}", run.id.value, database_->path);
    SQLite::Statement row(db,
                          "SELECT started_at, backend, failure, seed, host, processor, cores, device, plan, predicted "
                          "FROM run WHERE id = ?");
    row.bind(1, run.id.value);
    row.executeStep();
    run.startedAt = textOf(row.getColumn(0));
    run.backend = textOf(row.getColumn(1));
    run.failure = textOf(row.getColumn(2));
    run.seed = std::bit_cast<std::uint64_t>(row.getColumn(3).getInt64());
    run.machine = {textOf(row.getColumn(4)), textOf(row.getColumn(5)), row.getColumn(6).getInt(), textOf(row.getColumn(7))};
    run.plan = parsePlan(textOf(row.getColumn(8)), source);
    run.predicted = traceOf(row.getColumn(9), source);
    SQLite::Statement steps(db, "SELECT step, loss, measured FROM step WHERE run = ? ORDER BY position");
    steps.bind(1, run.id.value);
    while (steps.executeStep()) {
      StepRecord& step = run.steps.emplace_back();
      step.step = steps.getColumn(0).getInt();
      const SQLite::Column loss = steps.getColumn(1);
      step.loss = loss.isNull() ? std::numeric_limits<double>::quiet_NaN() : loss.getDouble();
      step.measured = traceOf(steps.getColumn(2), fmt::format("step {} of {}", step.step, source));
    }
    return run;
  });
}

}  // namespace pw
