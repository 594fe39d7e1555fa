#include "backends/store/run_store.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include "backends/host/paths.h"
#include "backends/store/migrations.h"
#include "backends/store/run_rows.h"
#include "backends/store/store_errors.h"
#include "schedules/error.h"

namespace pw {
namespace {

int number(SQLite::Database& db, const char* query) { return db.execAndGet(query).getInt(); }

std::string joinedWords(std::optional<Transport> transport, const RunFacts& facts) {
  std::string words(transport ? nameOf(*transport) : "unknown");
  if (facts.precision != DType::Unknown) words += fmt::format(", {}", precisionName(facts.precision));
  if (facts.tf32) words += ", tf32";
  if (facts.synthetic) words += ", synthetic";
  if (facts.backward == Backward::Dynamic) words += ", dynamic backward";
  return words;
}

/// What is read of a run and a step; a newer store must have it all.
constexpr const char* kCount = "SELECT count(*) FROM step WHERE run = ?";
constexpr const char* kNumbers = "SELECT step FROM step WHERE run = ? AND position % ? = 0 ORDER BY position";
constexpr const char* kPosition = "SELECT position FROM step WHERE run = ? AND step = ? ORDER BY position LIMIT 1";
constexpr const char* kMedian =
    "SELECT duration_ns, position FROM step WHERE run = ? AND position >= ? ORDER BY duration_ns, position LIMIT 1 OFFSET ?";

int countOf(SQLite::Database& db, RunId run) {
  SQLite::Statement count(db, kCount);
  count.bind(1, run.value);
  count.executeStep();
  return count.getColumn(0).getInt();
}

/// Duration and position of the median of so many steps: see `medianPosition`.
std::pair<Ns, int> medianOf(SQLite::Database& db, RunId run, int steps) {
  SQLite::Statement median(db, kMedian);
  median.bind(1, run.value);
  median.bind(2, steps == 1 ? 0 : 1);
  median.bind(3, steps == 1 ? 0 : (steps - 2) / 2);
  if (!median.executeStep()) return {};
  return {Ns(median.getColumn(0).getInt64()), median.getColumn(1).getInt()};
}

/// The position of the first step of this number.
std::optional<int> positionOf(SQLite::Database& db, RunId run, int step) {
  SQLite::Statement query(db, kPosition);
  query.bind(1, run.value);
  query.bind(2, step);
  return query.executeStep() ? std::optional(query.getColumn(0).getInt()) : std::nullopt;
}

}  // namespace

/// The open file. Every use of SQLite goes through `guarded`, which words what it throws.
struct RunStore::Database {
  std::string path;
  std::chrono::milliseconds lockWait;
  std::optional<SQLite::Database> db;
  std::string note;

  void open(Mode mode);
  void openForReading();
  void openExisting();
  void migrateForReading();
  void create();
  void requireKnownColumns(int version);

