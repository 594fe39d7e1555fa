#include "backends/store/migrations.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <type_traits>
#include <variant>

#include <SQLiteCpp/Backup.h>
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include "backends/host/paths.h"
#include "backends/store/schema_sql.h"
#include "backends/store/store_errors.h"
#include "backends/store/store_kind.h"
#include "schedules/error.h"

namespace pw {
namespace {

int numberOf(SQLite::Database& db, const std::string& query) { return db.execAndGet(query).getInt(); }

bool hasColumn(SQLite::Database& db, const std::string& table, const std::string& column) {
  return numberOf(db, fmt::format("SELECT count(*) FROM pragma_table_info('{}') WHERE name = '{}'", table, column)) > 0;
}

/// Version 1 wrote how a run was computed after the backend's name (`ucx, bf16, tf32, synthetic`), and stored a run only once it had ended.
void toVersion2(SQLite::Database& db) {
  if (hasColumn(db, "run", "profile")) {  // the first stores kept the profile beside the plan; SQLite's JSON puts it in
    db.exec("UPDATE run SET plan = json_set(plan, '$.profile', json(profile)) WHERE profile <> ''");
    db.exec("ALTER TABLE run DROP COLUMN profile");
  }
  db.exec(
      "ALTER TABLE run ADD COLUMN precision TEXT NOT NULL DEFAULT 'traced';"
      "ALTER TABLE run ADD COLUMN tf32 INTEGER NOT NULL DEFAULT 0;"
      "ALTER TABLE run ADD COLUMN synthetic INTEGER NOT NULL DEFAULT 0;"
      "ALTER TABLE run ADD COLUMN state TEXT NOT NULL DEFAULT 'completed';"
      "UPDATE run SET"
      "  precision = CASE WHEN backend LIKE '%, bf16%' THEN 'bf16' WHEN backend LIKE '%, fp16%' THEN 'fp16' ELSE 'traced' END,"
      "  tf32 = backend LIKE '%, tf32%',"
      "  synthetic = backend LIKE '%, synthetic',"
      "  state = CASE failure WHEN '' THEN 'completed' ELSE 'failed' END;"
      "UPDATE run SET backend = substr(backend, 1, instr(backend, ',') - 1) WHERE instr(backend, ',') > 0;"
      "ALTER TABLE step ADD COLUMN gradient_norm REAL;"
      "CREATE INDEX step_duration ON step (run, duration_ns, position)");
}

std::string_view sqlTypeOf(const RunColumn& column) {
  return std::visit(
      [](auto member) {
        using Fact = std::decay_t<decltype(RunFacts().*member)>;
        return std::is_same_v<Fact, bool>    ? "INTEGER NOT NULL DEFAULT 0"
               : std::is_same_v<Fact, DType> ? "TEXT NOT NULL DEFAULT 'traced'"
                                             : "TEXT NOT NULL DEFAULT ''";
      },
      column.member);
}

/// To our version, within a transaction. The schema's file has version 2; the columns of later ones are added to new stores, too.
void migrateFrom(int version, SQLite::Database& db) {
  if (version < 2) toVersion2(db);
  for (const RunColumn& column : kRunColumns) {
    if (column.version > std::max(version, 2)) db.exec(fmt::format("ALTER TABLE run ADD COLUMN {} {}", column.name, sqlTypeOf(column)));
  }
  db.exec(fmt::format("PRAGMA user_version = {}", kStoreVersion));
}

std::string nameOfCopy(const std::string& path, int version) {
  std::string name = fmt::format("{}.v{}.bak", path, version);
  for (int n = 2; pathExists(name); ++n) name = fmt::format("{}.v{}.{}.bak", path, version, n);
  return name;
}

/// Copies what is committed.
void copyAll(SQLite::Database& from, SQLite::Database& to) {
  if (const int code = SQLite::Backup(to, from).executeStep(); code != SQLITE_DONE) throw SQLite::Exception("not copied", code);
}

/// Copies the store beside itself and returns the copy's path, which exists only when the copy is whole.
std::string keepCopy(const std::string& path, int version) {
  std::string name = nameOfCopy(path, version);
  const std::string part = name + ".part";
  std::filesystem::remove(part);  // of a migration that was killed
  {
    SQLite::Database from(path, SQLite::OPEN_READONLY), to(part, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    copyAll(from, to);
  }
  std::filesystem::rename(part, name);
  return name;
}

}  // namespace

void createStore(SQLite::Database& db) {
  db.exec(kSchemaSql);
  migrateFrom(2, db);
}

int storeVersion(SQLite::Database& db, const std::string& path) {
  const int version = numberOf(db, "PRAGMA user_version");
  if (numberOf(db, "PRAGMA application_id") != kRunsApplication || version < 1) throw UsageError(noRunStore(path));
  return version;
}

void migrateStore(SQLite::Database& db, const std::string& path) {
  SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
  const int version = storeVersion(db, path);
  if (version >= kStoreVersion) return;  // another process was faster
  std::string copy;
  try {
    copy = keepCopy(path, version);
    migrateFrom(version, db);
    transaction.commit();
  } catch (const std::filesystem::filesystem_error& problem) {
    throw Error(fmt::format("cannot copy the run store {} before it is brought to format {} ({}); make its folder writable", path,
                            kStoreVersion, problem.code().message()));
  } catch (const SQLite::Exception&) {  // the store stays as it was, so the copy is not needed
    std::error_code ignored;
    if (!copy.empty()) std::filesystem::remove(copy, ignored);
    throw;
  }
}

SQLite::Database migratedCopy(SQLite::Database& db, const std::string& path) {
  const int version = storeVersion(db, path);
  SQLite::Database copy("", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  copyAll(db, copy);
  SQLite::Transaction transaction(copy);
  migrateFrom(version, copy);
  transaction.commit();
  return copy;
}

}  // namespace pw