  template <class Work>
  auto guarded(Work work) {
    try {
      return work();
    } catch (const SQLite::Exception& problem) {
      rethrow(problem, path, lockWait);
    }
  }
  [[nodiscard]] RunId find(std::optional<RunId> wanted);
  [[nodiscard]] std::string sourceOf(RunId run) const { return fmt::format("run {} in {}", run.value, path); }
};

/// Makes an empty file a run store; another process may do so at the same time.
void RunStore::Database::create() {
  SQLite::Transaction transaction(*db, SQLite::TransactionBehavior::IMMEDIATE);
  if (number(*db, "SELECT count(*) FROM sqlite_master") != 0 || number(*db, "PRAGMA application_id") != 0) return;
  createStore(*db);
  transaction.commit();
}

/// A store in a read-only folder, closed by its writer, can be read only when SQLite takes it for unchanging: WAL needs to
/// create a file beside it.
void RunStore::Database::openExisting() {
  db.emplace(path, SQLite::OPEN_READONLY, static_cast<int>(lockWait.count()));
  try {
    (void)number(*db, "PRAGMA application_id");
  } catch (const SQLite::Exception& problem) {
    const int code = problem.getErrorCode() & 0xff;
    if ((code != SQLITE_CANTOPEN && code != SQLITE_READONLY) || pathExists(path + "-wal")) throw;
    db.emplace(immutableUri(path), SQLite::OPEN_READONLY | SQLite::OPEN_URI, static_cast<int>(lockWait.count()));
  }
}

/// Brings the file itself to our version where it can be written, else what this reader sees of it.
void RunStore::Database::migrateForReading() {
  try {
    SQLite::Database writing(path, SQLite::OPEN_READWRITE, static_cast<int>(lockWait.count()));
    if (sqlite3_db_readonly(writing.getHandle(), "main") == 0) {
      migrateStore(writing, path);
      return;
    }
  } catch (const SQLite::Exception&) {  // locked or on a full disk; the copy below needs neither
  } catch (const Error&) {              // its folder is read-only
  }
  db.emplace(migratedCopy(*db, path));
}

void RunStore::Database::openForReading() {
  openExisting();
  const int version = storeVersion(*db, path);
  if (version < kStoreVersion) migrateForReading();
  if (version > kStoreVersion) {
    requireKnownColumns(version);
    note = fmt::format(
        "{} is of a newer Pipewright (format {}, here {}): its runs are shown as far as they are known here, and it takes no new ones; "
        "update Pipewright",
        path, version, kStoreVersion);
  }
}

/// Throws unless what we read is there.
void RunStore::Database::requireKnownColumns(int version) {
  try {
    for (const std::string& query : std::vector<std::string>{summaryRows(), runRow(), stepRows(), kCount, kNumbers, kPosition, kMedian})
      SQLite::Statement(*db, query);
  } catch (const SQLite::Exception&) {
    throw UsageError(fmt::format("the run store {} has format {} and this Pipewright reads up to {}; update Pipewright to read it", path,
                                 version, kStoreVersion));
  }
}

void RunStore::Database::open(Mode mode) {
  if (mode == Mode::ReadOnly) {
    if (!pathExists(path)) throw UsageError(fmt::format("there is no run store {}; `pipewright run --store {}` makes one", path, path));
    return openForReading();
  }
  db.emplace(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, static_cast<int>(lockWait.count()));
  if (sqlite3_db_readonly(db->getHandle(), "main") == 1) throw Error(cannotWrite(path));
  db->exec("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL");
  if (number(*db, "SELECT count(*) FROM sqlite_master") == 0) create();
  if (const int version = storeVersion(*db, path); version > kStoreVersion) {
    throw UsageError(fmt::format(
        "the run store {} has format {}, newer than the {} that this Pipewright writes: its runs can be listed and compared, but "
        "none added; update Pipewright or give another store",
        path, version, kStoreVersion));
  }
  migrateStore(*db, path);
  try {
    db->exec("PRAGMA journal_mode = WAL");
  } catch (const SQLite::Exception&) {
    // A network home has no shared memory, or another process is using the file: the journal it has will do.
  }
}

RunStore::RunStore(const std::string& path, Mode mode, std::chrono::milliseconds lockWait)
    : database_(std::make_unique<Database>(Database{path, lockWait, std::nullopt, ""})) {
  database_->guarded([&] { database_->open(mode); });
}

RunStore::~RunStore() = default;

const std::string& RunStore::note() const { return database_->note; }

std::string howComputed(const RunRecord& run) { return joinedWords(run.transport, run.facts); }
std::string howComputed(const RunSummary& run) { return joinedWords(run.transport, run.facts); }

std::size_t medianPosition(std::span<const Ns> durations) {
  if (durations.size() <= 1) return 0;
  std::vector<std::pair<Ns, std::size_t>> order;
  for (std::size_t s = 1; s < durations.size(); ++s) order.emplace_back(durations[s], s);
  std::sort(order.begin(), order.end());
  return order[(order.size() - 1) / 2].second;
}

RunId RunStore::add(const RunRecord& run) {
  return database_->guarded([&] {
    SQLite::Transaction transaction(*database_->db, SQLite::TransactionBehavior::IMMEDIATE);
    const RunId id = insertRun(*database_->db, run);
    insertSteps(*database_->db, id, run.steps, 0);
    transaction.commit();
    return id;
  });
}

void RunStore::append(RunId run, std::span<const StepRecord> steps) {
  database_->guarded([&] {
    SQLite::Database& db = *database_->db;
    SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
    SQLite::Statement next(db, "SELECT (SELECT coalesce(max(position) + 1, 0) FROM step WHERE run = ?1) FROM run WHERE id = ?1");
    next.bind(1, run.value);
    if (!next.executeStep()) static_cast<void>(database_->find(run));  // says so
    const std::int32_t position = next.getColumn(0).getInt();
    next.reset();  // a read that is open at the commit keeps the write-ahead log from being taken over into the file
    insertSteps(db, run, steps, position);
    transaction.commit();
  });
}

void RunStore::end(RunId run, const std::string& failure) {
  database_->guarded([&] {
    SQLite::Statement update(*database_->db, "UPDATE run SET state = ?, failure = ? WHERE id = ? AND state = 'unfinished'");
    update.bind(1, std::string(nameOf(failure.empty() ? RunState::Completed : RunState::Failed)));
    update.bind(2, failure);
    update.bind(3, run.value);
    update.exec();
  });
}

std::vector<RunSummary> RunStore::list() const {
  return database_->guarded([&] {
    SQLite::Transaction snapshot(*database_->db);
    SQLite::Statement runs(*database_->db, summaryRows());
    std::vector<RunSummary> summaries;
    while (runs.executeStep()) {
      RunSummary& s = summaries.emplace_back(summaryOf(runs));
      s.steps = countOf(*database_->db, s.id);
      if (s.steps > 0) s.medianMeasuredStep = medianOf(*database_->db, s.id, s.steps).first;
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
    const RunId run = database_->find(id);
    SQLite::Statement row(db, runRow());
    row.bind(1, run.value);
    row.executeStep();
    return runOf(row, run, database_->sourceOf(run));
  });
}

int RunStore::stepCount(RunId run) const {
  return database_->guarded([&] { return countOf(*database_->db, run); });
}

std::vector<int> RunStore::stepNumbers(RunId run, int most) const {
  return database_->guarded([&] {
    SQLite::Transaction snapshot(*database_->db);
    SQLite::Statement query(*database_->db, kNumbers);
    query.bind(1, run.value);
    query.bind(2, std::max(1, (countOf(*database_->db, run) + most - 1) / most));
    std::vector<int> numbers;
    while (query.executeStep()) numbers.push_back(query.getColumn(0).getInt());
    return numbers;
  });
}

std::vector<StepRecord> RunStore::loadSteps(RunId run, int first, int most) const {
  return database_->guarded([&] {
    SQLite::Statement query(*database_->db, stepRows());
    query.bind(1, run.value);
    query.bind(2, first);
    query.bind(3, most);
    std::vector<StepRecord> steps;
    while (query.executeStep()) steps.push_back(stepOf(query, database_->sourceOf(run)));
    return steps;
  });
}

StepRecord RunStore::loadStep(const RunRecord& run, std::optional<int> step) const {
  const std::optional<int> position = database_->guarded([&]() -> std::optional<int> {
    SQLite::Database& db = *database_->db;
    SQLite::Transaction snapshot(db);
    if (step) return positionOf(db, run.id, *step);
    const int count = countOf(db, run.id);
    return count > 0 ? std::optional(medianOf(db, run.id, count).second) : std::nullopt;
  });
  if (position) return loadSteps(run.id, *position, 1).at(0);
  if (step) {
    const int count = stepCount(run.id);
    throw UsageError(
        fmt::format("run {} of {} has no step {}; it has {} step{}", run.id.value, database_->path, *step, count, count == 1 ? "" : "s"));
  }
  throw UsageError(fmt::format("run {} has no measured step{}; choose another run with --run", run.id.value,
                               run.state == RunState::Completed ? ""
                               : run.state == RunState::Failed  ? ", as it failed"
                                                                : " yet"));
}

}  // namespace pw
